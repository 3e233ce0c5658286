"""Rounds in virtual time: the clock says which clients arrive, and from which round's model; only these are trained."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from fedray.core.compression.links import Link
from fedray.core.devices.clock import Clock
from fedray.core.devices.state import ClockState, Step
from fedray.core.devices.trips import SECOND, Load, Trip
from fedray.core.types import Broadcast, RunError
from fedray.engine.jobs.work import Program
from fedray.engine.lane.lane import LaneResult
from fedray.runs import trips_table
from fedray.runs.folder import RunFolder
from fedray.runs.progress import Progress

HOUR = 3600.0  # seconds
TOTALS = ("device_s", "wasted_s", "energy_wh")  # of all trips so far, in `Progress.totals`


@dataclass(frozen=True)
class Group:
    """Clients that arrive in one round and train from the same model."""

    model: int  # the round whose broadcast they train from
    clients: Sequence[str]
    factor: np.float32  # of their updates
    work: Mapping[str, float]  # client -> the share of its steps, if a deadline cuts them short


@dataclass(frozen=True)
class SimulatedRound:
    """What the clock has simulated in a round."""

    step: Step
    state: ClockState  # after it
    row: Mapping[str, float | None] = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)
    trips: Sequence[Mapping[str, Any]] = ()  # rows of trips.jsonl


class VirtualRounds:
    """What the driver adds to the rounds of a run with devices."""

    def __init__(self, clock: Clock, program: Program) -> None:
        self.clock, self.program, self.ids = clock, program, program.data.client_ids()
        self._link = Link(program.upload.code, program.algorithm.tensors())

    def simulate(self, progress: Progress, broadcast: Broadcast, down: int, first: int) -> SimulatedRound:
        """Simulate the next round. RunError: no client is available for days.

        `down`: bytes of the broadcast; `first`: bytes that a client gets once, before its first trip.
        """
        algorithm, cost = self.program.algorithm, self.program.data.cost
        up = sum(map(self._link.size, algorithm.sends(broadcast)))

        def load(client: int, new: bool) -> Load:
            passes = algorithm.passes() + algorithm.prepare_passes * new
            return Load(down + first * new, up, passes * cost(self.ids[client]))

        state = ClockState.of(progress.clock) if progress.clock else self.clock.start()
        try:
            step, after = self.clock.simulate(state, progress.round, load, Seen(self.ids, progress))
        except ValueError as error:
            raise RunError(str(error)) from error
        return SimulatedRound(step, after)

    def groups(self, step: Step) -> Iterator[Group]:
        """The clients that are trained, grouped by the model that they start from, the oldest first."""
        arrived = sorted(step.arrived, key=attrgetter("version")) if step.complete else ()
        for model, trips in groupby(arrived, attrgetter("version")):
            group = list(trips)
            clients = [self.ids[trip.client] for trip in group]
            work = {client: trip.work for client, trip in zip(clients, group, strict=True) if trip.work < 1}
            yield Group(model, clients, np.float32(self.clock.factor(step, group[0])), work)

    def done(self, simulated: SimulatedRound, progress: Progress, lanes: Sequence[LaneResult]) -> SimulatedRound:
        """The round with its row and its trips, and the clock's state after the clients' reports."""
        step, place = simulated.step, {self.ids[trip.client]: trip.client for trip in simulated.step.arrived}
        reports = {place[client]: report for lane in lanes for client, report in lane.reports.items()}
        state = self.clock.heard(simulated.state, step, reports)
        failed = {place[failure.client] for lane in lanes for failure in lane.failures}
        trips = [self._trip(trip, step, failed) for trip in sorted(step.decided())]
        totals = {name: progress.totals.get(name, 0.0) for name in TOTALS}
        for trip in trips:
            spent = trip["compute_s"] + trip["transfer_s"]
            totals["device_s"] += spent
            totals["wasted_s"] += 0.0 if trip["used"] else spent
            totals["energy_wh"] += trip["energy_wh"]
        behind = [step.behind(trip) for trip in step.arrived]
        row: dict[str, float | None] = {
            "virtual/arrived": len(step.arrived),
            "virtual/lost": len(step.lost),
            "virtual/late": len(step.late),
            "virtual/aborted": len(step.aborted),
            "virtual/models": len(under_way(state) | {step.number + 1}),
            "virtual/staleness": float(np.mean(behind)) if behind else None,
            "virtual/staleness_most": max(behind, default=None),
        }
        return SimulatedRound(step, state, row | scalars(state, totals), totals, trips)

    def finish(self, folder: RunFolder) -> dict[str, Any]:
        """Write trips.parquet. Returns for results.json how many clients have devices of each class."""
        trips_table.write(folder)
        devices = self.clock.devices
        clients = np.bincount(devices.class_of_row[devices.row], minlength=len(devices.classes))
        return {"devices": dict(zip(devices.classes, clients.tolist(), strict=True))}

    def _trip(self, trip: Trip, step: Step, failed: Container[int]) -> dict[str, Any]:
        compute, transfer = trip.spent()
        return {
            "round": step.number + 1,
            "client": self.ids[trip.client],
            "class": self.clock.devices.class_of(trip.client),
            "model": trip.version,
            "start_s": trip.start / SECOND,
            "end_s": trip.end / SECOND,
            "fate": trip.fate,
            "used": step.used(trip) and trip.client not in failed,
            "work": trip.work,
            "compute_s": compute,
            "transfer_s": transfer,
            "energy_wh": self.clock.devices.watt_hours(trip),
        }


@dataclass(frozen=True)
class Seen:
    """The positions of the clients that have taken part."""

    ids: Sequence[str]
    progress: Progress

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and self.progress.took_part(self.ids[client])


def under_way(state: ClockState) -> set[int]:
    """The rounds whose models clients under way train from."""
    return {trip.version for trip in state.open}


def scalars(state: ClockState, totals: Mapping[str, float]) -> dict[str, float]:
    """The hours passed so far, and the devices' hours and energy in all trips, with the share of time wasted."""
    spent = totals["device_s"]
    return {
        "virtual/hours": state.now / SECOND / HOUR,
        "virtual/device_hours": spent / HOUR,
        "virtual/energy_wh": totals["energy_wh"],
        "virtual/wasted_share": totals["wasted_s"] / spent if spent else 0.0,
    }
