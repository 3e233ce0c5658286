"""Operations on long vectors that pass over memory once: in blocks that stay in the processor's cache."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
BLOCK = 1 << 15  # numbers


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
    wide, squares = np.empty(min(BLOCK, vector.size)), 0.0
    for part in _blocks(vector.size):
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
    return vector if vector.flags.writeable else vector.copy()


class Spare:
    """Memory for results: it is given again once nobody else has it, since fresh memory costs as much as a sum."""

    def __init__(self) -> None:
        self._vector: Vector = np.empty(0, np.float32)
        self._alone = sys.getrefcount(self._vector)

    def take(self, size: int) -> Vector:
        """A vector [size] with any contents."""
        if self._vector.size != size or sys.getrefcount(self._vector) > self._alone:
            self._vector = np.empty(size, np.float32)
        return self._vector


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))
