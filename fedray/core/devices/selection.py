"""How clients are chosen among the candidates of a moment.

The first choice from a version of the model is the draw of a cohort, by the generator that draws cohorts without
devices. Of its clients those stay that are candidates. Others are drawn one by one until one is a candidate, by names:
the version, and how many clients have been chosen from it. So a choice takes no time in proportion to the population.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedray.core import seeds
from fedray.core.devices.candidates import Candidates
from fedray.core.drawing import drawn
from fedray.core.seeds import Name, numpy_generator

Floats = npt.NDArray[np.float64]
TRIES = 64  # draws of one client from all clients; as many from those near; then from a list of all candidates


class Selection(ABC):
    """A rule of selection. It changes nothing but `candidates.taken`."""

    def __init__(self, seed: int, population: int) -> None:
        self.seed, self.population = seed, population

    def choose(self, version: int, before: int, count: int, candidates: Candidates) -> list[int]:
        """At most `count` candidates, which are taken then; fewer where there are no more.

        `before`: how many clients have been chosen from this version already.
        """
        chosen: list[int] = []
        for client in self.first(version, count, candidates) if not before and count else ():
            if client in candidates:
                candidates.taken.add(client)
                chosen.append(client)
        while len(chosen) < count:
            one = self.one(version, before + len(chosen), candidates)
            if one is None:
                break
            candidates.taken.add(one)
            chosen.append(one)
        return chosen

    @abstractmethod
    def first(self, version: int, count: int, candidates: Candidates) -> list[int]:
        """The first choice from a version: `count` clients or fewer, whether they are candidates or not."""

    @abstractmethod
    def one(self, version: int, serial: int, candidates: Candidates) -> int | None:
        """A candidate; None: there is none."""


class Uniform(Selection):
    """Each candidate is as likely as the next."""

    def first(self, version: int, count: int, candidates: Candidates) -> list[int]:
        return cohort(self.seed, version, self.population, count)

    def one(self, version: int, serial: int, candidates: Candidates) -> int | None:
        return self.any(candidates, version, serial)

    def any(
        self, candidates: Candidates, *names: Name, fits: Callable[[int], bool] = lambda client: True
    ) -> int | None:
        """A candidate that fits, each as likely as the next; None: there is none."""
        for turn in range(TRIES):
            client = seeds.derive(self.seed, "cohort", *names, turn) % self.population
            if client in candidates and fits(client):
                return client
        near = candidates.near()
        for turn in range(TRIES, 2 * TRIES) if len(near) else ():
            client = int(near[seeds.derive(self.seed, "cohort", *names, turn) % len(near)])
            if client in candidates and fits(client):
                return client
        left = list(filter(fits, candidates.all().tolist()))
        return left[seeds.derive(self.seed, "cohort", *names, 2 * TRIES) % len(left)] if left else None


class Weighted(Selection):
    """A candidate's probability is in proportion to its cost."""

    def __init__(self, seed: int, population: int, cost: Callable[[int], float]) -> None:
        super().__init__(seed, population)
        self.costs = np.array([cost(client) for client in range(population)], np.float64)
        self._until = np.cumsum(self.costs)

    def first(self, version: int, count: int, candidates: Candidates) -> list[int]:
        return cohort(self.seed, version, self.population, count, self.costs)

    def one(self, version: int, serial: int, candidates: Candidates) -> int | None:
        for turn in range(TRIES):
            client = self._at(self._until, seeds.share(self.seed, "cohort", version, serial, turn))
            if client in candidates and self.costs[client] > 0:
                return client
        everyone = candidates.all()
        until = np.cumsum(self.costs[everyone])
        if not len(until) or not until[-1]:
            return None
        return int(everyone[self._at(until, seeds.share(self.seed, "cohort", version, serial, TRIES))])

    @staticmethod
    def _at(until: Floats, share: float) -> int:
        return min(int(until.searchsorted(share * until[-1], "right")), len(until) - 1)


def cohort(seed: int, version: int, population: int, count: int, costs: Floats | None = None) -> list[int]:
    """The cohort of a round, drawn from the whole population."""
    found: list[int] = drawn(numpy_generator(seed, "cohort", version), population, count, costs).tolist()
    return found
