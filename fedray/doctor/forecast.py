"""Forecasts who takes part in the rounds of a run, from its cohorts alone or from the clock of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedray.core.algorithm import Algorithm
from fedray.core.devices.clock import Clock
from fedray.core.devices.trips import SECOND
from fedray.core.types import FederatedData
from fedray.engine.round import cohort as cohorts
from fedray.engine.settings import CohortSettings
from fedray.experiment.rehearsal import Work, simulated

HOUR = 3600.0  # seconds


@dataclass(frozen=True)
class Cohort:
    """A round: the clients that get the model, and those that train."""

    chosen: list[str]
    answering: list[str]
    virtual: dict[str, float] | None = None  # with devices, after the round: hours, device hours, energy, share wasted


def by_draw(data: FederatedData, settings: CohortSettings, seed: int, rounds: int) -> Iterator[Cohort]:
    """The rounds of a run without devices."""
    for t in range(rounds):
        chosen = cohorts.sample(data.client_ids(), settings, data.cost, seed, t)
        yield Cohort(chosen, [client for client in chosen if not cohorts.drops_out(client, settings, seed, t)])


def by_clock(
    clock: Clock, data: FederatedData, algorithm: Algorithm, rounds: int, up: int, down: int, first: int
) -> Iterator[Cohort]:
    """The rounds of a run with devices. ValueError: no client is available for days.

    `up`, `down`: bytes of a trip; `first`: bytes that a client gets once. Oort sees equal losses.
    """
    ids = data.client_ids()
    utterances = np.array([data.cost(client) for client in ids], np.float64)
    work = Work(down, first, up, algorithm.passes(), algorithm.prepare_passes, utterances)
    spent = wasted = energy = 0.0
    for step in simulated(clock, work, rounds):
        for trip in step.decided():
            seconds = sum(trip.spent())
            spent += seconds
            wasted += 0.0 if step.used(trip) else seconds
            energy += clock.devices.watt_hours(trip)
        virtual = {"hours": step.ended / SECOND / HOUR, "device hours": spent / HOUR, "energy": energy}
        virtual["wasted"] = wasted / spent if spent else 0.0
        answering = [ids[trip.client] for trip in step.arrived] if step.complete else []
        yield Cohort([ids[trip.client] for trip in step.begun], answering, virtual)
