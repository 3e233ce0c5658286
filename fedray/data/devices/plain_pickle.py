"""Read pickles of plain values, without executing anything.

A pickle is a program for a stack machine. Some of its opcodes import a name and call it, which is how a hostile file
runs code. `pickletools.genops` of the standard library only lists the opcodes. `read` interprets those that
build plain values, and rejects every other one by its name.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedray.core.texts import no_file

# FedScale's largest trace has half a million devices and 15 MB. A hostile file takes about 3 GB of memory at most.
MOST_BYTES = 1 << 28  # of a file
MOST_VALUES = 20_000_000  # a value that is referred to twice counts twice, with everything in it
MOST_CONTAINERS = 3_000_000  # also the limit for references
MOST_DEPTH = 50
MOST_PROTOCOL = 5

VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
CALLS = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
CALLS |= {"PERSID", "BINPERSID"}
DAMAGED = "the file is damaged or not a pickle: fetch it again"
REMEDY = "write it again with only dictionaries, lists, text and numbers, or as a table for --convert table"


def read(path: Path) -> Any:
    """Read a pickle of protocol 0 to 5: dictionaries, lists, tuples, text, bytes, numbers, Booleans, None.

    Raises ValueError, with the file and if possible the byte, for any other opcode, a damaged or truncated file, and a
    file beyond the limits. Raises FileNotFoundError for a missing file.
    """
    if (found := no_file(path)) not in (None, "missing"):
        raise ValueError(f"{path} is {found}, not a file: name a pickle")
    if (length := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: has {length:,} bytes, more than {MOST_BYTES:,}: split it")
    machine, at = _Machine(), 0
    for name, argument, at in _operations(path):
        if name == "STOP":
            break
        try:
            machine.do(name, argument)
        except _Refused as problem:
            raise ValueError(f"{path}: byte {at:,}: {problem}") from None
    if len(machine.stack) != 1 or machine.marks:
        count = len(machine.stack)
        raise ValueError(f"{path}: byte {at:,}: the pickle ends with {count} values, not one: {DAMAGED}")
    return machine.stack[0]


def _operations(path: Path) -> Iterator[tuple[str, Any, int]]:
    """Yield name, argument and byte of each opcode up to STOP. Raises ValueError for unknown opcodes and cut files."""
    at = 0
    try:
        # From memory, so a length that a hostile file states is cut to what the file holds.
        for operation, argument, position in pickletools.genops(io.BytesIO(path.read_bytes())):
            at = position or 0
            yield operation.name, argument, at
    except (ValueError, OverflowError) as error:  # malformed texts and numbers
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: is not a complete pickle (after byte {at:,}: {reason}): fetch it again") from error


class _Refused(ValueError):
    """An opcode that is rejected; the message says why."""


class _Machine:
    """The stack, its marks, and the memo by which a pickle refers to a value again."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.depths: list[int] = []  # how deep each value of the stack is nested
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        # Containers that were referred to again. They cannot grow, so a value never holds more than was counted.
        self.shared: set[int] = set()
        self.values = self.containers = 0

    def do(self, name: str, argument: Any) -> None:
        """Apply one opcode. Raises _Refused if it is wrong."""
        if name in VALUES:
            self._push(argument)
        elif name in CONSTANTS:
            self._push(CONSTANTS[name])
        elif name in EMPTY:
            self._push_container(EMPTY[name](), 1)
        elif name == "MARK":
            self._count()
            self.marks.append(len(self.stack))
        elif name in ("APPEND", "APPENDS"):
            self._extend(list, *self._pop(1 if name == "APPEND" else None))
        elif name in ("SETITEM", "SETITEMS"):
            self._extend(dict, *self._pop(2 if name == "SETITEM" else None))
        elif name in ("LIST", "DICT"):
            items, depth = self._pop(None)
            kind = list if name == "LIST" else dict
            self._push_container(kind(), 1)
            self._extend(kind, items, depth)
        elif name in TUPLES or name == "TUPLE":
            items, depth = self._pop(TUPLES.get(name))
            self._push_container(tuple(items), depth + 1)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._remember(len(self.memo) if name == "MEMOIZE" else argument)
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self._recall(argument)
        elif name == "PROTO" and argument > MOST_PROTOCOL:
            raise _Refused(f"protocol {argument} is unknown: write it again with protocol {MOST_PROTOCOL} or less")
        elif name not in ("PROTO", "FRAME"):
            what = "calls or imports code" if name in CALLS else "does not build a plain value"
            raise _Refused(f"{name} {what} (nothing was executed): {REMEDY}")

    def _push(self, value: Any, depth: int = 0) -> None:
        self._count()
        self._check_depth(depth)
        self.stack.append(value)
        self.depths.append(depth)

    def _push_container(self, value: Any, depth: int) -> None:
        self.containers += 1
        if self.containers > MOST_CONTAINERS:
            raise _Refused(f"it holds more than {MOST_CONTAINERS:,} dictionaries and lists: split it")
        self._push(value, depth)

    def _count(self) -> None:
        self.values += 1
        if self.values > MOST_VALUES:
            raise _Refused(f"it holds more than {MOST_VALUES:,} values: split it")

    def _check_depth(self, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise _Refused(f"values are nested more than {MOST_DEPTH} deep: {REMEDY}")

    def _pop(self, count: int | None) -> tuple[list[Any], int]:
        """Pop the last values, or with None those after the last mark. Also returns how deep the deepest is nested."""
        if count is None:
            if not self.marks:
                raise _Refused(f"a mark is missing: {DAMAGED}")
            count = len(self.stack) - self.marks.pop()
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise _Refused(f"values are missing: {DAMAGED}")
        items, depths = self.stack[start:], self.depths[start:]
        del self.stack[start:], self.depths[start:]
        return items, max(depths, default=0)

    def _extend(self, kind: type, items: Sequence[Any], depth: int) -> None:
        """Add the items to the list or dictionary on top."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0) or not isinstance(self.stack[-1], kind):
            raise _Refused(f"there is no {kind.__name__} to add to: {DAMAGED}")
        target: Any = self.stack[-1]
        if id(target) in self.shared:
            raise _Refused(f"a {kind.__name__} grows after it was referred to, or holds itself: {REMEDY}")
        self.depths[-1] = max(self.depths[-1], depth + 1)
        self._check_depth(self.depths[-1])
        if kind is list:
            target.extend(items)
            return
        if len(items) % 2:
            raise _Refused(f"a key has no value: {DAMAGED}")
        try:
            target.update(zip(items[::2], items[1::2], strict=True))
        except TypeError as error:
            raise _Refused(f"a key is not a plain value ({error}): {REMEDY}") from error

    def _remember(self, index: int) -> None:
        if not self.stack or len(self.memo) > MOST_CONTAINERS:
            what = "more references than a trace needs" if self.stack else "a reference to nothing"
            raise _Refused(f"it holds {what}: {REMEDY}")
        self.memo[index] = self.stack[-1]

    def _recall(self, index: int) -> None:
        if index not in self.memo:
            raise _Refused(f"it refers to value {index}, which it does not hold: {DAMAGED}")
        value = self.memo[index]
        if not isinstance(value, list | dict | tuple):
            self._push(value)
            return
        self.shared.add(id(value))
        self._push(value, self._count_inside(value))

    def _count_inside(self, value: Any, depth: int = 1) -> int:
        """Count the values in a container. Returns how deep it is nested."""
        self._check_depth(depth)
        deepest = depth
        for item in _items(value):
            self._count()
            if isinstance(item, list | dict | tuple):
                deepest = max(deepest, self._count_inside(item, depth + 1))
        return deepest


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for pair in value.items():
            yield from pair
    else:
        yield from value
