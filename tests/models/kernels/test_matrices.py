"""The compiled matrix products are those of torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedray.models.kernels.matrices import COLUMNS, DEPTH, ROWS, multiply
from tests.models.kernels.test_recurrent import assert_near

SHAPES = [
    (1, 1, 1),
    (ROWS, 16, COLUMNS),
    (ROWS + 1, DEPTH + 1, COLUMNS + 1),
    (2 * ROWS - 1, 3 * DEPTH, COLUMNS - 1),
    (64, 2 * DEPTH - 1, 120),
]


def matrix(*shape: int, transposed: bool) -> Tensor:
    return torch.randn(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2) if transposed else torch.randn(*shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products_are_those_of_torch(shape: tuple[int, int, int], left: bool, right: bool) -> None:
    torch.manual_seed(0)
    rows, inner, width = shape
    a, b, bias = matrix(rows, inner, transposed=left), matrix(inner, width, transposed=right), torch.randn(width)
    assert_near(multiply(a, b).double(), a.double() @ b.double())
    assert_near(multiply(a, b, bias).double(), a.double() @ b.double() + bias.double())
    a, b = matrix(3, rows, inner, transposed=left), matrix(3, inner, width, transposed=right)
    assert_near(multiply(a, b).double(), a.double() @ b.double())


def test_every_second_column_is_a_matrix_too() -> None:
    left, right = torch.randn(9, 40)[:, ::2], torch.randn(20, 2 * COLUMNS)[:, ::2]
    assert_near(multiply(left, right), left.contiguous() @ right.contiguous())


def test_what_is_not_a_number_stays_so() -> None:
    left, right = torch.randn(8, 5), torch.randn(5, 40)
    left[2, 3], right[1, 7] = torch.nan, torch.inf
    found = multiply(left, right)
    assert found[2].isnan().all()
    assert torch.equal(found.isfinite(), (left @ right).isfinite())
