"""FedScale's traces of devices (Lai et al., ICML 2022), whose files are pickles.

For each device, `client_device_capacity` holds the milliseconds of inference on one sample and the kbit/s of its
network (measured by AI Benchmark and MobiPerf). `client_behave_trace` says when it is available, from FLASH's users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedray.data.devices import plain_pickle, tables
from fedray.data.devices.tables import Converted, Missing, Vector, Window, shown

CAPACITY = ("computation", "communication")
BEHAVIOUR = ("active", "inactive", "finish_time")
PASSES = 3.0  # a training step takes as long as three inferences: FedScale's own factor
MOST_KEY = 2**63
KEYS = f"either {' and '.join(CAPACITY)}, or {', '.join(BEHAVIOUR)}"


def convert(path: Path, missing: Missing) -> Converted:
    """Convert either file to a table. A ValueError names the file and the device that is wrong."""
    trace = plain_pickle.read(path)
    if not isinstance(trace, dict) or not trace:
        raise ValueError(f"{path} holds no dictionary of devices: name client_device_capacity or client_behave_trace")
    lines = [f" device {shown(key)}" for key in trace]
    for key, line in zip(trace, lines, strict=True):
        if not isinstance(key, str | int) or isinstance(key, int) and abs(key) > MOST_KEY:
            raise ValueError(f"{path}:{line}: the key of a device must be text or a whole number: correct it")
    records = list(trace.values())
    if isinstance(records[0], dict) and "active" in records[0]:
        return _windows(path, lines, trace)
    columns = _columns(path, lines, records, CAPACITY)
    milliseconds = tables.numbers(path, lines, "computation", columns["computation"])
    rates = (1e3 * tables.numbers(path, lines, "communication", columns["communication"])).tolist()
    seconds = (PASSES * milliseconds / 1e3).tolist()
    given = {"device": _names(trace), "seconds": seconds, "down": rates, "up": rates}
    return tables.devices(path, lines, given, missing)


def _windows(path: Path, lines: Sequence[str], trace: Mapping[Any, Any]) -> Converted:
    columns = _columns(path, lines, list(trace.values()), BEHAVIOUR)
    periods = tables.numbers(path, lines, "finish_time", columns["finish_time"])
    rows, never = [], []
    for line, name, period, *spans in zip(
        lines, _names(trace), periods, columns["active"], columns["inactive"], strict=True
    ):
        starts, ends = (_times(path, line, values) for values in spans)
        if len(starts) != len(ends) or (ends < starts).any():
            raise ValueError(f"{path}:{line}: every active needs an inactive that is not before it: correct them")
        # FedScale counts time modulo finish_time, so later times never come. Some windows have no length.
        found = [(start, end) for start, end in zip(starts, ends.clip(max=period), strict=True) if start < end]
        rows += [Window(line, name, float(start), float(end), float(period)) for start, end in found]
        never += [] if found else [name]
    return tables.windows(path, rows, never)


def _times(path: Path, line: str, values: Any) -> Vector:
    if not isinstance(values, list):
        raise ValueError(f"{path}:{line}: active and inactive must be lists of seconds: correct them")
    return tables.numbers(path, [line] * len(values), "a time", values)


def _columns(path: Path, lines: Sequence[str], records: Sequence[Any], keys: Sequence[str]) -> dict[str, list[Any]]:
    for line, record in zip(lines, records, strict=True):
        if not isinstance(record, dict) or not all(key in record for key in keys):
            raise ValueError(f"{path}:{line} does not have the keys of FedScale's traces, {KEYS}: correct it")
    return {key: [record[key] for record in records] for key in keys}


def _names(trace: Mapping[Any, Any]) -> list[str]:
    return [str(key) for key in trace]
