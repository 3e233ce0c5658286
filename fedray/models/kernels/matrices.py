"""Products of float32 matrices.

torch's MKL does not use AVX-512 on AMD processors, so these loops are twice as fast there; elsewhere they are about as
fast. They read transposed matrices in place, and multiply many small ones without a call for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from torch import Tensor

from fedray.models.kernels.registers import WIDTH, add_product, load, splat_of, store
from fedray.models.kernels.rows import arrays
from fedray.models.kernels.scalars import OPTIONS, F

ROWS, COLUMNS = 6, 2 * WIDTH  # of a product that are computed together, in registers
DEPTH = 192  # rows of a right matrix that are multiplied while they are in the processor's cache
NOTHING = np.empty(0, np.float32)


def multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left [M, K] @ right [K, N] + bias [N]; left and right may be transposed views. Also for stacks: [S, M, K]..."""
    out = left.new_empty(*left.shape[:-1], right.shape[-1])
    loop: Any = product if left.dim() == 2 else products
    loop(*arrays(left, right), NOTHING if bias is None else arrays(bias)[0], *arrays(out), 0)
    return out


@njit(**OPTIONS)
def pack(right, bias, panel):
    """Copy columns [K, COLUMNS or less] of a right matrix to the first rows of `panel` [.., COLUMNS], then the bias."""
    depth, count = right.shape
    if count < COLUMNS:
        panel[: depth + 1] = F(0)
    if count == COLUMNS and right.strides[1] == 4:
        for k in range(depth):
            row = k * (right.strides[0] // 4)
            store(panel, k * COLUMNS, load(right, row))
            store(panel, k * COLUMNS + WIDTH, load(right, row + WIDTH))
    else:
        for c in range(count):
            for k in range(depth):
                panel[k, c] = right[k, c]
    if len(bias):
        panel[depth, :count] = bias
    else:
        panel[depth] = F(0)


@njit(**OPTIONS)
def tile(left, panel, out, row, column, more):
    """left [up to ROWS, K] @ the panel's first K rows, + the row after them, into `out` from (row, column) on.

    `more`: the product is added to `out` instead, without that row. If `left` has fewer rows, its last one is repeated.
    """
    (rows, depth), width = left.shape, out.shape[1]
    step, after = left.strides[0] // 4, left.strides[1] // 4
    two, three, four, five, six = min(1, rows - 1), min(2, rows - 1), min(3, rows - 1), min(4, rows - 1), rows - 1
    a, b, c, d, e, f = 0, two * step, three * step, four * step, five * step, six * step
    at = row * width + column
    to_b, to_c, to_d = at + two * width, at + three * width, at + four * width
    to_e, to_f = at + five * width, at + six * width
    if more:
        a0, a1 = load(out, at), load(out, at + WIDTH)
        b0, b1 = load(out, to_b), load(out, to_b + WIDTH)
        c0, c1 = load(out, to_c), load(out, to_c + WIDTH)
        d0, d1 = load(out, to_d), load(out, to_d + WIDTH)
        e0, e1 = load(out, to_e), load(out, to_e + WIDTH)
        f0, f1 = load(out, to_f), load(out, to_f + WIDTH)
    else:
        a0 = b0 = c0 = d0 = e0 = f0 = load(panel, depth * COLUMNS)
        a1 = b1 = c1 = d1 = e1 = f1 = load(panel, depth * COLUMNS + WIDTH)
    for k in range(depth):
        x, y = load(panel, k * COLUMNS), load(panel, k * COLUMNS + WIDTH)
        w = splat_of(left, a)
        a0, a1 = add_product(w, x, a0), add_product(w, y, a1)
        w = splat_of(left, b)
        b0, b1 = add_product(w, x, b0), add_product(w, y, b1)
        w = splat_of(left, c)
        c0, c1 = add_product(w, x, c0), add_product(w, y, c1)
        w = splat_of(left, d)
        d0, d1 = add_product(w, x, d0), add_product(w, y, d1)
        w = splat_of(left, e)
        e0, e1 = add_product(w, x, e0), add_product(w, y, e1)
        w = splat_of(left, f)
        f0, f1 = add_product(w, x, f0), add_product(w, y, f1)
        a, b, c, d, e, f = a + after, b + after, c + after, d + after, e + after, f + after
    _two(out, at, a0, a1)
    _two(out, to_b, b0, b1)
    _two(out, to_c, c0, c1)
    _two(out, to_d, d0, d1)
    _two(out, to_e, e0, e1)
    _two(out, to_f, f0, f1)


@njit(**OPTIONS)
def _two(out, at, one, other):
    store(out, at, one)
    store(out, at + WIDTH, other)


# One compilation for any memory layout of the matrices: strides are read anyway.
@njit("void(f4[:, :], f4[:, :], f4[:], f4[:, ::1], i8)", **OPTIONS)
def product(left, right, bias, out, column):
    """Columns of `out` [M, ..] from `column` on = left [M, K] @ right [K, N] + bias [N], which may be empty: zeros."""
    (rows, inner), width = left.shape, right.shape[1]
    # A narrow product computes columns after the last one too.
    to = np.empty((rows, COLUMNS), np.float32) if width < COLUMNS else out
    begin = 0 if width < COLUMNS else column
    panel = np.empty((DEPTH + 1, COLUMNS), np.float32)
    for start in range(0, width, COLUMNS):
        first = max(0, min(start, width - COLUMNS))  # the last columns may repeat earlier ones
        for k in range(0, inner, DEPTH):
            depth = min(DEPTH, inner - k)
            pack(right[k : k + depth, first : first + COLUMNS], bias[first : first + COLUMNS], panel)
            for row in range(0, rows, ROWS):
                tile(left[row : row + ROWS, k : k + depth], panel, to, row, begin + first, k > 0)
    if width < COLUMNS:
        out[:, column : column + width] = to[:, :width]


@njit(**OPTIONS)
def products(left, right, bias, out, column):
    """`product` of each matrix of a stack."""
    for s in range(len(out)):
        product(left[s], right[s], bias, out[s], column)
