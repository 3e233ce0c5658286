"""Who may be chosen at a moment: a client that is idle, can take part, and has had no trip from this version."""

from __future__ import annotations

import numpy as np

from fedray.core.devices.availability import HOUR, Availability
from fedray.core.drawing import Clients

SLOT = HOUR // 4  # us; the clients with a window in the same quarter of an hour are found at once


class Candidates:
    """The candidates at the moment `now`, which the clock moves. `taken`: clients at work or served already."""

    def __init__(self, availability: Availability, population: int) -> None:
        self.availability, self.population = availability, population
        self.now = 0
        self.taken = set[int]()
        self._slot: tuple[int, Clients] | None = None

    def __contains__(self, client: int) -> bool:
        return client not in self.taken and self.availability.until(client, self.now) is not None

    def near(self) -> Clients:
        """The clients that can take part at some moment of this quarter of an hour, in order."""
        slot = self.now // SLOT
        if self._slot is None or self._slot[0] != slot:
            here = self.availability.within(slot * SLOT, (slot + 1) * SLOT)
            self._slot = slot, np.arange(self.population) if here is None else here
        return self._slot[1]

    def all(self) -> Clients:
        """All candidates, in order. This takes time in proportion to `near`."""
        return np.array([client for client in self.near().tolist() if client in self], np.int64)

    def next(self) -> int | None:
        """The next moment at which somebody becomes available who is not taken; None: never."""
        return self.availability.following(self.now, self.taken)
