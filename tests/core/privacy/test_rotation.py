"""The rotation of updates against the matrices that define it, and its rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

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
