"""A trip: from the choice of a client to the arrival of its update."""

from __future__ import annotations

from typing import NamedTuple

SECOND = 1_000_000  # microseconds, the unit in which the clock counts
ARRIVES, LOST, LATE, ABORTED = "arrives", "lost", "late", "aborted"
FATES = (ARRIVES, LOST, LATE, ABORTED)


class Load(NamedTuple):
    """What a trip has to transfer and to compute."""

    down: int  # bytes
    up: int  # bytes
    utterances: float  # passes of training x utterances


class Trip(NamedTuple):
    """A trip. Trips sort by their end, and trips that end together by their clients' positions in client_ids().

    A trip that is late or aborted ends when it is stopped.
    """

    end: int  # us
    client: int  # its position in client_ids()
    version: int  # the round whose model the client starts from
    start: int  # us
    fate: str  # arrives | lost: the device gives up or leaves | late: the round ends first | aborted: too far behind
    work: float  # share of the local training that the client does; below 1 only with `late: partial`
    latency: float  # s, of the whole trip, like the fields below
    down: float  # s
    compute: float  # s, `work` included
    up: float  # s

    def stopped(self, at: int, fate: str) -> Trip:
        """The trip with the given fate, stopped by the server at the time `at`."""
        return self._replace(end=min(self.end, at), fate=fate)

    def seconds(self) -> float:
        """Seconds that the device spends on the trip."""
        return (self.end - self.start) / SECOND

    def spent(self) -> tuple[float, float]:
        """Seconds of computing and of transfer until the trip ends."""
        if self.fate == ARRIVES:
            return self.compute, self.down + self.up
        left = self.seconds() - self.latency
        down = min(max(left, 0.0), self.down)
        compute = min(max(left - self.down, 0.0), self.compute)
        up = min(max(left - self.down - self.compute, 0.0), self.up)
        return compute, down + up
