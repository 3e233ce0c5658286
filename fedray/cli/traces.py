"""`fedray devices --convert`: converts a trace of devices to the Parquet files that a configuration names."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from shlex import quote

from rich.console import Console

from fedray.cli.device_options import CONVERTED
from fedray.config.source import as_value
from fedray.data.devices import CONVERTERS, tables
from fedray.data.devices.tables import Converted, Missing


def show(options: argparse.Namespace, console: Console) -> int:
    """Write the tables. ValueError: the kind is unknown, there is no file or too many, or a file of --out exists."""
    kind, *files = options.convert
    if kind not in CONVERTERS:
        raise ValueError(f"--convert {kind}: unknown kind: choose one of {', '.join(CONVERTERS)}")
    if not 1 <= len(files) <= 2:
        raise ValueError(f"--convert {kind} takes one file of speeds, one of availability, or both, not {len(files)}")
    given = {name: getattr(options, name) for name, *_ in CONVERTED}
    missing = Missing(**{name: value for name, value in given.items() if value is not None})
    places = _places(Path(options.out))
    for place in places[: len(files)]:
        tables.check_free(place)
    found = sorted((CONVERTERS[kind](Path(file), missing) for file in files), key=lambda one: one.windows)
    if len(found) == 2 and found[0].windows == found[1].windows:
        what = "when devices are available" if found[0].windows else "what devices can do"
        raise ValueError(f"{files[0]} and {files[1]} both say {what}: convert one at a time")
    if len(found) == 2 and kind == "fedscale":  # its two files name different devices: FedScale pairs them like this
        found[1] = replace(found[1], table=tables.paired(found[0].table, found[1].table))
    settings = []
    for one, place in zip(found, places, strict=False):
        tables.write(one.table, place)
        print("\n".join([*one.notes, f"{place}: {_counted(one)}"]))
        settings.append(_setting(one, place))
    print(f"Use it with: {' '.join(settings)}")
    return 0


def _setting(converted: Converted, place: Path) -> str:
    """The overrides that name a table."""
    if not converted.windows:
        return f"devices.kind=table devices.file={quote(as_value(str(place)))}"
    period = "" if converted.period is None else f", period_s: {converted.period:g}"
    return quote(f"devices.availability={{kind: table, file: {as_value(str(place))}{period}}}")


def _places(out: Path) -> tuple[Path, Path]:
    """The files of the first and the second table: phones.parquet, phones-windows.parquet."""
    if out.suffix != ".parquet":
        raise ValueError(f"--out {out}: the table's name must end with .parquet")
    return out, out.with_name(f"{out.stem}-windows.parquet")


def _counted(converted: Converted) -> str:
    rows, devices = converted.table.num_rows, len(set(converted.table["device"].to_pylist()))
    return f"{rows:,} windows of {devices:,} devices" if converted.windows else f"{devices:,} devices"
