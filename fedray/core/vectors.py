"""Operations on long vectors that pass over memory once: in blocks that stay in the processor's cache."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
BLOCK = 1 << 16  # numbers
NORM_BLOCK = 1 << 15  # numbers; another size would give other bits
LINE = 16  # numbers in a cache line


def add(total: Vector, vector: Vector, scale: float = 1.0) -> None:
    """Add scale * vector to a total."""
    if scale == 1.0:
        total += vector
        return
    factor, scaled = np.float32(scale), np.empty(min(BLOCK, total.size), np.float32)
    for part in _blocks(total.size):
        block = total[part]
        block += np.multiply(vector[part], factor, out=scaled[: block.size])


def norm(vector: Vector) -> float:
    """The Euclidean norm. Not by BLAS, whose bits depend on the number of its threads."""
    wide, squares = np.empty(min(NORM_BLOCK, vector.size)), 0.0
    for part in _blocks(vector.size, NORM_BLOCK):
        block = vector[part]
        squares += float(np.square(block, dtype=np.float64, out=wide[: block.size]).sum())
    return math.sqrt(squares)


def finite(numbers: npt.NDArray[Any]) -> bool:
    """Whether no number of an array is NaN or infinite."""
    if numbers.ndim != 1 or numbers.dtype not in (np.float32, np.float64):
        return bool(np.isfinite(numbers).all())
    with np.errstate(all="ignore"):
        for part in _blocks(numbers.size):
            block = numbers[part]
            # The sum of squares is infinite also for huge numbers, which are rare: look closer.
            if not math.isfinite(np.dot(block, block)) and not np.isfinite(block).all():
                return False
    return True


def writeable(vector: Vector) -> Vector:
    """The vector, or a copy if it is read-only, as in the object store."""
    return vector if vector.flags.writeable else copied(vector)


def copied(vector: Vector) -> Vector:
    """A copy that is fast to add to: it begins at a cache line.

    numpy's long arrays begin 16 bytes after one, so that every wide load and store touches two lines.
    """
    copy = _lined(np.empty(vector.size + LINE, vector.dtype), vector.size)
    copy[:] = vector
    return copy


class Spare:
    """Memory for results: it is given again once nobody else has it, since fresh memory costs as much as a sum."""

    def __init__(self) -> None:
        self._whole: Vector = np.empty(LINE, np.float32)
        self._alone = sys.getrefcount(self._whole)

    def take(self, size: int) -> Vector:
        """A vector [size] with any contents."""
        if self._whole.size != size + LINE or sys.getrefcount(self._whole) > self._alone:
            self._whole = np.empty(size + LINE, np.float32)
        return _lined(self._whole, size)  # a view: whoever has it, or a view of it, has `_whole`


def _lined(whole: Vector, size: int) -> Vector:
    """The part [size] of an array that begins at a cache line."""
    start = -(whole.ctypes.data // whole.itemsize) % LINE
    return whole[start : start + size]


def _blocks(size: int, block: int = BLOCK) -> Iterator[slice]:
    return (slice(start, start + block) for start in range(0, size, block))
