"""Pickles of plain values are read. Opcodes that call or import code are refused by name and byte, and not run."""

from __future__ import annotations

import collections
import copyreg
import fractions
import io
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from fedray.data.devices import plain_pickle

MARKED = "marked"


class Calls:
    """Unpickling it makes a file."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARKED}",)


class Plain:
    """An ordinary object with a state."""

    def __init__(self) -> None:
        self.number = 1


class Persistent(pickle.Pickler):
    """Writes every fraction as a persistent id."""

    def persistent_id(self, obj: Any) -> Any:
        return "1" if isinstance(obj, fractions.Fraction) else None


def dumped(value: Any, protocol: int = 4) -> bytes:
    return pickle.dumps(value, protocol)


def persistent(protocol: int) -> bytes:
    file = io.BytesIO()
    Persistent(file, protocol).dump([fractions.Fraction(1, 2)])
    return file.getvalue()


def extension(code: int) -> bytes:
    copyreg.add_extension("collections", "OrderedDict", code)
    try:
        return pickle.dumps(collections.OrderedDict, 2)
    finally:
        copyreg.remove_extension("collections", "OrderedDict", code)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "trace.pkl"


def refusal(place: Path, data: bytes) -> str:
    place.write_bytes(data)
    with pytest.raises(ValueError) as refused:
        plain_pickle.read(place)
    assert str(refused.value).startswith(f"{place}: ") and not Path(MARKED).exists()
    return str(refused.value)


def first(data: bytes, name: str) -> int:
    """Return the offset in bytes of the first opcode of this name."""
    return next(at or 0 for operation, _, at in pickletools.genops(data) if operation.name == name)


HOSTILE = {
    "GLOBAL": dumped(Calls(), 2),
    "STACK_GLOBAL": dumped(Calls(), 4),
    "REDUCE": b"K\x01)R.",
    "BUILD": b"}}b.",
    "INST": b"(ios\nsystem\n.",
    "OBJ": b"(K\x01o.",
    "NEWOBJ": b"K\x01)\x81.",
    "NEWOBJ_EX": b"K\x01)}\x92.",
    "EXT1": extension(200),
    "EXT2": extension(2_000),
    "EXT4": extension(2_000_000),
    "PERSID": persistent(0),
    "BINPERSID": persistent(4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_opcode_that_runs_code_is_refused_by_its_name_and_byte(name: str, place: Path) -> None:
    data = HOSTILE[name]
    words = f"byte {first(data, name)}: {name} calls or imports code (nothing was executed)"
    assert words in refusal(place, data)


@pytest.mark.parametrize("protocol", range(6))
def test_an_object_of_a_class_is_refused(protocol: int, place: Path) -> None:
    assert "GLOBAL calls or imports code" in refusal(place, dumped({"a": [Plain()]}, protocol))


def test_a_pickle_would_have_run_the_command(place: Path) -> None:
    pickle.loads(dumped(Calls()))
    assert Path(MARKED).exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1}, "it holds a set"),
        (frozenset({1}), "it holds a frozenset"),
        (bytearray(b"a"), "BYTEARRAY8 does not build a plain value"),
    ],
)
def test_what_is_no_plain_value_is_refused(value: Any, words: str, place: Path) -> None:
    assert words in refusal(place, dumped([value], 5))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_values_are_nested_to_a_limit(place: Path) -> None:
    deepest = nested(plain_pickle.MOST_DEPTH)
    place.write_bytes(dumped(deepest))
    assert plain_pickle.read(place) == deepest
    tuples = b")" + b"\x85" * 100_000 + b"."
    marks = b"(" * 100_000 + b"l" * 100_000 + b"."
    circle: list[Any] = []
    circle.append(circle)
    for data in (dumped(nested(plain_pickle.MOST_DEPTH + 1)), tuples, marks, dumped(circle)):
        assert f"nested more than {plain_pickle.MOST_DEPTH} deep" in refusal(place, data)


def test_a_value_that_is_referred_to_counts_each_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A "billion laughs" is refused: ten lists of ten, each in the next, are 10^10 values in 200 bytes."""
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 10_000)
    for kind in (list, tuple):
        laughs: Any = kind([0] * 10)
        for _ in range(9):
            laughs = kind([laughs] * 10)
        assert "more than 10,000 values" in refusal(place, dumped(laughs))


def test_values_references_and_bytes_have_limits(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "it numbers a reference 2,147,483,647" in refusal(place, b"K\x01r\xff\xff\xff\x7f.")
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 100)
    assert "more than 100 values" in refusal(place, dumped([1] * 101))
    monkeypatch.setattr(plain_pickle, "MOST_BYTES", 10)
    assert "has 11 bytes, more than 10" in refusal(place, b"K\x01" * 5 + b".")


@pytest.mark.parametrize("protocol", range(6))
def test_a_cut_file_is_refused_wherever_it_is_cut(protocol: int, place: Path) -> None:
    data = dumped({"a": [1, 2.5, "text", (1, 2)], 7: None}, protocol)
    for end in range(len(data)):
        refusal(place, data[:end])


@pytest.mark.parametrize(
    "data",
    [
        *(b".", b"e.", b"\x86.", b"K\x01(\x86.", b"K\x01K\x02a.", b"}K\x01a.", b"}(K\x01u.", b"}]K\x01s."),
        *(
            b"q\x00.",
            b"Ione\n.",
            b"L" + b"9" * 5000 + b"L\n.",
            b"\x8d" + b"\xff" * 8 + b"a.",
            b"\xff.",
            b"\x80\x06K\x01.",
        ),
    ],
)
def test_damage_is_refused(data: bytes, place: Path) -> None:
    assert plain_pickle.DAMAGED in refusal(place, data)


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, not a file: name a pickle"):
        plain_pickle.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="none.pkl"):
        plain_pickle.read(tmp_path / "none.pkl")
