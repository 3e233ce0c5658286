"""Operations in blocks give what plain numpy gives."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.core import vectors
from fedray.core.vectors import Spare

SIZES = [0, 1, 100, vectors.BLOCK, vectors.BLOCK + 1, 3 * vectors.BLOCK - 7]


def drawn(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [1.0, 0.3, -2.5e-8])
def test_adding_has_the_bits_of_plain_numpy(size: int, scale: float) -> None:
    total, vector = drawn(size), drawn(size, 1)
    expected = total + np.float32(scale) * vector
    vectors.add(total, vector, scale)
    assert total.tobytes() == expected.tobytes()


def test_whole_numbers_wrap_around() -> None:
    total = np.array([2**32 - 1, 5], np.uint32)
    vectors.add(total, np.array([2, 2], np.uint32))  # type: ignore[arg-type]
    assert total.tolist() == [1, 7]


@pytest.mark.parametrize("size", SIZES)
def test_the_norm(size: int) -> None:
    vector = drawn(size)
    assert vectors.norm(vector) == pytest.approx(float(np.linalg.norm(vector.astype(np.float64))), rel=1e-12)


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(size: int, wrong: float) -> None:
    for vector in (drawn(size), np.full(size, 3e38, np.float32)):
        assert vectors.finite(vector)
        vector[size - 1] = wrong
        assert not vectors.finite(vector)
    assert not vectors.finite(np.full((2, 2), wrong)) and vectors.finite(np.arange(3))


def test_memory_serves_again_once_nobody_has_it() -> None:
    spare = Spare()
    first = spare.take(5)
    place = first.ctypes.data
    assert spare.take(5).ctypes.data != place
    del first
    second = spare.take(5)
    place, view = second.ctypes.data, second[1:]
    del second
    assert spare.take(5).ctypes.data != place, "a view has it"
    del view
    place = spare.take(5).ctypes.data
    assert spare.take(5).ctypes.data == place
