"""The two tables that `devices` reads: what devices can do, and when each is available."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fedray.core.texts import unusable
from fedray.data.manifest import place
from fedray.storage.files import make_folder, write_atomically

ABOVE_ZERO = ("seconds", "down", "up")
DEVICES = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("class", pa.string()),
        pa.field("seconds", pa.float64(), nullable=False),  # s, one pass of training over one utterance
        pa.field("down", pa.float64(), nullable=False),  # bit/s
        pa.field("up", pa.float64(), nullable=False),  # bit/s
        pa.field("latency", pa.float64(), nullable=False),  # s
        pa.field("watts", pa.float64(), nullable=False),  # W, while it computes
        pa.field("radio", pa.float64(), nullable=False),  # W, while it sends or receives
    ]
)
# A device is available from start_s to end_s, counted from midnight, and again after every period_s.
WINDOWS = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("start_s", pa.float64(), nullable=False),
        pa.field("end_s", pa.float64(), nullable=False),
        pa.field("period_s", pa.float64(), nullable=False),
    ]
)
MOST_NUMBER = 1e15
MOST_CHARACTERS = 200  # of a name: a device repeats it in every window
Vector = npt.NDArray[np.float64]
Lines = Sequence[int | str]  # the place of each row in its file: a line, or the device


@dataclass(frozen=True)
class Missing:
    """What stands in for numbers that a trace does not have, and the size of the work."""

    latency: float = 0.0  # s
    watts: float = 0.0  # W
    radio: float = 0.0  # W
    scale: float = 1.0  # seconds of a pass over one utterance here, as a multiple of those of the trace

    def __post_init__(self) -> None:
        for name in ("latency", "watts", "radio", "scale"):
            value = getattr(self, name)
            if not 0 <= value <= MOST_NUMBER or (name == "scale" and value == 0):
                rule = "above 0" if name == "scale" else "0 or more"
                raise ValueError(f"--{name} must be {rule} and at most 1e15, not {value:g}")


class Window(NamedTuple):
    """A device is available from `start` to `end`, and again after every `period`."""

    line: int | str  # its place in the file
    device: str
    start: float  # s, from midnight
    end: float  # s
    period: float  # s


@dataclass(frozen=True)
class Converted:
    """A table, and what its user should know of the conversion."""

    table: pa.Table
    notes: tuple[str, ...] = ()

    @property
    def windows(self) -> bool:
        """Whether it says when devices are available; else it says what they can do."""
        return bool(self.table.schema.equals(WINDOWS))


def devices(source: Path, lines: Lines, columns: Mapping[str, Sequence[Any]], missing: Missing) -> Converted:
    """The table of devices from columns of text or numbers, of which class, latency, watts and radio may be missing.

    ValueError names the row that repeats a device or has an impossible value.
    """
    size = len(lines)
    if not size:
        raise ValueError(f"{source} has no devices: name the file of a trace")
    _check_names(source, lines, "device", columns["device"])
    _check_unique(source, lines, columns["device"])
    classes = columns.get("class", [None] * size)
    _check_names(source, lines, "class", [name if name is not None else "none" for name in classes])
    fill = {"latency": missing.latency, "watts": missing.watts, "radio": missing.radio}
    arrays: list[Any] = [columns["device"], classes]
    for name in DEVICES.names[2:]:
        given = name in columns
        arrays.append(numbers(source, lines, name, columns[name]) if given else np.full(size, fill[name]))
    arrays[2] = arrays[2] * missing.scale
    absent = [f"{name} = {fill[name]:g}" for name in fill if name not in columns]
    notes = (f"{source} does not say everything: every device gets {', '.join(absent)}",) if absent else ()
    return Converted(_table(arrays, DEVICES), notes)


def windows(source: Path, rows: Sequence[Window], never: Sequence[str] = ()) -> Converted:
    """The table of availability. Windows of a device that touch become one. `never`: devices that have none.

    ValueError names the row with an impossible window.
    """
    if not rows:
        raise ValueError(f"{source} has no device that is ever available: name the file of another trace")
    names = [row.device for row in rows]
    lines = [row.line for row in rows]
    _check_names(source, lines, "device", names)
    merged: dict[str, tuple[float, list[list[float]]]] = {}  # device -> its period, and its windows
    for line, device, start, end, period in sorted(rows, key=attrgetter("start")):
        known, spans = merged.setdefault(device, (period, []))
        if not 0 <= start < end <= period:
            span = f"the window from {start:g} to {end:g} s must have a length, and lie between 0 and {period:g} s"
            raise ValueError(f"{source}:{line}: {span}: correct it, or cut it in two")
        if period != known:
            raise ValueError(f"{source}:{line}: {device} has the periods {known:g} and {period:g} s: give it one")
        if spans and start <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end])
    found = [(device, *span, merged[device][0]) for device in dict.fromkeys(names) for span in merged[device][1]]
    some = ", ".join(never[:3]) + (", ..." if len(never) > 3 else "")
    notes = (f"{source}: {len(never):,} devices are never available, and left out: {some}",) if never else ()
    return Converted(_table(list(zip(*found, strict=True)), WINDOWS), notes)


def check_free(path: Path) -> None:
    """ValueError: there is a file already."""
    if path.exists():
        raise ValueError(f"{path} exists: choose another name for --out")


def write(table: pa.Table, path: Path) -> None:
    """Write the table as Parquet. ValueError: there is a file already."""
    check_free(path)
    make_folder(path.parent)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))


def numbers(source: Path, lines: Lines, name: str, values: Sequence[Any]) -> Vector:
    """Numbers from text or numbers. ValueError names the first row with no number, or one out of range."""
    found = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            found[row] = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):  # the last: an integer of hundreds of digits
            found[row] = math.nan
    inside = (found > 0 if name in ABOVE_ZERO else found >= 0) & (found <= MOST_NUMBER)
    if not inside.all():
        row = int((~inside).argmax())
        rule = "above 0" if name in ABOVE_ZERO else "0 or more"
        where, value = place(str(source), lines, row), f"{values[row]!r:.60}"
        raise ValueError(f"{where}: {name} must be a number, {rule} and at most 1e15, not {value}: correct it")
    return found


def _check_names(source: Path, lines: Lines, what: str, names: Sequence[str]) -> None:
    for row, name in enumerate(names):
        problem = None
        if not name.strip():
            problem = "is missing"
        elif len(name) > MOST_CHARACTERS:
            problem = f"has {len(name):,} characters, more than {MOST_CHARACTERS}"
        elif found := unusable(name):
            problem = f"holds {found}"
        if problem is not None:
            raise ValueError(f"{place(str(source), lines, row)}: the {what} {problem}: correct it")


def _check_unique(source: Path, lines: Lines, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise ValueError(f"{place(str(source), lines, row)}: the device {name!r} has two rows: drop one of them")
        seen.add(name)


def _table(arrays: Sequence[Any], schema: pa.Schema) -> pa.Table:
    columns = [pa.array(values, field.type) for values, field in zip(arrays, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)
