"""Loops of self-attention: projections to heads and back, and the softmax of scores with its dropout."""

from __future__ import annotations

import numpy as np
from numba import njit

from fedray.models.kernels.scalars import OPTIONS, F, exponential, keeps


@njit(**OPTIONS)
def heads_apart(qkv, u, v, scale, by_u, by_v, keys, values):
    """Split projections [B, T, H, 3, d] into queries + u and queries + v, both scaled, keys and values.

    `by_u`, `keys` and `values` are [B, H, T, d], `by_v` is [H, B, T, d].
    """
    batch, time, heads, _, size = qkv.shape
    for b in range(batch):
        for t in range(time):
            for h in range(heads):
                for i in range(size):
                    q = qkv[b, t, h, 0, i]
                    by_u[b, h, t, i] = (q + u[h, i]) * scale
                    by_v[h, b, t, i] = (q + v[h, i]) * scale
                    keys[b, h, t, i] = qkv[b, t, h, 1, i]
                    values[b, h, t, i] = qkv[b, t, h, 2, i]


@njit(**OPTIONS)
def heads_together(by_u, by_v, keys, values, scale, to_qkv, to_u, to_v):
    """The backward pass of `heads_apart`: turns gradients of its outputs into those of its inputs."""
    batch, time, heads, _, size = to_qkv.shape
    for b in range(batch):
        for t in range(time):
            for h in range(heads):
                for i in range(size):
                    first, second = by_u[b, h, t, i] * scale, by_v[h, b, t, i] * scale
                    to_u[h, i] += first
                    to_v[h, i] += second
                    to_qkv[b, t, h, 0, i] = first + second
                    to_qkv[b, t, h, 1, i] = keys[b, h, t, i]
                    to_qkv[b, t, h, 2, i] = values[b, h, t, i]


@njit(**OPTIONS)
def softmax_dropout(scores, positions, lengths, kept, seed, threshold, scale):
    """Softmax of scores [B, H, T, T], in place, and its dropout in `kept`.

    Unless `positions` [H, B, T, 2 T - 1] is empty, its value at (i, T - 1 - i + j) is added to the score of query i and
    key j. Keys from `lengths` on get 0.
    """
    batch, heads, time, _ = scores.shape
    relative = positions.size > 0
    powers = np.empty(time, np.float32)
    bits = powers.view(np.int32)
    for b in range(batch):
        count = lengths[b]
        for h in range(heads):
            for i in range(time):
                row, to = scores[b, h, i], kept[b, h, i]
                if relative:
                    shifted = positions[h, b, i, time - 1 - i :]
                    for j in range(count):
                        row[j] += shifted[j]
                most = F(-3e38)
                for j in range(count):
                    most = max(most, row[j])
                for j in range(count):
                    row[j] -= most
                exponential(row, count, powers, bits)
                total = F(0)
                for j in range(count):
                    total += row[j]
                each = F(1) / total
                start = ((b * heads + h) * time + i) * time
                for j in range(count):
                    row[j] *= each
                    to[j] = row[j] * (scale if keeps(start + j, seed, threshold) else F(0))
                for j in range(count, time):
                    row[j] = F(0)
                    to[j] = F(0)


@njit(**OPTIONS)
def softmax_dropout_back(gradient, shares, lengths, to_positions, seed, threshold, scale):
    """The backward pass: turns the gradient of `kept` into that of the scores, and sets that of the positions."""
    batch, heads, time, _ = shares.shape
    relative = to_positions.size > 0
    for b in range(batch):
        count = lengths[b]
        for h in range(heads):
            for i in range(time):
                g, share = gradient[b, h, i], shares[b, h, i]
                start = ((b * heads + h) * time + i) * time
                total = F(0)
                for j in range(count):
                    g[j] *= scale if keeps(start + j, seed, threshold) else F(0)
                    total += g[j] * share[j]
                for j in range(count):
                    g[j] = share[j] * (g[j] - total)
                for j in range(count, time):
                    g[j] = F(0)
                if relative:
                    place = to_positions[h, b, i]
                    place[:] = F(0)
                    for j in range(count):
                        place[time - 1 - i + j] = g[j]


@njit(**OPTIONS)
def heads_turned(qkv, cosines, sines, scale, queries, keys, values):
    """Split projections [B, T, H, 3, d] into scaled queries, keys and values [B, H, T, d]; rotate queries and keys.

    Pair i of a query or key at time t is rotated by the angle with `cosines` and `sines` [T, d / 2] at (t, i).
    """
    batch, time, heads, _, size = qkv.shape
    for b in range(batch):
        for t in range(time):
            for h in range(heads):
                for i in range(size // 2):
                    c, s = cosines[t, i], sines[t, i]
                    x, y = qkv[b, t, h, 0, 2 * i] * scale, qkv[b, t, h, 0, 2 * i + 1] * scale
                    queries[b, h, t, 2 * i] = x * c - y * s
                    queries[b, h, t, 2 * i + 1] = y * c + x * s
                    x, y = qkv[b, t, h, 1, 2 * i], qkv[b, t, h, 1, 2 * i + 1]
                    keys[b, h, t, 2 * i] = x * c - y * s
                    keys[b, h, t, 2 * i + 1] = y * c + x * s
                for i in range(size):
                    values[b, h, t, i] = qkv[b, t, h, 2, i]


@njit(**OPTIONS)
def heads_turned_back(queries, keys, values, cosines, sines, scale, to_qkv):
    """The backward pass of `heads_turned`: turns gradients of its outputs into that of the projections."""
    batch, time, heads, _, size = to_qkv.shape
    for b in range(batch):
        for t in range(time):
            for h in range(heads):
                for i in range(size // 2):
                    c, s = cosines[t, i], sines[t, i]
                    x, y = queries[b, h, t, 2 * i] * scale, queries[b, h, t, 2 * i + 1] * scale
                    to_qkv[b, t, h, 0, 2 * i] = x * c + y * s
                    to_qkv[b, t, h, 0, 2 * i + 1] = y * c - x * s
                    x, y = keys[b, h, t, 2 * i], keys[b, h, t, 2 * i + 1]
                    to_qkv[b, t, h, 1, 2 * i] = x * c + y * s
                    to_qkv[b, t, h, 1, 2 * i + 1] = y * c - x * s
                for i in range(size):
                    to_qkv[b, t, h, 2, i] = values[b, h, t, i]
