"""The blocks of FedSTAR's network: convolutions over time and over frequency, joined, with group norms and pooling.

Maps are stored as [B, T, D, C]: a convolution is a product of matrices with a row for each place of a map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedray.models.kernels.rows import Part, arrays
from fedray.models.kernels.separable_loops import TAPS, backward, forward, room_of


def block(module: Any, maps: Tensor, groups: int) -> Tensor:
    """Apply `module`, an `audio_cnn.Block`, to maps [B, T, D, C] -> [B, T // 2, D // 2, F].

    Its norms have `groups` groups for every F channels.
    """
    share = module.dropout.p if module.dropout.training else 0.0
    kept = maps.new_ones(len(maps), len(module.joint.weight))
    if share:  # drawn as nn.Dropout2d draws it
        kept.bernoulli_(1 - share).div_(1 - share)
    parts = (module.time, module.frequency, module.norm, module.joint, module.joint_norm)
    weights = [weight for part in parts for weight in (part.weight, part.bias)]
    return Separable.apply(maps, *weights, kept, groups, module.norm.eps)


class Separable(Part):
    """relu(pool(norm(joint(relu(norm([time(x), frequency(x)])))))) times `kept` [B, F], factors of whole maps."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, time: Tensor, b_time: Tensor, frequency: Tensor, b_frequency: Tensor, weight: Tensor,
        bias: Tensor, joint: Tensor, b_joint: Tensor, last: Tensor, b_last: Tensor, kept: Tensor, groups: int,
        epsilon: float,
    ) -> Tensor:  # fmt: skip
        batch, frames, bins, channels = maps.shape
        filters = len(last)
        taps = torch.stack([time.flatten(2), frequency.flatten(2)]).permute(0, 3, 2, 1).reshape(2, -1, filters)
        matrix = joint.view(filters, -1).t().contiguous()
        room = maps.new_empty(room_of(batch, frames * bins, channels, filters))
        out = maps.new_empty(batch, frames // 2, bins // 2, filters)
        weights = (taps, b_time, b_frequency, weight, bias, matrix, b_joint, last, b_last)
        forward(*arrays(maps, *weights, kept), groups, np.float32(epsilon), *arrays(room, out))
        ctx.save_for_backward(taps, weight, matrix, last, kept, room)
        ctx.rest = maps.shape, groups
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        taps, weight, matrix, last, kept, room = ctx.saved_tensors
        (batch, frames, bins, channels), groups = ctx.rest
        filters = len(last)
        to_taps, to_joint = taps.new_empty(2, filters, TAPS * channels), taps.new_empty(filters, 2 * filters)
        to_norm, to_last = taps.new_zeros(3, 2 * filters), taps.new_zeros(3, filters)
        to_maps = taps.new_empty((batch, frames, bins, channels) if ctx.needs_input_grad[0] else (0, 0, 0, 0))
        backward(
            *arrays(gradient.contiguous()), frames, bins, *arrays(taps, weight, matrix, last, kept), groups,
            *arrays(room, to_taps, to_norm, to_joint, to_last, to_maps),
        )  # fmt: skip
        time, frequency = to_taps.view(2, filters, TAPS, channels).transpose(2, 3)
        to_weight, to_bias, to_biases = to_norm
        b_time, b_frequency = to_biases.view(2, filters)
        to_last, to_b_last, to_b_joint = to_last
        return (
            to_maps if ctx.needs_input_grad[0] else None, time.unsqueeze(3), b_time, frequency.unsqueeze(2),
            b_frequency, to_weight, to_bias, to_joint[..., None, None], to_b_joint, to_last, to_b_last, *[None] * 3,
        )  # fmt: skip
