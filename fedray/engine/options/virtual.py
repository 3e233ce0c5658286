"""Rounds in virtual time: the clock says which clients arrive, and from which round's model; only these are trained."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from fedray.core.compression.links import Link
from fedray.core.devices.clock import Clock
from fedray.core.devices.state import ClockState, Step
from fedray.core.devices.trips import SECOND, Load, Trip
from fedray.core.types import Broadcast, RunError
from fedray.engine.lane.lane import Lane
from fedray.engine.options.earlier import EarlierModels
from fedray.engine.round.downlink import Posted
from fedray.engine.round.option import Option
from fedray.engine.round.outcome import Draw, Outcome
from fedray.engine.round.rounds import Rounds
from fedray.runs import trips_table
from fedray.runs.folder import TRIPS, RunFolder
from fedray.runs.progress import Progress

HOUR = 3600.0  # seconds
TOTALS = ("device_s", "wasted_s", "energy_wh")  # of all trips so far, in `Progress.totals`


@dataclass(frozen=True)
class Arrivals(Draw):
    """The clients that start in a round under the clock, and those that arrive, perhaps from earlier rounds."""

    step: Step = field(kw_only=True)
    state: ClockState = field(kw_only=True)  # after the step


class VirtualRounds(Option):
    """Rounds of a run with devices."""

    def __init__(self, clock: Clock, rounds: Rounds) -> None:
        self.clock, self.rounds, self.ids = clock, rounds, rounds.program.data.client_ids()
        program = rounds.program
        self._link = Link(program.upload.code, program.algorithm.tensors())
        self._earlier = EarlierModels(program.states, program.algorithm, program.download, rounds.pool.put)

    def resume(self, progress: Progress) -> None:
        """Read the models that clients under way train from. RunError: one is lost."""
        if progress.models:
            self._earlier.load(progress.models, self.rounds.put(progress.state, progress.round).broadcast)

    def draw(self, progress: Progress) -> Arrivals:
        """The clients that start, and the lanes of those that arrive. A lane trains from one model.

        RunError: no client is available for days.
        """
        posted = self.rounds.put(progress.state, progress.round)
        step, state = self._simulate(progress, posted)
        lanes: list[Lane] = []
        arrived = sorted(step.arrived, key=attrgetter("version")) if step.complete else []
        for model, group in groupby(arrived, attrgetter("version")):
            trips = list(group)
            clients = [self.ids[trip.client] for trip in trips]
            work = {client: trip.work for client, trip in zip(clients, trips, strict=True) if trip.work < 1}
            factor = np.float32(self.clock.factor(step, trips[0]))
            cut = self.rounds.lanes(progress, clients, first=len(lanes))
            lanes += [replace(lane, model=model, factor=factor, work=work) for lane in cut]
        begun, answering = ([self.ids[trip.client] for trip in trips] for trips in (step.begun, arrived))
        return Arrivals(begun, answering, lanes, lost=not step.complete, step=step, state=state)

    def posted(self, lane: Lane) -> Posted | None:
        """The model of the round in which the lane's clients started."""
        return None if lane.trains_from == lane.round else self._earlier.posted(lane.trains_from)

    def lost(self) -> None:
        self._earlier.lost()

    def _simulate(self, progress: Progress, posted: Posted) -> tuple[Step, ClockState]:
        algorithm, cost = self.rounds.algorithm, self.rounds.program.data.cost
        up = sum(map(self._link.size, algorithm.sends(posted.broadcast)))
        once = 4 * posted.broadcast.constant
        if algorithm.overrides("client_prepare"):
            once += self.rounds.to_prepare(progress.round)

        def load(client: int, new: bool) -> Load:
            passes = algorithm.passes() + algorithm.prepare_passes * new
            return Load(posted.bytes + once * new, up, passes * cost(self.ids[client]))

        state = ClockState.of(progress.clock) if progress.clock else self.clock.start()
        try:
            return self.clock.simulate(state, progress.round, load, Seen(self.ids, progress))
        except ValueError as error:
            raise RunError(str(error)) from error

    def finish(self, progress: Progress, outcome: Outcome, broadcast: Broadcast) -> None:
        """Add the round's row and trips, and keep the clock's state and the models of clients under way."""
        draw = outcome.draw
        assert isinstance(draw, Arrivals)
        step, numbers = draw.step, {self.ids[trip.client]: trip.client for trip in draw.step.arrived}
        reports = {numbers[client]: report for lane in outcome.lanes for client, report in lane.reports.items()}
        state = self.clock.heard(draw.state, step, reports)
        failed = {numbers[failure.client] for failure in outcome.failures}
        trips = [self._trip(trip, step, failed) for trip in sorted(step.decided())]
        totals = {name: progress.totals.get(name, 0.0) for name in TOTALS}
        for trip in trips:
            spent = trip["compute_s"] + trip["transfer_s"]
            totals["device_s"] += spent
            totals["wasted_s"] += 0.0 if trip["used"] else spent
            totals["energy_wh"] += trip["energy_wh"]
        behind = [step.behind(trip) for trip in step.arrived]
        outcome.row |= {
            "virtual/arrived": len(step.arrived),
            "virtual/lost": len(step.lost),
            "virtual/late": len(step.late),
            "virtual/aborted": len(step.aborted),
            "virtual/models": len(under_way(state) | {step.number + 1}),
            "virtual/staleness": float(np.mean(behind)) if behind else None,
            "virtual/staleness_most": max(behind, default=None),
        }
        outcome.row |= scalars(state, totals)
        outcome.cohort, outcome.dropped = len(trips), len(trips) - len(draw.answering)
        outcome.totals, outcome.tables[TRIPS] = totals, trips
        t, newest = progress.round, self.rounds.put(progress.state, progress.round)
        models = self._earlier.keep(under_way(state), newest, t, progress.models)
        outcome.progress |= {"clock": state.arrays(), "models": models}

    def results(self, progress: Progress, folder: RunFolder) -> dict[str, Any]:
        """The time that passed, and how many clients have devices of each class. Writes trips.parquet."""
        trips_table.write(folder)
        devices = self.clock.devices
        clients = np.bincount(devices.class_of_row[devices.row], minlength=len(devices.classes))
        passed = scalars(ClockState.of(progress.clock), progress.totals) if progress.clock else {}
        return passed | {"devices": dict(zip(devices.classes, clients.tolist(), strict=True))}

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
