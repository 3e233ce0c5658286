"""The rotation of updates against the matrices that define it, and its rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from fedray.core.privacy import loops
from fedray.core.privacy.rotation import norm, rotate, rotate_back, rounded, shape_for
from fedray.core.seeds import numpy_generator


@pytest.mark.parametrize("size", [1, 5, 31, 64, 100, 200, 333])
def test_it_is_the_product_of_both_transforms(size: int) -> None:
    rows, columns = shape_for(size)
    length = rows * columns
    assert size <= length <= size + size / 32 and columns == 1 << (columns.bit_length() - 1)
    matrix = np.stack([rotate(unit.reshape(rows, columns)).ravel() for unit in np.eye(length)], axis=1)
    across, within = scipy.fft.dct(np.eye(rows), norm="ortho", axis=0), scipy.linalg.hadamard(columns)
    assert matrix == pytest.approx(np.kron(across, within / math.sqrt(columns)), abs=1e-12)
    assert np.abs(matrix).max() <= math.sqrt(2 / length) * (1 + 1e-12), "a number of the update stands out"


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 2, 8, 16, 32, 4096, 8192])
def test_it_comes_back(columns: int, kind: type) -> None:
    values = numpy_generator(columns).standard_normal((33, columns)).astype(kind)
    turned = rotate(values.copy())
    assert turned.dtype == kind and norm(turned.ravel()) == pytest.approx(np.linalg.norm(values), rel=1e-6)
    assert rotate_back(turned.copy()) == pytest.approx(values, abs=2e-6 if kind is np.float32 else 1e-13)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [4096, 8192, 16384])  # transposed whole and in tiles
def test_long_rows_have_hadamards_transform(columns: int, kind: type) -> None:
    values = numpy_generator(columns).standard_normal((2, columns)).astype(kind)
    left, right = scipy.linalg.hadamard(64), scipy.linalg.hadamard(columns // 64)
    expected = left @ np.float64(values).reshape(2, 64, -1) @ right  # the Kronecker product of both
    loops.hadamard(values)
    assert values == pytest.approx(expected.reshape(2, columns), abs=1e-2 if kind is np.float32 else 1e-10)


def test_random_words_are_those_of_splitmix64() -> None:
    found = np.empty(3, np.uint64)
    loops.random_words(np.uint64(1234567), 0, found)
    assert found[0] == 6457827717110365317
    whole = np.empty(5, np.uint64)
    loops.random_words(np.uint64(1234567), 0, whole)
    loops.random_words(np.uint64(1234567), 2, found)
    assert (found == whole[2:]).all()


@pytest.mark.parametrize("bits", [8, 20, 31, 32])
def test_numbers_are_rounded_to_a_neighbour_modulo_two_to_the_bits(bits: int) -> None:
    values = (2.0**bits * numpy_generator(bits).uniform(-1.5, 1.5, 10_001)).astype(np.float32)
    found, squares = rounded(values, 1.25, bits, numpy_generator(1))
    exact = np.float64(values) * 1.25
    steps = (found.astype(np.float64) - np.floor(exact)) % 2.0**bits
    assert found.dtype == np.uint32 and int(found.max()) < 2**bits and set(steps) <= {0.0, 1.0}
    assert squares == pytest.approx(np.square(np.floor(exact) + steps).sum(), rel=1e-9)
    assert (steps[exact == np.floor(exact)] == 0).all(), "a whole number stays"


def test_rounding_has_no_bias() -> None:
    values = np.repeat(np.array([0.1, 0.5, 0.75, -0.3], np.float32), 40_000)
    found, _ = rounded(values, 1.0, 20, numpy_generator(3))
    signed = (found.astype(np.int64) + 2**19) % 2**20 - 2**19
    means = signed.reshape(4, -1).mean(axis=1)
    assert means == pytest.approx([0.1, 0.5, 0.75, -0.3], abs=4 * 0.5 / math.sqrt(40_000))


def test_each_block_is_rounded_by_draws_of_its_own() -> None:
    found, _ = rounded(np.full(20 * 2 * loops.BLOCK, 0.5, np.float32), 1.0, 20, numpy_generator(3))
    assert len(np.unique(found.reshape(20, -1), axis=0)) == 20
