"""How clients are chosen among the candidates of a moment.

If no client is taken, a cohort is drawn first, with the generator that draws cohorts without devices, and the clients
in it that can take part are chosen. All others are drawn one by one until one is a candidate; the version and the
number of clients already chosen from it name the draw. So the time to choose one client does not grow with the
population.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedray.core import seeds
from fedray.core.devices.candidates import Candidates
from fedray.core.drawing import Clients, drawn
from fedray.core.seeds import Name, numpy_generator

TRIES = 100  # draws of one client before it is drawn from a list of all candidates


class Selection(ABC):
    """A rule of selection. It changes nothing but `candidates.taken`."""

    def __init__(self, seed: int, population: int) -> None:
        self.seed, self.population = seed, population

    def choose(self, version: int, before: int, count: int, candidates: Candidates) -> list[int]:
        """Choose at most `count` candidates and mark them as taken; fewer if there are no more.

        `before`: how many clients have been chosen from this version already.
        """
        first = self.first(version, count) if count and not candidates.taken else []
        chosen = [client for client in first if client in candidates]
        candidates.taken.update(chosen)
        while len(chosen) < count:
            one = self.one(version, before + len(chosen), candidates)
            if one is None:
                break
            candidates.taken.add(one)
            chosen.append(one)
        return chosen

    def one(self, version: int, serial: int, candidates: Candidates) -> int | None:
        """Choose one candidate; None: there is none."""
        return self.any(candidates, version, serial)

    def any(
        self, candidates: Candidates, *names: Name, fits: Callable[[int], bool] = lambda client: True
    ) -> int | None:
        """Choose one candidate that fits; None: there is none."""
        pool, seed = candidates.pool(), seeds.derive(self.seed, "cohort", *names)
        for turn in range(TRIES):
            client = self.draw(pool, seeds.share(seed, turn))
            if client is None:
                return None
            if client in candidates and fits(client):
                return client
        left = np.array(list(filter(fits, candidates.all().tolist())), np.int64)
        return self.draw(left, seeds.share(seed, TRIES))

    @abstractmethod
    def first(self, version: int, count: int) -> list[int]:
        """A cohort drawn from all clients, whether they can take part or not."""

    @abstractmethod
    def draw(self, among: Clients | None, share: float) -> int | None:
        """Draw one of the clients `among` (None: of all) by a number in [0, 1); None: there is nobody to draw."""

    def allows(self, client: int) -> bool:
        """Whether a client can be drawn at all."""
        return True


class Uniform(Selection):
    """All candidates are equally likely."""

    def first(self, version: int, count: int) -> list[int]:
        return cohort(self.seed, version, self.population, count)

    def draw(self, among: Clients | None, share: float) -> int | None:
        if among is None:
            return int(share * self.population)
        return int(among[int(share * len(among))]) if len(among) else None


class Weighted(Selection):
    """A candidate's probability is proportional to its cost."""

    def __init__(self, seed: int, population: int, cost: Callable[[int], float]) -> None:
        super().__init__(seed, population)
        self.costs = np.array([cost(client) for client in range(population)], np.float64)
        self._everybody = np.cumsum(self.costs)
        self._newest: tuple[Clients, npt.NDArray[np.float64]] | None = None  # clients, and the sums of their costs

    def first(self, version: int, count: int) -> list[int]:
        return cohort(self.seed, version, self.population, count, self.costs)

    def draw(self, among: Clients | None, share: float) -> int | None:
        until = self._everybody if among is None else self._until(among)
        if not len(until) or not until[-1]:
            return None
        place = min(int(until.searchsorted(share * until[-1], "right")), len(until) - 1)
        return place if among is None else int(among[place])

    def allows(self, client: int) -> bool:
        return bool(self.costs[client] > 0)

    def _until(self, among: Clients) -> npt.NDArray[np.float64]:
        if self._newest is None or self._newest[0] is not among:
            self._newest = among, np.cumsum(self.costs[among])
        return self._newest[1]


def cohort(
    seed: int, version: int, population: int, count: int, costs: npt.NDArray[np.float64] | None = None
) -> list[int]:
    """The cohort of a round, drawn from the whole population."""
    found: list[int] = drawn(numpy_generator(seed, "cohort", version), population, count, costs).tolist()
    return found
