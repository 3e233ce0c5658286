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


@pytest.mark.parametrize("name", ["EMPTY_SET", "FROZENSET", "BYTEARRAY8", "DUP", "POP", "POP_MARK", "NEXT_BUFFER"])
def test_what_builds_no_plain_value_is_refused(name: str, place: Path) -> None:
    data = {
        "EMPTY_SET": dumped({1}),
        "FROZENSET": dumped(frozenset({1})),
        "BYTEARRAY8": dumped(bytearray(b"a"), 5),
        "DUP": b"]2.",
        "POP": b"]0.",
        "POP_MARK": b"(1.",
        "NEXT_BUFFER": b"\x97.",
    }[name]
    assert f"{name} does not build a plain value" in refusal(place, data)


def test_an_opcode_of_no_name_is_refused(place: Path) -> None:
    assert "is not a complete pickle" in refusal(place, b"\xff.")
    assert "protocol 6 is unknown" in refusal(place, b"\x80\x06K\x01.")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_values_are_nested_to_a_limit(place: Path) -> None:
    deepest = nested(plain_pickle.MOST_DEPTH)
    place.write_bytes(dumped(deepest))
    assert plain_pickle.read(place) == deepest
    deep = f"nested more than {plain_pickle.MOST_DEPTH} deep"
    tuples = b")" + b"\x85" * 100_000 + b"."
    lists = b"]" * 100_000 + b"a" * 99_999 + b"."
    marks = b"(" * 100_000 + b"l" * 100_000 + b"."
    shared = b"]q\x00h\x00" + b"\x85" * 60 + b"\x86."
    for data in (dumped(nested(plain_pickle.MOST_DEPTH + 1)), tuples, shared):
        assert deep in refusal(place, data)
    assert deep in refusal(place, lists) and deep in refusal(place, marks)


def test_a_value_that_is_referred_to_counts_each_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A "billion laughs" is refused: ten lists of ten, each in the next, are 10^10 values in 200 bytes."""
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 10_000)
    for kind in (list, tuple):
        laughs: Any = kind([0] * 10)
        for _ in range(9):
            laughs = kind([laughs] * 10)
        assert "more than 10,000 values" in refusal(place, dumped(laughs))
    # A list that grows after a reference to it would hold more values than were counted.
    late = b"](]q\x00h\x00h\x00e" + b"h\x00(" + b"K\x01" * 50 + b"e."
    assert "a list grows after it was referred to" in refusal(place, late)


def test_a_list_that_holds_itself_is_refused(place: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert "or holds itself" in refusal(place, dumped(circle))


def test_values_containers_references_and_bytes_have_limits(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MOST_CONTAINERS", 100)
    assert "more than 100 dictionaries and lists" in refusal(place, dumped([[] for _ in range(101)]))
    assert "more references than a trace needs" in refusal(place, b"K\x01" + b"\x94" * 102 + b".")
    monkeypatch.setattr(plain_pickle, "MOST_BYTES", 10)
    assert "has 11 bytes, more than 10" in refusal(place, b"K\x01" * 5 + b".")


@pytest.mark.parametrize("protocol", range(6))
def test_a_cut_file_is_refused_wherever_it_is_cut(protocol: int, place: Path) -> None:
    data = dumped({"a": [1, 2.5, "text", (1, 2)], 7: None}, protocol)
    for end in range(len(data)):
        refusal(place, data[:end])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b".", "ends with 0 values"),
        (b"K\x01K\x02.", "ends with 2 values"),
        (b"e.", "a mark is missing"),
        (b"\x86.", "values are missing"),
        (b"K\x01(\x86.", "values are missing"),
        (b"K\x01K\x02a.", "there is no list to add to"),
        (b"}K\x01a.", "there is no list to add to"),
        (b"}(K\x01u.", "a key has no value"),
        (b"}]K\x01s.", "a key is not a plain value"),
        (b"h\x05.", "it refers to value 5, which it does not hold"),
        (b"q\x00.", "a reference to nothing"),
        (b"Ione\n.", "is not a complete pickle"),
        (b"L" + b"9" * 5000 + b"L\n.", "is not a complete pickle"),
        (b"\x8d" + b"\xff" * 8 + b"a.", "is not a complete pickle"),
        (b"\x8d" + b"\xff" * 7 + b"\x7fa.", "is not a complete pickle"),
    ],
)
def test_damage_is_refused_in_words(data: bytes, words: str, place: Path) -> None:
    assert words in refusal(place, data)


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, not a file: name a pickle"):
        plain_pickle.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="none.pkl"):
        plain_pickle.read(tmp_path / "none.pkl")
