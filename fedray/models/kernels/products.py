"""Matrix products with a matrix whose rows begin at given offsets of an array, and may overlap.

A convolution becomes such a product, without any copies. The loops compute 12 registers of sums at once.
"""

from __future__ import annotations

from numba import njit

from fedray.models.kernels.registers import WIDTH, add_product, load, splat, store, total
from fedray.models.kernels.scalars import OPTIONS, F

ROWS, COLUMNS = 4, 3 * WIDTH  # of a product that are computed together
TILE = 2048  # columns whose dot products are added up while they are in the processor's cache


@njit(**OPTIONS)
def product(left, flat, offsets, bias, out, size):
    """The first `size` columns of `out` [4 G, N] = bias + left x right; those up to a multiple of COLUMNS change too.

    Row k of the right matrix begins at offsets[k] of `flat`, and `offsets` end with -1. `left` is [G, K, 4]: row
    4 g + i of the left matrix is left[g, :, i]. `bias` is [4 G].
    """
    for p in range(0, size, COLUMNS):
        for g in range(len(left)):
            row = ROWS * g
            a0 = a1 = a2 = splat(bias[row])
            b0 = b1 = b2 = splat(bias[row + 1])
            c0 = c1 = c2 = splat(bias[row + 2])
            d0 = d1 = d2 = splat(bias[row + 3])
            weights, k, at = left[g], 0, offsets[0]
            while at >= 0:  # a loop whose end is not known in advance is not unrolled, so the registers suffice
                x, y, z = load(flat, at + p), load(flat, at + p + WIDTH), load(flat, at + p + 2 * WIDTH)
                w = splat(weights[k, 0])
                a0, a1, a2 = add_product(w, x, a0), add_product(w, y, a1), add_product(w, z, a2)
                w = splat(weights[k, 1])
                b0, b1, b2 = add_product(w, x, b0), add_product(w, y, b1), add_product(w, z, b2)
                w = splat(weights[k, 2])
                c0, c1, c2 = add_product(w, x, c0), add_product(w, y, c1), add_product(w, z, c2)
                w = splat(weights[k, 3])
                d0, d1, d2 = add_product(w, x, d0), add_product(w, y, d1), add_product(w, z, d2)
                k += 1
                at = offsets[k]
            _three(out[row], p, a0, a1, a2)
            _three(out[row + 1], p, b0, b1, b2)
            _three(out[row + 2], p, c0, c1, c2)
            _three(out[row + 3], p, d0, d1, d2)


@njit(**OPTIONS)
def add_dots(left, first, flat, offsets, size, out):
    """Adds left x right' to `out` [4 G, 3 K]: dot products over `size` columns, rounded up to whole registers.

    Columns of `left` [4 G, N] are counted from `first` on; those after `size` must be zeros. Row k of the right matrix
    begins at offsets[k] of `flat`; a -1 after the offsets is not read.
    """
    for start in range(0, size, TILE):
        end = min(start + TILE, size)
        for row in range(0, len(out), ROWS):
            one, two, three, four = left[row], left[row + 1], left[row + 2], left[row + 3]
            for k in range(0, out.shape[1], 3):
                a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = splat(F(0))
                i, j, m = offsets[k], offsets[k + 1], offsets[k + 2]
                for p in range(start, end, WIDTH):
                    x, y, z = load(flat, i + p), load(flat, j + p), load(flat, m + p)
                    w = load(one, first + p)
                    a0, a1, a2 = add_product(w, x, a0), add_product(w, y, a1), add_product(w, z, a2)
                    w = load(two, first + p)
                    b0, b1, b2 = add_product(w, x, b0), add_product(w, y, b1), add_product(w, z, b2)
                    w = load(three, first + p)
                    c0, c1, c2 = add_product(w, x, c0), add_product(w, y, c1), add_product(w, z, c2)
                    w = load(four, first + p)
                    d0, d1, d2 = add_product(w, x, d0), add_product(w, y, d1), add_product(w, z, d2)
                _add_three(out[row], k, a0, a1, a2)
                _add_three(out[row + 1], k, b0, b1, b2)
                _add_three(out[row + 2], k, c0, c1, c2)
                _add_three(out[row + 3], k, d0, d1, d2)


@njit(**OPTIONS)
def _three(row, p, a, b, c):
    store(row, p, a)
    store(row, p + WIDTH, b)
    store(row, p + 2 * WIDTH, c)


@njit(**OPTIONS)
def _add_three(row, k, a, b, c):
    row[k] += total(a)
    row[k + 1] += total(b)
    row[k + 2] += total(c)
