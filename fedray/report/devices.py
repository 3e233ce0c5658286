"""Devices in a report: how their trips end, how stale the arrivals are, and whose updates count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.devices.table import jain
from fedray.core.devices.trips import ARRIVES, FATES
from fedray.report.groups import Group
from fedray.report.recorded import Run

USED, UNUSED = "used", "unused"  # arrivals; unused: the round was lost, or the client failed
ENDS = (USED, UNUSED, *(fate for fate in FATES if fate != ARRIVES))
WORDS = {USED: "counts", UNUSED: "arrives, wasted"} | {end: end for end in ENDS[2:]}


@dataclass
class Ends:
    """How the trips of a class of devices end, and how long they take."""

    trips: Counter[str] = field(default_factory=Counter)  # by end, one of `ENDS`
    seconds: float = 0.0  # of all trips

    def share(self, end: str) -> float:
        """The share of the trips with this end, in percent."""
        return 100 * self.trips[end] / self.trips.total()

    @property
    def seconds_a_trip(self) -> float:
        return self.seconds / self.trips.total()


def trips(runs: Sequence[Run]) -> pa.Table | None:
    """The trips of all runs; None if there are none."""
    found = [run.trips for run in runs if run.trips is not None and len(run.trips)]
    return pa.concat_tables(found) if found else None


def ends(group: Group) -> dict[str, Ends]:
    """Class -> how the trips of its devices end, over all runs of a group; empty if there are no trips."""
    table, found = trips(group.runs), dict[str, Ends]()
    if table is None:
        return found
    keys = ["class", "fate", "used"]
    lasted = table.select(keys).append_column("s", pc.subtract(table["end_s"], table["start_s"]))
    for row in lasted.group_by(keys, use_threads=False).aggregate([("s", "sum"), ("s", "count")]).to_pylist():
        of_class = found.setdefault(row["class"], Ends())
        end = row["fate"] if row["fate"] != ARRIVES else USED if row["used"] else UNUSED
        of_class.trips[end] += row["s_count"]
        of_class.seconds += row["s_sum"]
    return {name: found[name] for name in ordered(group.runs, found)}


def staleness(group: Group) -> np.ndarray:
    """The staleness in rounds of the model of each arrival, over all runs of a group, int64 [arrivals]."""
    table = trips(group.runs)
    if table is None:
        return np.empty(0, np.int64)
    arrived = table.filter(pc.equal(table["fate"], ARRIVES))
    behind: np.ndarray = arrived["round"].to_numpy() - 1 - arrived["model"].to_numpy()
    return behind


@dataclass(frozen=True)
class Fairness:
    """Whose updates count, by class of devices and over the clients."""

    updates: dict[str, float]  # class -> its share of the updates that count, in percent
    devices: dict[str, float]  # class -> its share of the devices, in percent
    jain: float  # Jain's index of the clients' numbers of updates that count, from 1 / clients to 1


def fairness(group: Group) -> Fairness | None:
    """The fairness of a group, mean over its finished runs; None if none of them has devices."""
    found = [one for run in group.finished if (one := _fairness(run)) is not None]
    if not found:
        return None
    names = dict.fromkeys(name for one in found for name in one.devices)
    updates = {name: mean(one.updates.get(name, 0.0) for one in found) for name in names}
    devices = {name: mean(one.devices.get(name, 0.0) for one in found) for name in names}
    return Fairness(updates, devices, mean(one.jain for one in found))


def _fairness(run: Run) -> Fairness | None:
    sizes, table = run.devices, run.trips
    if table is None or not sum(sizes.values()):
        return None
    used = table.filter(table["used"])
    counts = {row["class"]: row["client_count"] for row in _counted(used, "class")}
    clients = np.zeros(sum(sizes.values()))
    each = [row["client_count"] for row in _counted(used, "client")]
    clients[: len(each)] = each
    return Fairness(
        {name: 100 * counts.get(name, 0) / max(len(used), 1) for name in sizes},
        {name: 100 * size / len(clients) for name, size in sizes.items()},
        jain(clients),
    )


def _counted(table: pa.Table, key: str) -> list[dict[str, Any]]:
    return list(table.group_by(key, use_threads=False).aggregate([("client", "count")]).to_pylist())


def ordered(runs: Sequence[Run], classes: Collection[str]) -> list[str]:
    """The classes in the order of the configuration, then the others by name."""
    configured = dict.fromkeys(name for run in runs for name in run.devices)
    return [*(name for name in configured if name in classes), *sorted(set(classes) - configured.keys())]
