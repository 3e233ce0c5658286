"""The two tables that `devices` reads: what devices can do, and when each is available."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
CLASS = pa.field("class", pa.string(), nullable=False)  # an extra column, if a trace has classes
DEVICES = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),  # s, one pass of training over one utterance
        pa.field("down", pa.float64(), nullable=False),  # bit/s
        pa.field("up", pa.float64(), nullable=False),  # bit/s
        pa.field("latency", pa.float64(), nullable=False),  # s
        pa.field("watts", pa.float64(), nullable=False),  # W, while it computes
        pa.field("radio", pa.float64(), nullable=False),  # W, while it sends or receives
    ]
)
# A device is available from start_s to end_s, counted from midnight, and again after every period of the table.
WINDOWS = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("start_s", pa.float64(), nullable=False),
        pa.field("end_s", pa.float64(), nullable=False),
    ]
)
MOST_NUMBER = 1e15
MOST_TURNS = 1000  # of the shortest period in the longest one
DIGITS = 6  # of seconds: the clock counts microseconds
MOST_CHARACTERS = 200  # of a name: every window of a device repeats it
Vector = npt.NDArray[np.float64]
Span = tuple[float, float]
Lines = Sequence[int | str]  # the place of each row in its file: a line, or the device


@dataclass(frozen=True)
class Missing:
    """Values to use for numbers that a trace lacks, and the size of the work."""

    latency: float = 0.0  # s
    watts: float = 0.0  # W
    radio: float = 0.0  # W
    scale: float = 1.0  # factor on the trace's seconds for one pass over an utterance

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
    start: float  # s, from midnight; below the period
    end: float  # s; a window may extend beyond the end of the period
    period: float = math.inf  # s, of the device; infinite: its windows do not repeat


@dataclass(frozen=True)
class Converted:
    """A table, and notes on the conversion for its user."""

    table: pa.Table
    notes: tuple[str, ...] = ()
    period: float | None = None  # s after which windows repeat; None: never, or a table of devices

    @property
    def windows(self) -> bool:
        """Whether the table says when devices are available, not what they can do."""
        return bool(self.table.schema.equals(WINDOWS))


def devices(source: Path, lines: Lines, columns: Mapping[str, Sequence[Any]], missing: Missing) -> Converted:
    """Make the table of devices from columns of text or numbers; class, latency, watts and radio may be missing.

    A ValueError names the row that repeats a device or has an impossible value.
    """
    size = len(lines)
    if not size:
        raise ValueError(f"{source} has no devices: name the file of a trace")
    _check_names(source, lines, "device", columns["device"])
    _check_unique(source, lines, columns["device"])
    fill = {"latency": missing.latency, "watts": missing.watts, "radio": missing.radio}
    arrays: list[Any] = [columns["device"]]
    for name in DEVICES.names[1:]:
        given = name in columns
        arrays.append(numbers(source, lines, name, columns[name]) if given else np.full(size, fill[name]))
    arrays[1] = arrays[1] * missing.scale
    absent = [f"{name} = {fill[name]:g}" for name in fill if name not in columns]
    notes = (f"{source} lacks some values: every device gets {', '.join(absent)}",) if absent else ()
    table = _table(arrays, DEVICES)
    if "class" in columns:
        _check_names(source, lines, "class", columns["class"])
        table = table.append_column(CLASS, pa.array(columns["class"], pa.string()))
    return Converted(table, notes)


def windows(source: Path, rows: Sequence[Window], never: Sequence[str] = ()) -> Converted:
    """Make the table of availability. It has one period, the longest; devices with shorter periods repeat within it.

    Windows of a device that touch become one. `never`: devices that have no window. A ValueError names the row with an
    impossible window.
    """
    _check_names(source, [row.line for row in rows], "device", [row.device for row in rows])
    own: dict[str, float] = {}  # the period of each device
    spans: dict[str, list[Span]] = {}
    for line, device, start, end, period in rows:
        if not (0 <= start < end <= start + period and start < period):
            span = f"the window from {start:g} to {end:g} s must be longer than 0 s"
            limit = "" if math.isinf(period) else f", begin before its period of {period:g} s ends, and be no longer"
            raise ValueError(f"{source}:{line}: {span}{limit}: correct it")
        if own.setdefault(device, period) != period:
            raise ValueError(f"{source}:{line}: {device} has the periods {own[device]:g} and {period:g} s: give it one")
        spans.setdefault(device, []).extend([(start, min(end, period)), (0.0, end - period)])
    longest, shortest = max(own.values(), default=math.inf), min(own.values(), default=math.inf)
    if longest > MOST_TURNS * shortest:
        raise ValueError(
            f"{source}: the longest period, {longest:g} s, is over {MOST_TURNS} x the shortest: correct it"
        )
    repeated = {name: _repeated(spans[name], own[name], longest) for name in spans}
    found = [(name, *span) for name, each in repeated.items() for span in each]
    never = [*never, *(name for name, each in repeated.items() if not each)]  # windows of less than a microsecond
    if not found:
        raise ValueError(f"{source} has no device that is ever available: name the file of another trace")
    some = ", ".join(never[:3]) + (", ..." if len(never) > 3 else "")
    notes = (f"{source}: left out {len(never):,} devices that are never available ({some})",) if never else ()
    table = _table(list(zip(*found, strict=True)), WINDOWS)
    return Converted(table, notes, None if math.isinf(longest) else longest)


def _repeated(spans: Sequence[Span], period: float, longest: float) -> list[Span]:
    """Repeat the windows of one device within the longest period, sort them, and join those that touch."""
    turns = 1 if period == longest else math.ceil(longest / period)
    offsets = [turn * period if turn else 0.0 for turn in range(turns)]
    moved = [(start + offset, end + offset) for offset in offsets for start, end in spans]
    found: list[Span] = []
    for start, end in sorted((round(start, DIGITS), round(min(end, longest), DIGITS)) for start, end in moved):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif start < end:
            found.append((start, end))
    if len(found) > 1 and found[0][0] == 0 and found[-1][1] == longest:  # the last window continues in the first
        (_, over), *found = found
        found[-1] = (found[-1][0], longest + over)
    return found


def paired(devices: pa.Table, windows: pa.Table) -> pa.Table:
    """Deal the windows to `devices` in turn: device i gets those of the i-th device with windows."""
    names = devices["device"].to_pylist()
    places = {name: place for place, name in enumerate(dict.fromkeys(windows["device"].to_pylist()))}
    owner = np.array([places[name] for name in windows["device"].to_pylist()])
    parts = []
    for first in range(0, len(names), len(places)):
        part = windows.filter(owner < len(names) - first)
        chosen = [names[first + place] for place in owner[owner < len(names) - first]]
        parts.append(part.set_column(0, WINDOWS.field("device"), pa.array(chosen, pa.string())))
    return pa.concat_tables(parts).combine_chunks()


def check_free(path: Path) -> None:
    """Raise ValueError if the file already exists."""
    if path.exists():
        raise ValueError(f"{path} already exists: choose another name for --out")


def write(table: pa.Table, path: Path) -> None:
    """Write the table as Parquet. Raises ValueError if the file already exists."""
    check_free(path)
    make_folder(path.parent)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))


def numbers(source: Path, lines: Lines, name: str, values: Sequence[Any]) -> Vector:
    """Make numbers from text or numbers. A ValueError names the first row without a number in range."""
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
        where = place(str(source), lines, row)
        raise ValueError(
            f"{where}: {name} must be a number, {rule} and at most 1e15, not {shown(values[row])}: correct it"
        )
    return found


def shown(value: object) -> str:
    """Format a value of a trace for a message, shortened if it is long."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # an integer of thousands of digits
        return "a number that is too long"


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
