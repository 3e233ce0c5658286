"""From the sections `devices` and `clock` of a configuration to the clock of a run; refuses what does not fit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedray.algorithms import ALGORITHMS
from fedray.core.devices.availability import (
    Always,
    Anytime,
    Availability,
    Nightly,
    TableAvailability,
    Windows,
    windows_of,
)
from fedray.core.devices.clock import Clock
from fedray.core.devices.settings import BufferedClock, ClassDevices, NoDevices, RoundsClock, TableDevices
from fedray.core.devices.staleness import ConstantStaleness
from fedray.core.devices.table import Devices, of_classes, of_rows, rows_of
from fedray.core.privacy.settings import Private
from fedray.core.ranges import Range
from fedray.core.seeds import derive
from fedray.core.strategies import FLTrust
from fedray.core.types import FederatedData
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import COLUMNS
from fedray.experiment.config import Config
from fedray.storage.arrow import DAMAGED

ABOVE, FROM = Range(0, open="least"), Range(0)
NUMBERS = {"seconds": ABOVE, "down": ABOVE, "up": ABOVE, "latency": FROM, "watts": FROM, "radio": FROM}
ONE_CLASS = "all"  # the name of the class of devices from a table without classes


def check_devices(config: Config) -> None:
    """Check the section `devices`. ValueError: it does not fit another section."""
    cohort = config.cohort
    if isinstance(config.devices, NoDevices):
        if cohort.sampling == "oort":
            raise ValueError("cohort.sampling=oort prefers fast devices: set devices, or another sampling")
        return
    by = getattr(config.devices, "by", None)
    if by is not None and by not in COLUMNS:
        raise ValueError(f"devices.by: a manifest has no column {by!r}; it has {', '.join(COLUMNS)}")
    if cohort.availability < 1 or cohort.dropout > 0:
        raise ValueError(
            "devices decide which clients are available and which are lost: remove cohort.availability and "
            "cohort.dropout, and set devices.availability, or a class's lost"
        )
    if cohort.sampling in ("poisson", "cyclic"):
        raise ValueError(
            f"cohort.sampling={cohort.sampling} takes clients whether they are available or not: set uniform, weighted "
            "or oort with devices"
        )
    if ALGORITHMS[config.algorithm.kind].central:
        raise ValueError(f"algorithm.kind {config.algorithm.kind} trains in one place, without devices: leave them out")
    if isinstance(config.privacy, Private):
        raise ValueError(
            "with devices, fast clients take part more often, which privacy accounting does not cover: set "
            "privacy.kind=none, or remove devices"
        )


def check_clock(config: Config) -> None:
    """Check the section `clock`. ValueError: it is set without `devices`, or its staleness does not fit."""
    clock, kind = config.clock, config.algorithm.kind
    if isinstance(config.devices, NoDevices) and clock != RoundsClock():
        raise ValueError("without devices clients take no time, so clock has no effect: set devices, or remove clock")
    if not isinstance(clock, BufferedClock) or isinstance(clock.staleness, ConstantStaleness):
        return
    if ALGORITHMS[kind].unscaled:
        raise ValueError(f"algorithm.kind {kind} needs updates as clients send them: set clock.staleness=constant")
    if isinstance(config.strategy, FLTrust):
        raise ValueError(
            "strategy.kind fltrust gives all updates one length, so clock.staleness has no effect: set it to constant"
        )


def check_clients(config: Config, population: int) -> None:
    """Check the number of clients. ValueError: there are too few for the clock."""
    clock = config.clock
    if isinstance(config.devices, NoDevices) or not isinstance(clock, BufferedClock):
        return
    needed = clock.concurrency + (clock.buffer if clock.refill == "arrival" else 0)
    if population < needed:
        what = "concurrency + buffer" if clock.refill == "arrival" else "concurrency"
        raise ValueError(
            f"the clock needs at least {what} = {needed:,} clients, since no client trains from the same model twice, "
            f"but the population has {population:,}: lower clock.concurrency or clock.buffer"
        )


def with_paths(devices: Any, checked: Any) -> Any:
    """The section `devices` with absolute paths. `checked(given, key)`: the absolute path of the file that a key names.

    Reads the files. ValueError: one cannot be used.
    """
    if isinstance(devices, TableDevices):
        devices = replace(devices, file=checked(devices.file, "devices.file"))
        read_devices(devices.file)
    availability = getattr(devices, "availability", None)
    if isinstance(availability, TableAvailability):
        availability = replace(availability, file=checked(availability.file, "devices.availability.file"))
        read_windows(availability)
        devices = replace(devices, availability=availability)
    return devices


def fingerprint(devices: Any) -> dict[str, str]:
    """A hash of the files that devices come from, for run.json; {} if they come from none."""
    parts = devices, getattr(devices, "availability", None)
    files = [part.file for part in parts if isinstance(part, TableDevices | TableAvailability)]
    contents = b"".join(Path(file).read_bytes() for file in files)
    return {"devices": hashlib.blake2b(contents, digest_size=8).hexdigest()} if files else {}


def build_clock(config: Config, data: FederatedData) -> Clock | None:
    """Build the clock of a run; None: clients take no time. ValueError: the devices do not fit the federation."""
    if isinstance(config.devices, NoDevices):
        return None
    ids = data.client_ids()
    check_clients(config, len(ids))
    devices, size = build_devices(config, data), config.cohort.count(len(ids))
    return Clock(
        config.clock, devices, ids, config.seed, size, config.cohort.sampling, lambda client: data.cost(ids[client])
    )


def build_devices(config: Config, data: FederatedData) -> Devices:
    """Draw the devices of a federation's clients."""
    settings, population = config.devices, len(data.client_ids())
    seed = derive(config.seed, "devices", "draw", settings.draw) if settings.draw else config.seed
    if isinstance(settings, ClassDevices):
        available, values = _available(settings.availability, seed, population), None
        if settings.by is not None:
            assert isinstance(data, SpeechData)  # it has a manifest
            values = column_of_clients(data, settings.by)
        return of_classes(settings, seed, population, available, values)
    assert isinstance(settings, TableDevices)
    names, columns, classes = read_devices(settings.file)
    row = rows_of(seed, population, len(names), settings.reuse, f"devices in {settings.file}")
    return of_rows(row, columns, classes, _available(settings.availability, seed, population, [names[r] for r in row]))


def _available(settings: Any, seed: int, population: int, names: list[str] | None = None) -> Availability:
    """When each client's device is available. `names`: the clients' devices in a table."""
    if isinstance(settings, Always):
        return Anytime()
    if isinstance(settings, Nightly):
        return settings.windows(seed, population)
    assert isinstance(settings, TableAvailability)
    known, windows = read_windows(settings)
    if names is None:
        return replace(windows, device=rows_of(seed, population, len(known), True, ""))
    numbers = {name: number for number, name in enumerate(known)}
    for name in names:
        if name not in numbers:
            raise ValueError(f"{settings.file}: there are no windows of device {name!r}, which a client has")
    return replace(windows, device=np.array([numbers[name] for name in names], np.int32))


def column_of_clients(data: SpeechData, column: str) -> list[str]:
    """The value of a column of the manifest for each client. ValueError: a client's utterances differ in it."""
    values = []
    for client in data.client_ids():
        own = sorted({str(value) for value in data.load(client).column(column)})
        if len(own) != 1:
            raise ValueError(
                f"devices.by: the utterances of client {client} have {len(own)} values of {column}, such as {own[0]!r} "
                f"and {own[1]!r}, but a client has one device: divide clients by speaker, or choose another column"
            )
        values += own
    return values


def read_devices(path: str) -> tuple[list[str], dict[str, npt.NDArray[np.float64]], list[str]]:
    """Names, numbers and classes of the devices in a Parquet file. ValueError names the file, column and device."""
    table = _read(path, ("device", *NUMBERS))
    names = _words(table, "device", path)
    if not names:
        raise ValueError(f"{path}: the table holds no device")
    if (twice := _first_twice(names)) is not None:
        raise ValueError(f"{path}: device {twice!r} is listed twice")
    columns = {}
    for column, limits in NUMBERS.items():
        columns[column] = values = _numbers(table, column, path)
        wrong = np.flatnonzero(values <= 0 if limits.open else values < 0)
        if len(wrong):
            raise ValueError(
                f"{path}: {column} of device {names[wrong[0]]!r} must be {limits}, not {values[wrong[0]]:g}"
            )
    classes = _words(table, "class", path) if "class" in table.column_names else [ONE_CLASS] * len(names)
    return names, columns, classes


def read_windows(settings: TableAvailability) -> tuple[list[str], Windows]:
    """Names of devices, and their windows of availability. ValueError names the file and the device."""
    path = settings.file
    table = _read(path, ("device", "start_s", "end_s"))
    if not len(table):
        raise ValueError(f"{path}: the table holds no window")
    try:
        return windows_of(
            _words(table, "device", path),
            _numbers(table, "start_s", path),
            _numbers(table, "end_s", path),
            settings.period_s,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if path not in str(error) else str(error)) from error


def _read(path: str, columns: Iterable[str]) -> pa.Table:
    try:
        with pq.ParquetFile(Path(path)) as file:  # unlike read_table, decodes the names at once
            table = file.read()
    except DAMAGED as error:
        raise ValueError(f"{path} is not a Parquet file that can be read: {error}") from error
    for column in columns:
        if column not in table.column_names:
            raise ValueError(f"{path}: has no column {column}; its columns are {', '.join(table.column_names)}")
    return table


def _words(table: pa.Table, column: str, path: str) -> list[str]:
    values = _typed(table, column, pa.large_string(), "strings", path)
    words: list[str] = values.to_pylist()
    return words


def _numbers(table: pa.Table, column: str, path: str) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = _typed(table, column, pa.float64(), "numbers", path).to_numpy()
    if not np.isfinite(values).all():
        raise ValueError(f"{path}: row {int(np.flatnonzero(~np.isfinite(values))[0]) + 1} of {column} is not finite")
    return values


def _typed(table: pa.Table, column: str, type: pa.DataType, what: str, path: str) -> pa.ChunkedArray:
    values = table[column]
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    wrong = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if wrong != (what == "strings") or values.null_count:
        how = f"has {values.null_count} empty values" if values.null_count else f"holds {values.type}"
        raise ValueError(f"{path}: the column {column} must hold {what}, but {how}")
    try:
        return pc.cast(values, type)
    except pa.ArrowException as error:
        raise ValueError(f"{path}: the column {column} must hold {what}: {error}") from error


def _first_twice(names: list[str]) -> str | None:
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
