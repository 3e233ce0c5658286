"""Wrong devices and clocks: their sections, settings that they cannot be combined with, and their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.bad_input.case import DRY, Case
from tests.bad_input.configuration import LAST, PRIVATE, line
from tests.bad_input.corpus import LATIN, append, both, parquet, put

PHONES = "devices: {kind: classes, classes: {phone: {seconds: 0.1, down: 1e6, up: 1e6}}}"
GIVEN = "'devices={kind: classes, classes: {phone: {seconds: 0.1, down: 1e6, up: 1e6}}}'"
TABLE = "devices: {kind: table, file: phones.parquet}"
WINDOWS = PHONES.removesuffix("}") + ", availability: {kind: table, file: windows.parquet}}"
ROW: dict[str, Any] = {"device": ["a", "b"], "seconds": [0.1, 0.2], "down": [1e6, 1e6], "up": [1e6, 1e6]}
ROW |= {"latency": [0.0, 0.1], "watts": [4.0, 2.0], "radio": [1.0, 1.0]}


def phones(name: str, content: str | bytes, *says: str) -> Case:
    """The case of a wrong table of devices."""
    make: Callable[..., object] = both(put("phones.parquet", content), append(TABLE))
    return Case(f"devices: {name}", ("config.yaml:", "phones.parquet", *says), make, DRY)


def windows(name: str, content: bytes, *says: str) -> Case:
    """The case of a wrong table of the times at which devices are available."""
    make: Callable[..., object] = both(put("windows.parquet", content), append(WINDOWS))
    return Case(f"devices: {name}", ("config.yaml:", "windows.parquet", *says), make, DRY)


def beside(name: str, override: str, *says: str) -> Case:
    """The case of devices combined with settings that exclude them."""
    return Case(f"devices: {name}", says, command=f"{DRY} {GIVEN} {override}")


CASES = (
    line(
        "devices: a class without a speed",
        "devices: {kind: classes, classes: {phone: {down: 1e6, up: 1e6}}}",
        LAST,
        "devices.classes.phone.seconds is missing and has no default",
    ),
    line(
        "devices: an unknown key of a class",
        "devices: {kind: classes, classes: {phone: {seconds: 1, down: 1e6, up: 1e6, wats: 2}}}",
        LAST,
        "unknown key devices.classes.phone.wats; did you mean devices.classes.phone.watts?",
    ),
    line(
        "devices: a rate of nothing",
        "devices: {kind: classes, classes: {phone: {seconds: 1, down: 0, up: 1e6}}}",
        LAST,
        "devices.classes.phone.down must be above 0, not 0",
    ),
    line("devices: no classes", "devices: {kind: classes, classes: {}}", LAST, "classes must name at least one class"),
    line(
        "devices: a list of classes",
        "devices: {kind: classes, classes: [fast]}",
        LAST,
        "devices.classes must be a section of names",
    ),
    line(
        "devices: a class that is a number",
        "devices: {kind: classes, classes: {3: {seconds: 1, down: 1, up: 1}}}",
        LAST,
        "devices.classes: 3 cannot be a name here",
    ),
    line("devices: a word for a class", "devices: {kind: classes, classes: {a: b}}", LAST, "must be a section of keys"),
    line("clock: without devices", "clock: {deadline: 60}", LAST, "without devices clients take no time"),
    line(
        "clock: a buffer larger than the concurrency",
        "clock: {kind: buffered, concurrency: 2, buffer: 3}",
        LAST,
        "buffer is 3, but only concurrency=2 clients train at once",
    ),
    line("clock: partial work without a deadline", "clock: {late: partial}", LAST, "late=partial needs a deadline"),
    line("clock: fewer than the cohort", "clock: {over: 0.5}", LAST, "clock.over must be at least 1, not 0.5"),
    Case("cohort: Oort without devices", "prefers fast devices: set devices", command=f"{DRY} cohort.sampling=oort"),
    beside("a share of the cohort drops out", "cohort.dropout=0.1", "remove cohort.availability and cohort.dropout"),
    beside("Poisson cohorts", "cohort.sampling=poisson", "takes clients whether they are available or not"),
    beside(
        "privacy",
        f"'privacy={PRIVATE}' strategy.kind=uniform",
        "privacy accounting does not cover",
    ),
    beside(
        "more at work than there are",
        "data.corpus=embedded 'clock={kind: buffered, concurrency: 50, buffer: 20}'",
        "the clock needs at least concurrency + buffer = 70 clients",
        "the population has 60",
    ),
    line("devices: the table is not there", TABLE, LAST, "devices.file: there is no file"),
    phones("a text for a table", "device,seconds\n", "is not a Parquet file that can be read"),
    phones("a column named in Latin-1", LATIN, "is not a Parquet file that can be read"),
    phones(
        "a table without a column",
        parquet(**{name: values for name, values in ROW.items() if name != "up"}),
        "has no column up; its columns are device, seconds, down, latency, watts, radio",
    ),
    phones(
        "a table without devices",
        parquet(**{name: pa.array(values)[:0] for name, values in ROW.items()}),
        "holds no device",
    ),
    phones("a device twice", parquet(**ROW | {"device": ["a", "a"]}), "device 'a' is listed twice"),
    phones("a device without speed", parquet(**ROW | {"seconds": [0.1, 0.0]}), "seconds of device 'b' must be above 0"),
    phones("a speed that is not finite", parquet(**ROW | {"up": [float("nan"), 1.0]}), "row 1 of up is not finite"),
    phones("an empty value", parquet(**ROW | {"up": [1.0, None]}), "the column up must hold numbers"),
    phones("words for numbers", parquet(**ROW | {"watts": ["a", "b"]}), "the column watts must hold numbers"),
    windows("a window that ends early", parquet(device=["a"], start_s=[5.0], end_s=[4.0]), "ends before it has begun"),
    windows(
        "windows that overlap",
        parquet(device=["a", "a"], start_s=[0.0, 4.0], end_s=[5.0, 9.0]),
        "the window of device 'a' from 0 s to 5 s overlaps or touches the next one: join them",
    ),
    windows("no windows", parquet(device=pa.array([], pa.string()), start_s=[], end_s=[]), "holds no window"),
)
