"""Codes of vectors give, for any shape and numbers, as many bytes as announced, and an error within the bound."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedray.core.compression.codes import Half, Int4, Int8, Steps, blocks
from fedray.core.compression.links import Link
from fedray.core.compression.sparse import TopK, decode_positions, encode_positions, positions_size

CODES = st.sampled_from([Half(), Int8(), Int4(), TopK(0.05), TopK(0.4, Int8()), TopK(0.9, Half())])
SHAPES = st.lists(st.integers(0, 700), max_size=6).map(tuple)


def drawn(count: int, seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count, np.float32) * np.float32(2.0**size)


@given(CODES, SHAPES, st.integers(0, 30), st.integers(0), st.integers(-20, 10))
def test_as_many_bytes_as_announced(code: Half, shape: tuple[int, ...], rest: int, seed: int, size: int) -> None:
    link, vector = Link(code, shape), drawn(sum(shape) + rest, seed, size)
    for generator in (None, np.random.default_rng(seed)):
        data = link.encode(vector, generator)
        assert len(data) == link.size(vector.size)
        found = link.decode(data, vector.size)
        assert np.isfinite(found).all() and np.array_equal(found[sum(shape) :], vector[sum(shape) :])


@given(st.sampled_from([Int8(), Int4()]), SHAPES, st.integers(0), st.integers(-140, 126))
def test_no_number_is_off_by_more_than_half_a_step(code: Steps, shape: tuple[int, ...], seed: int, size: int) -> None:
    vector = np.clip(drawn(sum(shape), seed, size), -1e38, 1e38)
    starts, lengths = blocks(shape, code.block)
    if vector.size:
        steps = np.repeat(np.maximum.reduceat(np.abs(vector), starts).astype(np.float64) / code.most, lengths)
        error = np.abs(code.decode(code.encode(vector, shape), shape).astype(np.float64) - vector)
        assert (error <= 0.501 * steps + code.most * 1e-45).all()


@given(st.integers(0, 3000), st.data())
def test_positions_come_back(of: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, of))
    positions = np.sort(np.random.default_rng(count).permutation(of)[:count])
    coded = encode_positions(positions, of)
    assert len(coded) == positions_size(count, of)
    assert np.array_equal(decode_positions(coded, count, of), positions)


@given(st.integers(1, 2000), st.integers(0), st.floats(0.001, 1.0))
def test_the_largest_are_kept(count: int, seed: int, share: float) -> None:
    code, vector = TopK(share), np.round(drawn(count, seed, 1), 1)  # rounded, so that values are equal
    found = code.decode(code.encode(vector, (count,)), (count,))
    kept = code.kept(count)
    assert np.array_equal(np.sort(np.abs(found)), np.sort(np.where(_ranks(vector) < kept, np.abs(vector), 0)))
    assert (found[found != 0] == vector[found != 0]).all()


def _ranks(vector: np.ndarray) -> np.ndarray:
    """The rank of each absolute value, 0 for the largest; of equal values, the first ranks higher."""
    ranks = np.empty(len(vector), np.int64)
    ranks[np.argsort(-np.abs(vector), kind="stable")] = np.arange(len(vector))
    return ranks
