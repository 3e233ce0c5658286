"""Any nest of plain values is read back from its pickle, and any bytes are read or refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedray.data.devices import plain_pickle

PROTOCOLS = st.integers(0, 5)
NUMBERS = st.booleans() | st.integers() | st.integers(-(2**300), 2**300) | st.floats()
# No bytes, which protocols 0 to 2 write as a function call.
ATOMS = st.none() | NUMBERS | st.text() | st.just("\ud800")
KEYS = NUMBERS | st.text() | st.tuples(st.text(), st.integers())
NESTS = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner, max_size=5).map(tuple) | st.tuples(inner)
    ),
)


def same(left: Any, right: Any) -> bool:
    """Whether values and types are equal, -0.0 and NaN included."""
    return repr(left) == repr(right)


@given(NESTS, PROTOCOLS)
def test_any_nest_comes_back(tmp_path: Path, value: Any, protocol: int) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, protocol))
    assert same(plain_pickle.read(tmp_path / "a.pkl"), value)


@given(st.recursive(st.binary(), lambda inner: st.lists(inner, max_size=3)), st.integers(3, 5))
def test_bytes_come_back(tmp_path: Path, value: Any, protocol: int) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, protocol))
    assert plain_pickle.read(tmp_path / "a.pkl") == value


@given(NESTS, PROTOCOLS)
def test_a_value_twice_comes_back_twice(tmp_path: Path, value: Any, protocol: int) -> None:
    twice = [value, {"again": value}]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(twice, protocol))
    assert same(plain_pickle.read(tmp_path / "a.pkl"), twice)


OPCODES = st.lists(
    st.sampled_from([bytes([code]) for code in range(256)] + [b"K\x01", b"]", b"}", b"(", b"q\x00", b"h\x00"])
)


@given(OPCODES)
def test_any_bytes_are_read_or_refused(tmp_path: Path, pieces: list[bytes]) -> None:
    (tmp_path / "a.pkl").write_bytes(b"".join(pieces) + b".")
    try:
        plain_pickle.read(tmp_path / "a.pkl")
    except ValueError as error:
        assert "a.pkl" in str(error)
