"""The feed-forward part of a Conformer layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    """x + 1/2 dropout(W_2 dropout(silu(W_1 norm(x)))), rows [N, D]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor,
        inner: Drop, outer: Drop,
    ) -> Tensor:  # fmt: skip
        normed, means, inverse = norm(x, weight, bias)
        wide = torch.addmm(b_1, normed, w_1.t())
        active = torch.empty_like(wide)
        silu_dropout(*arrays(wide, active), *inner)
        out = torch.addmm(b_2, active, w_2.t())
        add_dropout(*arrays(x, out), *outer.times(0.5))
        ctx.save_for_backward(x, weight, means, inverse, normed, wide, active, w_1, w_2)
        ctx.drops = inner, outer
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, means, inverse, normed, wide, active, w_1, w_2 = ctx.saved_tensors
        inner, outer = ctx.drops
        gradient = gradient.contiguous()
        g = torch.empty_like(gradient)
        dropout(*arrays(gradient, g), *outer.times(0.5))
        to_w_2, to_b_2 = g.t() @ active, g.sum(0)
        g = g @ w_2
        silu_dropout_back(*arrays(g, wide), *inner)
        to_w_1, to_b_1 = g.t() @ normed, g.sum(0)
        to_x = gradient.clone()
        to_weight, to_bias = norm_back(g @ w_1, x, weight, means, inverse, to_x)
        return to_x, to_weight, to_bias, to_w_1, to_b_1, to_w_2, to_b_2, None, None
