"""Convolutions of a Conformer: those of its layers, and those of the front that leaves a quarter of the frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedray.models.kernels.convolution_loops import (
    add_dropout_frames,
    beside,
    beside_back,
    depthwise,
    depthwise_back,
    dropout_frames,
    gate,
    gate_back,
    norm_leaky_dropout,
    norm_leaky_dropout_back,
)
from fedray.models.kernels.matrices import multiply
from fedray.models.kernels.rows import Drop, Part, arrays, norm, norm_back


class Convolution(Part):
    """x + dropout(W_2 silu(norm(depthwise(glu(W_1 norm(x)))))), [B, T, D]; padding frames stay as they are."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, w_1: Tensor, b_1: Tensor, taps: Tensor, b_taps: Tensor,
        weight_2: Tensor, bias_2: Tensor, w_2: Tensor, b_2: Tensor, lengths: np.ndarray, drop: Drop,
    ) -> Tensor:  # fmt: skip
        batch, time, width = x.shape
        kernel = taps.shape[-1]
        rows = x.view(-1, width)
        normed, means, inverse = norm(rows, weight, bias)
        halves = multiply(normed, w_1.view(2 * width, width).t(), b_1).view(batch, time, 2 * width)
        frames = x.new_empty(batch, time + kernel - 1, width)
        gate(*arrays(halves), lengths, *arrays(frames), kernel // 2)
        each = taps.view(width, kernel).t().contiguous()
        sums, active = torch.empty_like(x), torch.empty_like(x)
        means_2, inverse_2 = x.new_empty(batch, time), x.new_empty(batch, time)
        depthwise(*arrays(frames, each, b_taps, weight_2, bias_2), lengths,
                        *arrays(sums, means_2, inverse_2, active))  # fmt: skip
        out = multiply(active.view(-1, width), w_2.t(), b_2).view(x.shape)
        add_dropout_frames(*arrays(x, out), lengths, *drop)
        ctx.save_for_backward(x, weight, means, inverse, normed, halves, frames, each, weight_2, bias_2, sums, means_2,
                              inverse_2, active, w_1, w_2)  # fmt: skip
        ctx.rest = lengths, drop, w_1.shape, taps.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, means, inverse, normed, halves, frames, each, weight_2, bias_2, sums, means_2,
         inverse_2, active, w_1, w_2) = ctx.saved_tensors  # fmt: skip
        lengths, drop, shape_1, shape_taps = ctx.rest
        batch, time, width = x.shape
        gradient = gradient.contiguous()
        g = torch.empty_like(gradient)
        dropout_frames(*arrays(gradient, g), lengths, *drop)
        g = g.view(-1, width)
        to_w_2, to_b_2 = multiply(g.t(), active.view(-1, width)), g.sum(0)
        g = multiply(g, w_2).view(x.shape)
        to_taps, to_frames = torch.zeros_like(each), torch.zeros_like(frames)
        to_b_taps, to_weight_2, to_bias_2 = (torch.zeros_like(weight) for _ in range(3))
        depthwise_back(*arrays(g, frames, each, weight_2, bias_2), lengths, *arrays(sums, means_2, inverse_2,
                             to_taps, to_b_taps, to_weight_2, to_bias_2, to_frames))  # fmt: skip
        to_halves = torch.empty_like(halves)
        gate_back(*arrays(to_frames, halves), lengths, each.shape[0] // 2, *arrays(to_halves))
        rows = to_halves.view(-1, 2 * width)
        to_w_1, to_b_1 = multiply(rows.t(), normed), rows.sum(0)
        to_x, to_normed = gradient.clone(), multiply(rows, w_1.view(2 * width, width))
        to_weight, to_bias = norm_back(to_normed, x.view(-1, width), weight, means, inverse, to_x.view(-1, width))
        return (to_x, to_weight, to_bias, to_w_1.view(shape_1), to_b_1, to_taps.t().reshape(shape_taps), to_b_taps,
                to_weight_2, to_bias_2, to_w_2, to_b_2, None, None)  # fmt: skip


class Halving(Part):
    """dropout(leaky(norm(conv(x)))): a convolution over 3 frames with stride 2, [B, T, C] -> [B, ceil(T / 2), D].

    Padding frames have no effect: utterances end in a reflection.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, taps: Tensor, b_taps: Tensor, weight: Tensor, bias: Tensor, lengths: np.ndarray,
        slope: float, drop: Drop,
    ) -> Tensor:  # fmt: skip
        batch, time, channels = x.shape
        width, half = len(taps), -(-time // 2)
        triples = x.new_empty(batch, half, 3 * channels)
        beside(*arrays(x), lengths, *arrays(triples))
        matrix = taps.permute(0, 2, 1).reshape(width, -1)  # [D, 3 C], frame by frame
        sums = multiply(triples.view(batch * half, -1), matrix.t(), b_taps)
        out, means, inverse = torch.empty_like(sums), x.new_empty(len(sums)), x.new_empty(len(sums))
        norm_leaky_dropout(*arrays(sums, weight, bias), np.float32(slope), *arrays(means, inverse, out), *drop)
        ctx.save_for_backward(x, triples, matrix, sums, weight, bias, means, inverse)
        ctx.rest = lengths, np.float32(slope), drop, taps.shape
        return out.view(batch, half, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, triples, matrix, sums, weight, bias, means, inverse = ctx.saved_tensors
        lengths, slope, drop, (width, channels, _) = ctx.rest
        g, to_weight, to_bias = torch.empty_like(sums), torch.zeros_like(weight), torch.zeros_like(bias)
        norm_leaky_dropout_back(*arrays(gradient.reshape(-1, width), sums, weight, bias), slope,
                                *arrays(means, inverse, g, to_weight, to_bias), *drop)  # fmt: skip
        to_matrix, to_b_taps = multiply(g.t(), triples.view(len(g), -1)), g.sum(0)
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = torch.zeros_like(x)
            beside_back(*arrays(multiply(g, matrix).view(triples.shape)), lengths, *arrays(to_x))
        to_taps = to_matrix.view(width, 3, channels).permute(0, 2, 1).contiguous()
        return to_x, to_taps, to_b_taps, to_weight, to_bias, None, None, None
