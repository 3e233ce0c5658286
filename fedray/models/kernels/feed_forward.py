"""The feed-forward part of a Conformer layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedray.models.kernels.matrices import multiply
from fedray.models.kernels.rows import (
    Drop,
    Part,
    add_dropout,
    arrays,
    dropout,
    norm,
    norm_back,
    silu_dropout,
    silu_dropout_back,
)


class FeedForward(Part):
    """x + 1/2 dropout(W_2 dropout(silu(W_1 norm(x)))), [..., D]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor,
        inner: Drop, outer: Drop,
    ) -> Tensor:  # fmt: skip
        rows = x.view(-1, x.shape[-1])
        normed, means, inverse = norm(rows, weight, bias)
        wide = multiply(normed, w_1.t(), b_1)
        active = torch.empty_like(wide)
        silu_dropout(*arrays(wide, active), *inner)
        out = multiply(active, w_2.t(), b_2)
        add_dropout(*arrays(rows, out), *outer.times(0.5))
        ctx.save_for_backward(rows, weight, means, inverse, normed, wide, active, w_1, w_2)
        ctx.drops = inner, outer
        return out.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, means, inverse, normed, wide, active, w_1, w_2 = ctx.saved_tensors
        inner, outer = ctx.drops
        rows = gradient.contiguous().view(x.shape)
        g = torch.empty_like(rows)
        dropout(*arrays(rows, g), *outer.times(0.5))
        to_w_2, to_b_2 = multiply(g.t(), active), g.sum(0)
        g = multiply(g, w_2)
        silu_dropout_back(*arrays(g, wide), *inner)
        to_w_1, to_b_1 = multiply(g.t(), normed), g.sum(0)
        to_x = rows.clone()
        to_weight, to_bias = norm_back(multiply(g, w_1), x, weight, means, inverse, to_x)
        return to_x.view(gradient.shape), to_weight, to_bias, to_w_1, to_b_1, to_w_2, to_b_2, None, None
