"""Loops of `clipping` and `rotation`, compiled by numba. Import this file only when needed: numba takes half a second.

They are compiled anew in each process, in half a second to two seconds: `core` has no cache to keep them in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

PLAIN, TILE = 1 << 15, 16  # bytes up to which a transposition needs no tiles; the side of a tile
BLOCK = 512  # words of 64 random bits in a block, which stays in the cache
OPTIONS: dict[str, Any] = {"fastmath": True, "error_model": "numpy", "nogil": True}


@njit(**OPTIONS)
def butterflies(x, width):
    """Hadamard's transform, not normalised, over the first axis of [a power of two, width], stored flat in `x`."""
    count, step = len(x) // width, 1
    while 4 * step <= count:  # two steps in one pass over memory
        for start in range(0, count, 4 * step):
            for i in range(start, start + step):
                first, second = x[i * width : (i + 1) * width], x[(i + step) * width : (i + step + 1) * width]
                third, fourth = (
                    x[(i + 2 * step) * width : (i + 2 * step + 1) * width],
                    x[(i + 3 * step) * width : (i + 3 * step + 1) * width],
                )
                for j in range(width):
                    a, b = first[j] + second[j], first[j] - second[j]
                    c, d = third[j] + fourth[j], third[j] - fourth[j]
                    first[j], second[j], third[j], fourth[j] = a + c, b + d, a - c, b - d
        step *= 4
    if step < count:
        for i in range(step):
            first, second = x[i * width : (i + 1) * width], x[(i + step) * width : (i + step + 1) * width]
            for j in range(width):
                first[j], second[j] = first[j] + second[j], first[j] - second[j]


@njit(**OPTIONS)
def turn(x, rows, columns, out):
    """Write the transpose of [rows, columns], stored flat in `x`, to `out`.

    A large one is written tile by tile: otherwise the places of a column would compete for a few cache lines.
    """
    if x.nbytes <= PLAIN:
        for i in range(rows):
            for j in range(columns):
                out[j * rows + i] = x[i * columns + j]
        return
    for top in range(0, rows, TILE):
        for left in range(0, columns, TILE):
            for i in range(top, min(top + TILE, rows)):
                for j in range(left, min(left + TILE, columns)):
                    out[j * rows + i] = x[i * columns + j]


@njit(**OPTIONS)
def hadamard(values):
    """Hadamard's transform, not normalised, of each row of [rows, a power of two], in place.

    Each row is treated as a table with about as many rows as columns: butterflies over its rows and, transposed, over
    its columns go through memory in order.
    """
    rows, columns = values.shape
    width = 1
    while width * width < columns:
        width *= 2
    count = columns // width
    turned = np.empty(columns, values.dtype)
    for r in range(rows):
        row = values[r]
        butterflies(row, width)
        turn(row, count, width, turned)
        butterflies(turned, count)
        turn(turned, width, count, row)


@njit(**OPTIONS)
def squares(values):
    """The sum of the squares, in float64."""
    total = 0.0
    for i in range(len(values)):  # thirty times as fast as a loop over the values themselves
        total += np.float64(values[i]) * np.float64(values[i])
    return total


@njit(**OPTIONS)
def add_squares(values, places, groups, sums):
    """Add the squares of each stretch of `values`, from one of `places` to the next, to the sum of its group."""
    for s in range(len(groups)):
        sums[groups[s]] += squares(values[places[s] : places[s + 1]])


@njit(**OPTIONS)
def times(values, factor, out):
    """Write `values` times `factor` to `out`."""
    for i in range(len(values)):
        out[i] = values[i] * factor


@njit(**OPTIONS)
def scaled(values, places, groups, factors, out):
    """Write each stretch of `values` times the factor of its group to `out`."""
    for s in range(len(groups)):
        times(values[places[s] : places[s + 1]], factors[groups[s]], out[places[s] : places[s + 1]])


@njit(**OPTIONS)
def random_words(seed, first, out):
    """Fill each word of `out` with 64 random bits, from word `first` of a seed's stream on.

    SplitMix64: Steele, Lea, Flood. Fast Splittable Pseudorandom Number Generators. OOPSLA 2014. Each word follows from
    its place alone, so the loop is vectorised and takes a tenth of the time of numpy's generators.
    """
    for i in range(len(out)):
        word = seed + np.uint64(first + i + 1) * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = word ^ (word >> np.uint64(31))


@njit(**OPTIONS)
def rounded_block(values, factor, draws, modulus, out):
    """Write floor(values factor + draws / 2^32) modulo a power of two; return the sum of squares before the modulo."""
    total = 0.0
    for i in range(len(values)):
        number = np.floor(np.float64(values[i]) * factor + np.float64(draws[i]) * 2.0**-32)
        total += number * number
        number -= np.floor(number / modulus) * modulus
        out[i] = np.uint32(np.int32(number - 2147483648.0)) ^ np.uint32(2147483648)  # a signed conversion is vectorised
    return total


@njit(**OPTIONS)
def rounded(values, factor, seed, modulus, out):
    """Apply `rounded_block` to all values, with draws from a seed; return the sum of squares."""
    total, words = 0.0, np.empty(BLOCK, np.uint64)
    draws = words.view(np.uint32)
    for start in range(0, len(values), 2 * BLOCK):
        random_words(seed, start // 2, words)
        stop = min(start + 2 * BLOCK, len(values))
        total += rounded_block(values[start:stop], factor, draws, modulus, out[start:stop])
    return total
