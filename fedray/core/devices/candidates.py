"""The clients that may be chosen at a moment: idle, able to take part, and without a trip from this version."""

from __future__ import annotations

import numpy as np

from fedray.core.devices.availability import HOUR, Availability
from fedray.core.drawing import Clients

DENSE = 0.1  # if this share of the clients can take part, a draw from all clients soon finds one


class Candidates:
    """The candidates at the moment `now`, which the clock advances. `taken`: clients that may not be chosen."""

    def __init__(self, availability: Availability, population: int) -> None:
        self.availability, self.population = availability, population
        self.now = 0
        self.taken = set[int]()
        self._near: tuple[int, Clients | None] | None = None

    def __contains__(self, client: int) -> bool:
        return client not in self.taken and self.availability.until(client, self.now) is not None

    def pool(self) -> Clients | None:
        """Clients among whom candidates are easy to find: everybody (None), or those available in this hour."""
        return None if self.availability.share(self.now) >= DENSE else self._in_this_hour()

    def all(self) -> Clients:
        """All candidates, in order. This takes time proportional to the number of clients available in this hour."""
        near = self._in_this_hour()
        clients = range(self.population) if near is None else near.tolist()
        return np.array([client for client in clients if client in self], np.int64)

    def next(self) -> tuple[int, list[int]] | None:
        """The next moment at which clients that are not taken become available, and these clients; None: never."""
        return self.availability.following(self.now, self.taken)

    def _in_this_hour(self) -> Clients | None:
        hour = self.now // HOUR
        if self._near is None or self._near[0] != hour:
            self._near = hour, self.availability.within(hour * HOUR, (hour + 1) * HOUR)
        return self._near[1]
