"""Read devices from a table: a CSV file, or a TSV file (.tsv), whose header names the columns and their units."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedray.data.corpora.table import Table
from fedray.data.devices import tables
from fedray.data.devices.tables import Converted, Missing, Window

RATES = {"bit_s": 1.0, "kbit_s": 1e3, "mbit_s": 1e6}
TIMES = {"s": 1.0, "h": 3600.0}
# The column -> its headers, each with the factor of its values.
COLUMNS = {"seconds": {"seconds": 1.0, "milliseconds": 1e-3}, "latency": {"latency_s": 1.0, "latency_ms": 1e-3}}
COLUMNS |= {name: {f"{name}_{unit}": factor for unit, factor in RATES.items()} for name in ("down", "up")}
COLUMNS |= {name: {f"{name}_w": 1.0} for name in ("watts", "radio")}
TIMED = ("start", "end", "period")  # columns of windows
COLUMNS |= {name: {f"{name}_{unit}": factor for unit, factor in TIMES.items()} for name in TIMED}
HEADERS = {header: (name, factor) for name, headers in COLUMNS.items() for header, factor in headers.items()}
NEEDED = {"devices": ("seconds", "down", "up"), "windows": ("start", "end")}


def convert(path: Path, missing: Missing) -> Converted:
    """Convert a file to the table of devices, or to that of availability if the header has start_s or start_h.

    A ValueError names the file, and the line that is wrong.
    """
    table = Table.read(path, delimiter="\t" if path.suffix == ".tsv" else ",", skipinitialspace=True)
    found: dict[str, str] = {}  # the column -> its header
    for header in table.columns:
        name = HEADERS[header][0] if header in HEADERS else header
        if name in found or header in table.repeated:
            raise ValueError(f"{path}:1: two columns hold {name}: drop one of them")
        if name not in ("device", "class") and header not in HEADERS:
            raise ValueError(f"{path}:1: {_unknown(header)}")
        found[name] = header
    kind = "windows" if "start" in found else "devices"
    for name in ("device", *NEEDED[kind]):
        if name not in found:
            raise ValueError(f"{path}:1: has no column {_choices(name)}: add it")
    for name, header in found.items():
        if name != "device" and (name in TIMED) != (kind == "windows"):
            raise ValueError(f"{path}:1: a table of {kind} has no {header}: put it into a table of its own")
    columns: dict[str, Any] = {"device": table.columns[found["device"]]}
    for name in found.keys() & COLUMNS.keys():
        values = tables.numbers(path, table.lines, found[name], table.columns[found[name]])
        columns[name] = (HEADERS[found[name]][1] * values).tolist()
    if kind == "windows":
        columns.setdefault("period", [math.inf] * len(table.lines))
        rows = zip(table.lines, *(columns[name] for name in ("device", *NEEDED[kind], "period")), strict=True)
        return tables.windows(path, [Window(*row) for row in rows])
    if "class" in found:
        columns["class"] = table.columns["class"]
    return tables.devices(path, table.lines, columns, missing)


def _choices(name: str) -> str:
    return " or ".join(COLUMNS.get(name, (name,)))


def _unknown(header: str) -> str:
    name = header.partition("_")[0]
    if name in COLUMNS:
        return f"the column {header!r} does not name its unit: call it {_choices(name)}"
    return f"unknown column {header!r}: columns are device, class, {', '.join(map(_choices, COLUMNS))}"
