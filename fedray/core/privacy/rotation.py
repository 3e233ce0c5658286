"""Rotate an update, so that none of its numbers stands out, and round its numbers.

Kairouz, Liu, Steinke (ICML 2021) rotate by random signs and Walsh-Hadamard's transform, which needs a power of two: up
to twice the numbers. Here the numbers fill 16 to 63 rows, whose length is a power of two. Hadamard's transform runs
within each row, in compiled loops, and a cosine transform across the rows, as a product with a small matrix. No entry
of the whole matrix is above sqrt(2 / d); those of Hadamard's alone are sqrt(1 / d).
"""

from __future__ import annotations

import functools
import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import scipy
import torch

ROWS, WASTE = 16, 32  # the fewest rows, if there are enough numbers; at most one place per 32 numbers is left over
Float = TypeVar("Float", np.float32, np.float64)


def shape_for(size: int) -> tuple[int, int]:
    """Rows and columns for `size` numbers: 16 to 63 rows, whose length is a power of two; few places are left over."""
    columns = 1 << max(0, (size // ROWS).bit_length() - 1)
    if WASTE * (-size % columns) > size:
        columns = max(1, columns // 2)
    return -(-size // columns), columns


def rotate(values: npt.NDArray[Float]) -> npt.NDArray[Float]:
    """The orthonormal transform of `values` [rows, columns], which it overwrites. Columns: a power of two."""
    from fedray.core.privacy import loops

    loops.hadamard(values)
    return _product(_across(*values.shape), values)


def rotate_back(values: npt.NDArray[Float]) -> npt.NDArray[Float]:
    """The inverse of `rotate`."""
    from fedray.core.privacy import loops

    back = _product(_across(*values.shape).T, values)
    loops.hadamard(back)
    return back


def norm(values: npt.NDArray[Float]) -> float:
    """The Euclidean norm of [d], without BLAS, whose bits depend on the number of threads."""
    from fedray.core.privacy import loops

    return math.sqrt(loops.squares(values))


def rounded(
    values: npt.NDArray[np.float32], factor: float, bits: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.uint32], float]:
    """Values [d] times `factor`, each rounded up or down at random without bias, modulo 2^bits.

    Returns the numbers, and the square of their norm before the modulo.
    """
    from fedray.core.privacy import loops

    numbers, seed = np.empty(len(values), np.uint32), np.uint64(generator.bit_generator.random_raw())
    return numbers, float(loops.rounded(values, factor, seed, 2.0**bits, numbers))


def _product(matrix: npt.NDArray[np.float64], values: npt.NDArray[Float]) -> npt.NDArray[Float]:
    """The matrix product, by torch, which has one thread here: numpy's bits depend on the number of threads."""
    product: npt.NDArray[Float] = torch.mm(
        torch.from_numpy(matrix.astype(values.dtype)), torch.from_numpy(values)
    ).numpy()
    return product


@functools.cache
def _across(rows: int, columns: int) -> npt.NDArray[np.float64]:
    """The cosine transform across the rows, with the factor that makes Hadamard's orthonormal: [rows, rows]."""
    across: npt.NDArray[np.float64] = scipy.fft.dct(np.eye(rows), norm="ortho", axis=0) / math.sqrt(columns)
    return across
