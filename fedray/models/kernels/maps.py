"""The convolutional blocks of SpeechBrain's CRDNN, and its pooling of frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from speechbrain.lobes.models.CRDNN import CNN_Block
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from fedray.models.kernels.frames_loops import SPARE, framed, framed_back, pool_frames, pool_frames_back
from fedray.models.kernels.maps_loops import activate, block_back, convolve
from fedray.models.kernels.products import COLUMNS, ROWS
from fedray.models.kernels.rows import Drop, Part, arrays, drops

SLOPE = np.float32(0.01)  # of torch's LeakyReLU


def blocks(modules: Iterable[CNN_Block], features: Tensor, lengths: Tensor, pooling: int) -> Tensor:
    """The maps of features [B, T, bins] with these lengths: [B, T // pooling, bins', channels], zeros in the padding.

    Each block halves the bins. Every utterance has at least two frames, and every convolution at least two bins.
    """
    counts, time, bins = lengths.numpy(), features.shape[1], features.shape[2]
    (nothing,) = drops(0.0, 1)
    x = Framed.apply(features.contiguous(), counts)
    for block in modules:
        (drop,) = drops(block.drop.drop.p if block.training else 0.0, 1)
        for conv, norm, pool, dropped in (
            (block.conv_1.conv, block.norm_1.norm, 1, nothing),
            (block.conv_2.conv, block.norm_2.norm, 2, drop),
        ):
            x = Block.apply(x, conv.weight, conv.bias, norm.weight, norm.bias, counts, time, pool, dropped)
        bins //= 2
    return PoolFrames.apply(x, counts, time // pooling, bins, len(conv.weight), pooling)


class Framed(Part):
    """Features [B, T, bins] as maps [B, 1, plane]."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, lengths: np.ndarray) -> Tensor:
        batch, time, bins = features.shape
        ctx.shape, ctx.lengths = features.shape, lengths
        out = features.new_empty(batch, 1, plane(time, bins))
        framed(*arrays(features), lengths, *arrays(out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        to_features = gradient.new_empty(ctx.shape)
        framed_back(*arrays(gradient.contiguous()), ctx.lengths, *arrays(to_features))
        return to_features, None


class Block(Part):
    """dropout(pool(leaky(norm(conv(maps))))): maps [B, C, plane] of at most `time` frames -> maps [B, D, plane'].

    Its backward pass overwrites the gradient that it receives, which always comes from a part in this file.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, taps: Tensor, b_taps: Tensor, weight: Tensor, bias: Tensor, lengths: np.ndarray,
        time: int, pool: int, drop: Drop,
    ) -> Tensor:  # fmt: skip
        batch, channels, bins, pitch = len(maps), len(taps), len(weight), len(weight) + 2
        sums = maps.new_empty(batch, up(channels, ROWS), up(time * pitch, COLUMNS))
        left = packed(taps.permute(0, 1, 3, 2).reshape(channels, -1))
        convolve(*arrays(maps), pitch, lengths, *arrays(left, pad(b_taps, (0, sums.shape[1] - channels)), sums))
        by_channel = [each.t().contiguous() for each in (weight, bias)]
        means, inverse = maps.new_empty(2, batch, time).unbind()
        out = maps.new_empty(batch, channels, plane(time, bins // pool))
        activate(*arrays(sums), lengths, *arrays(*by_channel), SLOPE, pool, *arrays(means, inverse, out), *drop)
        ctx.save_for_backward(maps, taps, sums, *by_channel, means, inverse)
        ctx.rest = lengths, pool, drop
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, taps, sums, weight, bias, means, inverse = ctx.saved_tensors
        lengths, pool, drop = ctx.rest
        channels, inputs = taps.shape[:2]
        to_maps = maps.new_empty(len(maps), up(inputs, ROWS), maps.shape[2] if ctx.needs_input_grad[0] else 0)
        to_taps = maps.new_zeros(sums.shape[1], 9 * inputs)
        to_b_taps, to_weight, to_bias = maps.new_empty(channels), torch.zeros_like(weight), torch.zeros_like(bias)
        left = packed(taps.permute(1, 0, 3, 2).reshape(inputs, -1))
        block_back(*arrays(gradient.contiguous(), maps), lengths, *arrays(left, sums, weight, bias), SLOPE, pool,
                   *arrays(means, inverse, to_maps, to_taps, to_b_taps, to_weight, to_bias), *drop)  # fmt: skip
        found = to_maps[:, :inputs] if ctx.needs_input_grad[0] else None
        to_taps = to_taps[:channels].view(channels, inputs, 3, 3).transpose(2, 3).contiguous()
        return found, to_taps, to_b_taps, to_weight.t(), to_bias.t(), None, None, None, None


class PoolFrames(Part):
    """Maxima over `pooling` frames: maps [B, C, plane] -> [B, time, bins, C]."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, lengths: np.ndarray, time: int, bins: int, channels: int, pooling: int
    ) -> Tensor:
        out = maps.new_empty(len(maps), time, bins, channels)
        pool_frames(*arrays(maps), lengths, bins, pooling, *arrays(out))
        ctx.save_for_backward(maps)
        ctx.rest = lengths, bins, pooling
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (maps,) = ctx.saved_tensors
        lengths, bins, pooling = ctx.rest
        to_maps = torch.zeros_like(maps)
        pool_frames_back(*arrays(gradient.contiguous(), maps), lengths, bins, pooling, *arrays(to_maps))
        return to_maps, None, None, None, None, None


def plane(time: int, bins: int) -> int:
    """Floats of a map with its reflections and spare room."""
    return (time + 2) * (bins + 2) + SPARE


def up(count: int, multiple: int) -> int:
    """A count, rounded up to a multiple."""
    return -(-count // multiple) * multiple


def packed(matrix: Tensor) -> Tensor:
    """A left matrix [R, K] as `product` takes it: [ceil(R / 4), K, 4]."""
    rows, inner = matrix.shape
    return pad(matrix, (0, 0, 0, up(rows, ROWS) - rows)).view(-1, ROWS, inner).transpose(1, 2).contiguous()
