"""The clock of a configuration, simulated without training: which clients would arrive when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedray.config.source import Source
from fedray.core.compression.links import Link
from fedray.core.devices.clock import Clock
from fedray.core.devices.settings import NoDevices
from fedray.core.devices.state import Step
from fedray.core.devices.table import Devices
from fedray.core.devices.trips import Load
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.jobs.work import asset_bytes
from fedray.engine.round.downlink import deliver
from fedray.experiment.builders import build_data
from fedray.experiment.config import Config
from fedray.experiment.devices import build_clock
from fedray.experiment.tensors import first_broadcast

WEEK, DAY, HOUR = 168, 24, 3_600_000_000  # hours, hours, microseconds
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """What a trip transfers and computes in a run."""

    down: int  # bytes
    first: int  # additional bytes, before a client's first trip
    up: int  # bytes
    passes: float  # of training, over the client's utterances
    prepares: float  # passes that take as long as a client's preparation, before its first trip
    utterances: Floats  # of each client

    def load(self, client: int, first: bool) -> Load:
        """The load of a trip. `client`: the client's position; `first`: whether this is its first trip."""
        passes = self.passes + self.prepares * first
        return Load(self.down + self.first * first, self.up, passes * float(self.utterances[client]))


@dataclass(frozen=True)
class Rehearsal:
    """Devices, work and steps of a run. `config` has absolute paths."""

    config: Config
    clock: Clock
    work: Work
    steps: tuple[Step, ...]

    @property
    def devices(self) -> Devices:
        """The devices of all clients."""
        return self.clock.devices

    def rates(self) -> Mapping[str, Floats]:
        """The rates of each client's device, [clients]: seconds per pass over an utterance, and bit/s down and up."""
        devices = self.devices
        column = {name: devices.columns[name][devices.row] for name in ("seconds", "down", "up")}
        own = {"down": column["down"] / devices.narrow, "up": column["up"] / devices.narrow}
        return {"seconds": column["seconds"] * devices.slow, **own}

    @cached_property
    def trips(self) -> Floats:
        """Seconds of each client's trips after its first, [clients]."""
        return np.array([sum(self.phases(client)) for client in range(len(self.devices))])

    def phases(self, client: int) -> tuple[float, float, float, float]:
        """Seconds of latency, download, computing and upload of a client's trips after its first."""
        return self.devices.phases(client, self.work.load(client, False))

    @cached_property
    def available(self) -> Floats:
        """[24, clients]: the share of a week's days on which each client is available at each full hour."""
        days = np.zeros((DAY, len(self.devices)))
        for hour in range(WEEK):
            here = self.devices.availability.within(hour * HOUR, hour * HOUR + 1)
            days[hour % DAY, slice(None) if here is None else here] += 1
        return days / (WEEK // DAY)


def rehearse(config: Config, source: Source) -> Rehearsal:
    """Simulate all rounds of a checked configuration.

    The data are read as for a run, and stay in the cache. Oort can tell clients apart only by utterances and time,
    since all report the same loss. ValueError: the configuration has no devices, or no client is available for days.
    """
    if isinstance(config.devices, NoDevices):
        raise ValueError(
            "the configuration has no devices: set devices.kind, or name one such as devices/fednst_rounds"
        )
    data, _ = build_data(config, source)
    clock = build_clock(config, data)
    assert clock is not None
    work = _work(config, data)
    return Rehearsal(config, clock, work, tuple(simulated(clock, work, config.rounds)))


def simulated(clock: Clock, work: Work, rounds: int) -> Iterator[Step]:
    """Simulate so many rounds; yields their steps. All clients report the same loss.

    ValueError: no client is available for days.
    """
    state, seen = clock.start(), set[int]()
    for number in range(rounds):
        step, state = clock.simulate(state, number, work.load, seen)
        here = [trip.client for trip in step.arrived]
        state = clock.heard(state, step, {one: {"examples": work.utterances[one], "loss": 1.0} for one in here})
        seen.update(here)
        yield step


def _work(config: Config, data: SpeechData) -> Work:
    """The work of a trip: bytes from the sizes of vectors, and passes from the algorithm."""
    algorithm, broadcast = first_broadcast(config, data)
    _, down = deliver(broadcast, config.download, algorithm)
    link, first = Link(config.upload.code, algorithm.tensors()), 4 * broadcast.constant
    if algorithm.overrides("client_prepare") and algorithm.prepare_reads:
        first += asset_bytes(algorithm.assets(data))
    up = sum(map(link.size, algorithm.sends(broadcast)))
    utterances = np.array([data.cost(client) for client in data.client_ids()], np.float64)
    return Work(down, first, up, algorithm.passes(), algorithm.prepare_passes, utterances)
