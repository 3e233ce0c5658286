"""Oort: choose clients with useful data and a fast device more often.

Lai, Zhu, Madhyastha, Chowdhury. Oort: Efficient Federated Learning via Guided Participant Selection. OSDI 2021,
algorithm 1. There are four differences. Utilities are divided by the bound that they are clipped to, so that they and
the bonus for clients not heard of for a long time have one scale, whatever the loss. Clients that were never seen are
explored uniformly, since nobody knows the speed of their devices. The preferred duration is a percentile of the times
seen, and moves by percentiles. Clients that were chosen often are not retired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedray.core import seeds
from fedray.core.devices.candidates import Candidates
from fedray.core.devices.selection import TRIES, Uniform
from fedray.core.devices.trips import Trip
from fedray.core.drawing import Clients, drawn
from fedray.core.seeds import numpy_generator
from fedray.core.strategies.base import part

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", np.int64, np.float64)
Report = Mapping[str, float]  # `Update.report`: examples, loss and others

PENALTY = 2.0  # alpha: the power of T / t, for devices that take a time t above T
BONUS = 0.1  # factor in the bonus sqrt(0.1 ln R / L) in round R for a client last heard of in round L
CLIP = 0.9  # the quantile of utilities to which they are clipped
CUT = 0.95  # times the count-th best score: clients with at least this score are drawn from
EXPLORED, DECAY, LEAST = 0.9, 0.98, 0.3  # share of never-seen clients in a choice: 0.9 x 0.98^R, at least 0.3
PACE, PERCENT, FASTER = 20, 30.0, 5.0  # every 20 rounds T may rise by 5 percentiles of the times; it begins at the 30th


@dataclass(frozen=True, eq=False)
class OortState:
    """What is known of the clients heard of so far: vectors over these clients, in order of their positions."""

    clients: Clients = field(default_factory=lambda: np.empty(0, np.int64))  # their positions in client_ids()
    utility: Floats = field(default_factory=lambda: np.empty(0))  # of the last report: |B| sqrt(mean loss^2)
    last: Clients = field(default_factory=lambda: np.empty(0, np.int64))  # round of the last report, from 1
    seconds: Floats = field(default_factory=lambda: np.empty(0))  # of the last trip
    percent: float = PERCENT  # T is this percentile of `seconds`
    gains: tuple[float, ...] = ()  # the sum of utilities of each of the last rounds, at most 2 x PACE

    def heard(self, number: int, arrived: Sequence[Trip], reports: Mapping[int, Report]) -> OortState:
        """The state after step `number`, which counts from 0."""
        news = {trip.client: (utility(reports[trip.client]), trip) for trip in arrived if trip.client in reports}
        clients = np.union1d(self.clients, np.array(sorted(news), np.int64))
        old, new = clients.searchsorted(self.clients), clients.searchsorted(np.array(list(news), np.int64))

        def merged(before: npt.NDArray[Number], after: Sequence[float]) -> npt.NDArray[Number]:
            whole = np.zeros(len(clients), before.dtype)
            whole[old], whole[new] = before, after
            return whole

        gains = (*self.gains, float(sum(value for value, _ in news.values())))[-2 * PACE :]
        percent = self.percent
        if (number + 1) % PACE == 0 and len(gains) == 2 * PACE and sum(gains[:PACE]) > sum(gains[PACE:]):
            percent = min(100.0, percent + FASTER)
        return OortState(
            clients,
            merged(self.utility, [value for value, _ in news.values()]),
            merged(self.last, [number + 1] * len(news)),
            merged(self.seconds, [trip.seconds() for _, trip in news.values()]),
            percent,
            gains,
        )

    def scores(self, number: int) -> Floats:
        """The score of each client for step `number`."""
        if not len(self.clients):
            return np.empty(0)
        bound = np.quantile(self.utility, CLIP)
        useful = np.minimum(self.utility, bound) / bound if bound > 0 else np.zeros(len(self.utility))
        score = useful + np.sqrt(BONUS * math.log(number + 1) / self.last)
        wanted = np.percentile(self.seconds, self.percent)
        late = self.seconds > wanted
        score[late] *= (wanted / self.seconds[late]) ** PENALTY
        return score


def utility(report: Report) -> float:
    """|B| sqrt(mean loss^2) of a report. Clients report their mean loss, which stands in for the root mean square."""
    value = report.get("examples", 0.0) * abs(report.get("loss", 0.0))
    return value if math.isfinite(value) else 0.0


def explored(number: int) -> float:
    """The share of the clients chosen in step `number` that were never seen before."""
    return max(LEAST, EXPLORED * DECAY ** (number + 1))


class Oort(Uniform):
    """Oort's rule of selection in step `number`, from the state."""

    def __init__(self, seed: int, population: int, state: OortState, number: int) -> None:
        super().__init__(seed, population)
        self.known, scores = state.clients, state.scores(number)
        order = np.argsort(-scores, kind="stable")  # of equal scores the first client
        self.ranked, self.scores = self.known[order], scores[order]
        self.until = np.cumsum(self.scores)

    def choose(self, version: int, before: int, count: int, candidates: Candidates) -> list[int]:
        """Choose the best clients and never-seen ones, in their shares; one by one if some clients are taken."""
        if not len(self.known) or candidates.taken:
            return super().choose(version, before, count, candidates)
        chosen = self.best(version, before, part(1 - explored(version), count), candidates)
        candidates.taken.update(chosen)
        while len(chosen) < count and (one := self.explore(version, before + len(chosen), candidates)) is not None:
            candidates.taken.add(one)
            chosen.append(one)
        return chosen + super().choose(version, before + len(chosen), count - len(chosen), candidates)

    def one(self, version: int, serial: int, candidates: Candidates) -> int | None:
        if seeds.share(self.seed, "cohort", version, serial, "known") < explored(version):
            client = self.explore(version, serial, candidates)
            if client is not None:
                return client
        best = self.best(version, serial, 1, candidates)
        return best[0] if best else self.any(candidates, version, serial)

    def explore(self, version: int, serial: int, candidates: Candidates) -> int | None:
        """Choose a candidate that was never heard of; None: there is none."""
        if len(self.known) == self.population:
            return None

        def fits(client: int) -> bool:
            place = int(self.known.searchsorted(client))
            return place == len(self.known) or int(self.known[place]) != client

        return self.any(candidates, version, serial, "explored", fits=fits)

    def best(self, version: int, serial: int, count: int, candidates: Candidates) -> list[int]:
        """Draw `count` candidates by their scores, from those that reach 95 % of the `count`-th best score."""
        fitting = (rank for rank, client in enumerate(self.ranked) if int(client) in candidates)
        ranks = list(islice(fitting, count))
        if not ranks:
            return []
        end = int((-self.scores).searchsorted(-CUT * self.scores[ranks[-1]], "right"))
        seed = seeds.derive(self.seed, "cohort", version, serial, "best")
        for turn in range(TRIES if count == 1 else 0):  # faster than a list of all of them
            total = seeds.share(seed, turn) * self.until[end - 1]
            client = int(self.ranked[self.until[: end - 1].searchsorted(total, "right")])
            if client in candidates:
                return [client]
        pool = [rank for rank in range(end) if int(self.ranked[rank]) in candidates]
        return [int(client) for client in drawn(numpy_generator(seed), self.ranked[pool], count, self.scores[pool])]
