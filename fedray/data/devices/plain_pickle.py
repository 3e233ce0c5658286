"""Read pickles of plain values. Nothing is imported or called, however hostile the file.

A pickle is a program for a stack machine, and some of its opcodes import a name and call it. The reader is Python's own
with `find_class` refused ("Restricting Globals" in its documentation). Before it runs, the opcodes are listed: those
that could run code are refused by name and byte, and so are files that would take gigabytes of memory.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedray.core.texts import check_is_file

# FedScale's largest trace has half a million devices and 15 MB. A hostile file takes about 3 GB of memory at most.
MOST_BYTES = 1 << 28  # of a file
MOST_VALUES = 20_000_000  # a value that is referred to twice counts twice, with everything in it
MOST_DEPTH = 50
CALLS = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
CALLS |= {"PERSID", "BINPERSID"}
BUFFERS = {"BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER"}
PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
DAMAGED = "the file is damaged or not a pickle: fetch it again"
REMEDY = "write it again with only dictionaries, lists, text and numbers, or as a table for --convert table"


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it imports {module}.{name}")


def read(path: Path) -> Any:
    """Read a pickle of dictionaries, lists, tuples, text, bytes, numbers, Booleans, None.

    Raises ValueError, with the file, for anything else in it, a damaged or truncated file, and a file beyond the
    limits. Raises FileNotFoundError for a missing file.
    """
    check_is_file(path, "name a pickle")
    if (length := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: has {length:,} bytes, more than {MOST_BYTES:,}: split it")
    data = path.read_bytes()
    try:
        _check_opcodes(data)
        value = _Plain(io.BytesIO(data)).load()
        _check_values(value)
    except _Refused as problem:
        raise ValueError(f"{path}: {problem}") from None
    except Exception as error:  # whatever a damaged file makes the unpickler raise
        raise ValueError(f"{path}: {error or type(error).__name__}: {DAMAGED}") from error
    return value


class _Refused(ValueError):
    """What the file holds is not read; the message says why."""


def _check_opcodes(data: bytes) -> None:
    # From memory, so a length that a hostile file states is cut to what the file holds.
    for count, (operation, argument, position) in enumerate(pickletools.genops(io.BytesIO(data))):
        at = position or 0
        if operation.name in CALLS | BUFFERS:
            what = "calls or imports code" if operation.name in CALLS else "does not build a plain value"
            raise _Refused(f"byte {at:,}: {operation.name} {what} (nothing was executed): {REMEDY}")
        if count > MOST_VALUES:
            raise _Refused(f"byte {at:,}: it holds more than {MOST_VALUES:,} values: split it")
        if operation.name in PUTS and (argument or 0) > count:  # the unpickler would make room for all numbers below it
            raise _Refused(f"byte {at:,}: it numbers a reference {argument:,}: {DAMAGED}")


def _check_values(value: Any) -> None:
    """Raise _Refused for values of other types, too many, or nested too deep, as one that holds itself."""
    level, count, depth = [value], 0, 0
    while level:
        inner: list[Any] = []
        depth += 1
        for one in level:
            if isinstance(one, dict | list | tuple):
                if depth > MOST_DEPTH:
                    raise _Refused(f"values are nested more than {MOST_DEPTH} deep: {REMEDY}")
                inner += _items(one)
                if count + len(inner) > MOST_VALUES:
                    raise _Refused(f"it holds more than {MOST_VALUES:,} values: split it")
            elif not isinstance(one, str | bytes | int | float | None):
                raise _Refused(f"it holds a {type(one).__name__}, which is not a plain value: {REMEDY}")
        count, level = count + len(inner), inner


def _items(value: Any) -> Iterable[Any]:
    return (part for pair in value.items() for part in pair) if isinstance(value, dict) else value
