"""A state is read back as it was written, and a damaged one is refused or unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedray.storage import serialize

NUMBERS = st.floats(width=32, allow_nan=False)
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
LEAVES |= st.binary(min_size=1, max_size=20)
LEAVES |= arrays(np.float32, array_shapes(max_dims=3, max_side=4), elements=NUMBERS)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8
)
STATES = st.dictionaries(st.text(max_size=8), VALUES, max_size=4)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(STATES)
def test_a_state_comes_back(state: dict[str, Any]) -> None:
    assert same(serialize.loads(serialize.dumps(state), "x"), state)


@given(STATES, st.data())
def test_a_flipped_bit_is_refused_or_changes_nothing(state: dict[str, Any], data: st.DataObject) -> None:
    whole = bytearray(serialize.dumps(state))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = serialize.loads(bytes(whole), "state.pt")
    except ValueError as error:
        assert str(error).startswith("state.pt: ")
    else:
        assert same(found, state)  # the bit is not in the data, but in a time or padding


@given(STATES, st.data())
def test_a_cut_state_is_refused(state: dict[str, Any], data: st.DataObject) -> None:
    whole = serialize.dumps(state)
    with pytest.raises(ValueError, match=r"^state\.pt: "):
        serialize.loads(whole[: data.draw(st.integers(0, len(whole) - 1))], "state.pt")


@given(st.binary(max_size=300))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^state\.pt: "):
        serialize.loads(data, "state.pt")


def test_what_could_be_written_but_not_read_is_refused_when_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"state\['a'\]\[0\]: a state holds no empty bytes"):
        serialize.dumps({"a": [b""]})
    with pytest.raises(TypeError, match=r"extra\['g'\]\['f'\]: a state holds arrays, .* not function"):
        serialize.plain({"g": {"f": lambda: None}}, "extra")
    with pytest.raises(TypeError, match="state is a dict, such as .*, not ndarray"):
        serialize.dumps(np.zeros(3))  # type: ignore[arg-type]
