"""The convolutions over time of FedMLAC's networks: a ReLU follows each, and each halves the frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fedray.models.kernels.matrices import multiply
from fedray.models.kernels.rows import Part, arrays
from fedray.models.kernels.scalars import OPTIONS, F

EXACT = OPTIONS | {"fastmath": False}  # a NaN must stay a NaN, so that the loss shows it


def halved(convolutions: list[nn.Conv1d], features: Tensor, lengths: Tensor) -> Tensor:
    """Convolutions over 3 frames, each with ReLU and pooling of two frames.

    [B, T, bins] -> [B, T // 2 // 2 ..., filters]. Padding frames of the input count as zeros; those of the output mean
    nothing.
    """
    counts, x = lengths.numpy(), features.contiguous()
    for convolution in convolutions:
        x = Pooled.apply(x, convolution.weight, convolution.bias, counts)
        counts = counts // 2
    return x


class Pooled(Part):
    """pool(relu(conv(x))): a convolution over 3 frames, maxima over two frames, [B, T, C] -> [B, T // 2, D]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, bias: Tensor, lengths: np.ndarray) -> Tensor:
        batch, time, channels = x.shape
        half, width = time // 2, len(taps)
        triples = x.new_empty(batch * half * 2, 3 * channels)
        beside(*arrays(x), lengths, *arrays(triples.view(batch, 2 * half, -1)))
        matrix = taps.permute(0, 2, 1).reshape(width, -1)  # [D, 3 C], frame by frame
        sums = multiply(triples, matrix.t(), bias)
        out = x.new_empty(batch, half, width)
        pool(*arrays(sums.view(-1, 2, width), out.view(-1, width)))
        ctx.save_for_backward(triples, matrix, sums)
        ctx.rest = lengths, x.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        triples, matrix, sums = ctx.saved_tensors
        lengths, (batch, time, channels) = ctx.rest
        width = len(matrix)
        g = torch.empty_like(sums)
        pool_back(*arrays(gradient.reshape(-1, width), sums.view(-1, 2, width), g.view(-1, 2, width)))
        to_matrix, to_bias = multiply(g.t(), triples), g.sum(0)
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = gradient.new_zeros(batch, time, channels)
            beside_back(*arrays(multiply(g, matrix).view(batch, -1, 3 * channels)), lengths, *arrays(to_x))
        return to_x, to_matrix.view(width, 3, channels).permute(0, 2, 1), to_bias, None


@njit(**OPTIONS)
def beside(x, lengths, out):
    """Lay three frames side by side around every frame: [B, T, C] -> `out` [B, T', 3 C], T' <= T.

    Zeros lie before the first frame and after an utterance's last one.
    """
    width = x.shape[2]
    for b in range(len(x)):
        for t in range(out.shape[1]):
            to = out[b, t]
            for k in range(3):
                frame = t + k - 1
                if 0 <= frame < lengths[b]:
                    to[k * width : (k + 1) * width] = x[b, frame]
                else:
                    to[k * width : (k + 1) * width] = F(0)


@njit(**OPTIONS)
def beside_back(gradient, lengths, to_x):
    """The backward pass of `beside`: adds to `to_x`."""
    width = to_x.shape[2]
    for b in range(len(to_x)):
        for t in range(gradient.shape[1]):
            for k in range(3):
                frame = t + k - 1
                if 0 <= frame < lengths[b]:
                    to, g = to_x[b, frame], gradient[b, t, k * width : (k + 1) * width]
                    for c in range(width):
                        to[c] += g[c]


@njit(**EXACT)
def pool(sums, out):
    """The greatest of two frames and zero: [N, 2, D] -> `out` [N, D]."""
    for n in range(len(out)):
        one, other, to = sums[n, 0], sums[n, 1], out[n]
        for c in range(len(to)):
            most = other[c] if other[c] > one[c] or other[c] != other[c] else one[c]
            to[c] = F(0) if most <= F(0) else most


@njit(**EXACT)
def pool_back(gradient, sums, to_sums):
    """The backward pass of `pool`, into `to_sums` [N, 2, D]: the first of two equal frames gets the gradient.

    Conditions are factors, and loops have few arrays: otherwise compilers do not vectorise them.
    """
    for n in range(len(gradient)):
        g, one, other, to = gradient[n], sums[n, 0], sums[n, 1], to_sums[n, 0]
        for c in range(len(g)):
            to[c] = g[c] * (F(1) if one[c] >= other[c] else F(0)) * (F(1) if one[c] > F(0) else F(0))
        to = to_sums[n, 1]
        for c in range(len(g)):
            to[c] = g[c] * (F(1) if other[c] > one[c] else F(0)) * (F(1) if other[c] > F(0) else F(0))
