"""Self-attention of a Conformer layer, with relative or rotary positions."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedray.models.kernels.attention_loops import (
    heads_apart,
    heads_together,
    heads_turned,
    heads_turned_back,
    softmax_dropout,
    softmax_dropout_back,
)
from fedray.models.kernels.matrices import multiply
from fedray.models.kernels.rows import Drop, Part, arrays, norm, norm_back

Lengths = np.ndarray  # int64 [B], frames of each utterance


class RelativeAttention(Part):
    """x + attention(norm(x)) with relative positions (Dai et al., Transformer-XL), [B, T, D].

    `positions` [2 T - 1, D] are the embeddings of the distances, `u` and `v` the biases of SpeechBrain's RelPosMHAXL,
    which scales by the width of all heads.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, w_in: Tensor, w_positions: Tensor, u: Tensor, v: Tensor,
        w_out: Tensor, b_out: Tensor, positions: Tensor, lengths: Lengths, heads: int, drop: Drop,
    ) -> Tensor:  # fmt: skip
        batch, time, width = x.shape
        size, scale = width // heads, np.float32(1 / math.sqrt(width))
        normed, means, inverse = norm(x.view(-1, width), weight, bias)
        qkv = multiply(normed, w_in.t()).view(batch, time, heads, 3, size)
        by_u, keys, values = x.new_empty(3, batch, heads, time, size).unbind()
        by_v = x.new_empty(heads, batch, time, size)
        heads_apart(*arrays(qkv, u.view(heads, size), v.view(heads, size)), scale, *arrays(by_u, by_v, keys, values))
        embedded = multiply(positions, w_positions.t()).view(-1, heads, size).transpose(0, 1)
        distances = multiply(by_v.view(heads, -1, size), embedded.transpose(1, 2)).view(heads, batch, time, -1)
        shares, kept, context = _attend(by_u, keys, values, distances, lengths, drop)
        ctx.save_for_backward(x, weight, means, inverse, normed, w_in, w_positions, w_out, positions, by_u, by_v, keys,
                              values, embedded, shares, kept, context)  # fmt: skip
        ctx.rest = lengths, drop, scale, u.shape
        return multiply(context, w_out.t(), b_out).add_(x.view(-1, width)).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, means, inverse, normed, w_in, w_positions, w_out, positions, by_u, by_v, keys,
         values, embedded, shares, kept, context) = ctx.saved_tensors  # fmt: skip
        lengths, drop, scale, shape = ctx.rest
        batch, heads, time, size = by_u.shape
        width = heads * size
        g = gradient.reshape(-1, width)
        to_w_out, to_b_out = multiply(g.t(), context), g.sum(0)
        to_distances = x.new_empty(heads, batch, time, embedded.shape[1])
        to_by_u, to_keys, to_values = _attend_back(
            multiply(g, w_out), by_u, keys, values, shares, kept, to_distances, lengths, drop
        )
        flat = to_distances.view(heads, batch * time, -1)
        to_by_v = multiply(flat, embedded).view(by_v.shape)
        to_embedded = multiply(flat.transpose(1, 2), by_v.view(heads, -1, size))
        to_w_positions = multiply(to_embedded.transpose(0, 1).reshape(-1, width).t(), positions)
        to_qkv = x.new_empty(batch, time, heads, 3, size)
        to_u, to_v = x.new_zeros(2, heads, size).unbind()
        heads_together(*arrays(to_by_u, to_by_v, to_keys, to_values), scale, *arrays(to_qkv, to_u, to_v))
        rows, to_x = to_qkv.view(-1, 3 * width), g.clone()
        to_weight, to_bias = norm_back(multiply(rows, w_in), x.view(-1, width), weight, means, inverse, to_x)
        return (to_x.view(x.shape), to_weight, to_bias, multiply(rows.t(), normed), to_w_positions, to_u.view(shape),
                to_v.view(shape), to_w_out, to_b_out, None, None, None, None)  # fmt: skip


class RotaryAttention(Part):
    """x + attention(norm(x)) with rotary positions (Su et al., RoFormer), as SpeechBrain's RoPEMHA, [B, T, D]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, w_in: Tensor, w_out: Tensor, b_out: Tensor,
        lengths: Lengths, heads: int, drop: Drop,
    ) -> Tensor:  # fmt: skip
        batch, time, width = x.shape
        size, scale = width // heads, np.float32(1 / math.sqrt(width))
        normed, means, inverse = norm(x.view(-1, width), weight, bias)
        qkv = multiply(normed, w_in.t()).view(batch, time, heads, 3, size)
        queries, keys, values = x.new_empty(3, batch, heads, time, size).unbind()
        heads_turned(*arrays(qkv), *_angles(time, size), scale, *arrays(queries, keys, values))
        shares, kept, context = _attend(queries, keys, values, x.new_empty(0, 0, 0, 0), lengths, drop)
        ctx.save_for_backward(x, weight, means, inverse, normed, w_in, w_out, queries, keys, values, shares, kept,
                              context)  # fmt: skip
        ctx.rest = lengths, drop, scale
        return multiply(context, w_out.t(), b_out).add_(x.view(-1, width)).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, means, inverse, normed, w_in, w_out, queries, keys, values, shares, kept, context = ctx.saved_tensors
        lengths, drop, scale = ctx.rest
        batch, heads, time, size = queries.shape
        width = heads * size
        g = gradient.reshape(-1, width)
        to_w_out, to_b_out = multiply(g.t(), context), g.sum(0)
        nowhere = x.new_empty(0, 0, 0, 0)
        to_queries, to_keys, to_values = _attend_back(
            multiply(g, w_out), queries, keys, values, shares, kept, nowhere, lengths, drop
        )
        to_qkv = x.new_empty(batch, time, heads, 3, size)
        heads_turned_back(*arrays(to_queries, to_keys, to_values), *_angles(time, size), scale, *arrays(to_qkv))
        rows, to_x = to_qkv.view(-1, 3 * width), g.clone()
        to_weight, to_bias = norm_back(multiply(rows, w_in), x.view(-1, width), weight, means, inverse, to_x)
        return to_x.view(x.shape), to_weight, to_bias, multiply(rows.t(), normed), to_w_out, to_b_out, None, None, None


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, distances: Tensor, lengths: Lengths, drop: Drop
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention weights [B, H, T, T], the same after dropout, and the context as rows [B T, D]."""
    batch, heads, time, size = queries.shape
    flat = (batch * heads, time, size)
    shares = torch.bmm(queries.view(flat), keys.view(flat).transpose(1, 2)).view(batch, heads, time, time)
    kept = torch.empty_like(shares)
    softmax_dropout(*arrays(shares, distances), lengths, *arrays(kept), *drop)
    context = torch.bmm(kept.view(-1, time, time), values.view(flat)).view(batch, heads, time, size)
    return shares, kept, context.transpose(1, 2).reshape(-1, heads * size)


def _attend_back(
    gradient: Tensor, queries: Tensor, keys: Tensor, values: Tensor, shares: Tensor, kept: Tensor,
    to_distances: Tensor, lengths: Lengths, drop: Drop,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of queries, keys and values from the context's gradient; sets that of the distances."""
    batch, heads, time, size = queries.shape
    flat, square = (batch * heads, time, size), (batch * heads, time, time)
    g = gradient.view(batch, time, heads, size).transpose(1, 2).reshape(flat)
    to_values = torch.bmm(kept.view(square).transpose(1, 2), g)
    to_scores = torch.bmm(g, values.view(flat).transpose(1, 2))
    softmax_dropout_back(*arrays(to_scores.view(shares.shape), shares), lengths, *arrays(to_distances), *drop)
    to_queries = torch.bmm(to_scores, keys.view(flat))
    to_keys = torch.bmm(to_scores.transpose(1, 2), queries.view(flat))
    return to_queries.view(queries.shape), to_keys.view(keys.shape), to_values.view(values.shape)


@functools.lru_cache(maxsize=256)
def _angles(time: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of rotary positions, [time, size / 2]."""
    speeds = torch.exp(torch.arange(0, size, 2, dtype=torch.float32) * -(math.log(10000.0) / size))
    angles = torch.outer(torch.arange(time, dtype=torch.float32), speeds)
    return torch.cos(angles).numpy(), torch.sin(angles).numpy()
