"""Top-k: which numbers are kept, and the code of their positions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedray.core.compression.settings import TopKUpload
from fedray.core.compression.sparse import TopK, decode_positions, encode_positions, largest, positions_size

CASES = [(0, 0), (0, 5), (1, 1), (1, 2), (1, 1000), (5, 5), (3, 100), (50, 100), (99, 100), (500, 10_000), (9, 65_536)]


@pytest.mark.parametrize(("count", "of"), CASES)
def test_positions_come_back(count: int, of: int) -> None:
    random = np.sort(np.random.default_rng(count).choice(of, count, replace=False)) if of else np.arange(0)
    for positions in (random, np.arange(count), np.arange(of - count, of)):
        data = encode_positions(positions, of)
        assert len(data) == positions_size(count, of) <= (of + 7) // 8
        assert decode_positions(data, count, of).tolist() == positions.tolist()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.2])
def test_positions_take_little_more_than_their_entropy(share: float) -> None:
    of = 178_083
    count = round(share * of)
    entropy = (math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)) / math.log(2)
    assert entropy < 8 * positions_size(count, of) < entropy + 0.7 * count
    assert positions_size(count, of) < min(of / 8, count * math.ceil(math.log2(of)) / 8), "bitmap, plain indexes"


def test_the_largest_are_kept_and_of_equal_ones_the_first() -> None:
    vector = np.array([0, -3, 1, 3, -1, 2, 1], np.float32)
    assert largest(vector, 3).tolist() == [1, 3, 5]
    assert largest(vector, 4).tolist() == [1, 2, 3, 5]
    assert largest(vector, 7).tolist() == list(range(7))
    assert largest(np.zeros(4, np.float32), 2).tolist() == [0, 1]
    code = TopK(0.5)
    assert code.kept(7) == 4  # round(3.5) goes to the even number
    assert code.decode(code.encode(vector, (7,)), (7,)).tolist() == [0, -3, 1, 3, 0, 2, 0]


def test_at_least_one_number_is_kept() -> None:
    assert TopK(0.01).kept(10) == 1 and TopK(0.01).kept(0) == 0


def test_values_that_are_not_known() -> None:
    with pytest.raises(ValueError, match="values must be one of float32, half, int8, not 'int2'"):
        TopKUpload(values="int2")
