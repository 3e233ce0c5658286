"""The virtual clock: who arrives when. It trains nothing and knows nothing of models.

Time is an integer number of microseconds from 0, which is midnight. Every draw is seeded by name, so a run that resumes
from a state reproduces the same trips.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from fedray.core import seeds
from fedray.core.devices.availability import DAY
from fedray.core.devices.candidates import Candidates
from fedray.core.devices.oort import Oort, OortState, Report
from fedray.core.devices.selection import Selection, Uniform, Weighted
from fedray.core.devices.settings import BufferedClock, RoundsClock
from fedray.core.devices.state import ClockState, Step
from fedray.core.devices.table import Devices
from fedray.core.devices.trips import ABORTED, ARRIVES, LATE, LOST, SECOND, Load, Trip

PATIENCE = 7 * DAY  # us that the server waits for clients before it gives up
LONGEST = 36_500 * DAY / SECOND  # s, the longest trip


class Clock:
    """Simulates the steps of a run.

    `ids`: client_ids(); a client is known by its position there. `size`: clients of a cohort (kind `rounds`).
    `sampling`: `cohort.sampling`: uniform, weighted or oort. `cost`: the cost of the client at a position, for weighted
    cohorts.
    """

    def __init__(
        self,
        settings: RoundsClock | BufferedClock,
        devices: Devices,
        ids: Sequence[str],
        seed: int,
        size: int,
        sampling: str = "uniform",
        cost: Callable[[int], float] = lambda client: 1.0,
    ) -> None:
        assert len(devices) == len(ids) and sampling in ("uniform", "weighted", "oort")
        self.settings, self.devices, self.ids, self.seed, self.size = settings, devices, ids, seed, size
        self.adapts = sampling == "oort"
        self.candidates = Candidates(devices.availability, len(ids))
        self._rule: Selection = Weighted(seed, len(ids), cost) if sampling == "weighted" else Uniform(seed, len(ids))

    def start(self) -> ClockState:
        """The state before the first step."""
        return ClockState(oort=OortState() if self.adapts else None)

    def simulate(
        self, state: ClockState, number: int, load: Callable[[int, bool], Load], seen: Container[int]
    ) -> tuple[Step, ClockState]:
        """Simulate step `number`; return it and the state after it.

        `load(client, first)`: what a trip of the client moves and computes; `first`: the client has never arrived.
        `seen`: clients that arrived in an earlier step. ValueError: nobody is available for seven days, or a trip takes
        more than a hundred years.
        """
        simulation = _Simulation(self, state, number, load, seen)
        settings = self.settings
        step = simulation.round(settings) if isinstance(settings, RoundsClock) else simulation.buffered(settings)
        return step, ClockState(step.ended, tuple(simulation.open), state.oort)

    def heard(self, state: ClockState, step: Step, reports: Mapping[int, Report]) -> ClockState:
        """The state after the reports of a step's clients. It changes only with `sampling: oort`.

        A client that fails has no report.
        """
        if state.oort is None:
            return state
        return replace(state, oort=state.oort.heard(step.number, step.arrived, reports))

    def factor(self, step: Step, trip: Trip) -> float:
        """The factor on the delta of an arrival: exactly 1 if it started from the newest model."""
        return self.settings.staleness.factor(step.behind(trip)) if isinstance(self.settings, BufferedClock) else 1.0

    def rule(self, state: ClockState, number: int) -> Selection:
        """The rule that chooses clients in step `number`."""
        return self._rule if state.oort is None else Oort(self.seed, len(self.ids), state.oort, number)


def at_least(clients: float) -> int:
    """Round a product such as 1.1 x 10 up to a whole number of clients, ignoring the rounding error of the product."""
    return math.ceil(clients - 1e-9)


class _Simulation:
    """One step, while it is simulated."""

    def __init__(
        self, clock: Clock, state: ClockState, number: int, load: Callable[[int, bool], Load], seen: Container[int]
    ) -> None:
        self.clock, self.number, self.load, self.seen = clock, number, load, seen
        self.started = self.now = self.since = state.now  # since: when the last trip ended
        self.rule, self.candidates = clock.rule(state, number), clock.candidates
        self.open = list(state.open)  # sorted
        self.begun: list[Trip] = []
        self.arrived: list[Trip] = []
        self.lost: list[Trip] = []
        self.candidates.taken = {trip.client for trip in self.open}

    def round(self, settings: RoundsClock) -> Step:
        """Choose clients, and wait until the cohort is full, the deadline passes or nobody is left to wait for."""
        size = self.clock.size
        wanted, quorum = min(at_least(settings.over * size), len(self.clock.ids)), at_least(settings.quorum * size)
        while len(chosen := self.choose(wanted)) < max(1, quorum):
            self.candidates.taken.difference_update(chosen)
            if (wake := self.wake()) is None:
                raise ValueError(self.nobody(max(1, quorum)))
            self.now = wake[0]
        limit = None if settings.deadline is None else round(settings.deadline * SECOND)
        for client in chosen:
            self.begin(client, limit if settings.late == "partial" else None)
        closed = self.open[-1].end if limit is None else min(self.open[-1].end, self.now + limit)
        arriving = [trip for trip in self.open if trip.fate == ARRIVES and trip.end <= closed][:size]
        if len(arriving) == size:
            closed = arriving[-1].end
        self.arrived = arriving
        self.lost = [trip for trip in self.open if trip.fate == LOST and trip.end <= closed]
        decided = {trip.client for trip in arriving + self.lost}
        late = [trip.stopped(closed, LATE) for trip in self.open if trip.client not in decided]
        self.open, self.now = [], closed
        return self.step(settings.server_seconds, len(arriving) >= quorum, late=late)

    def buffered(self, settings: BufferedClock) -> Step:
        """Keep trips open until enough have arrived, and then stop those that would be too far behind."""
        missing = self.fill(settings)
        while len(self.arrived) < settings.buffer:
            wake = self.wake() if missing else None
            if wake is not None and not (self.open and self.open[0].end < wake[0]):
                self.now, fresh = wake
            elif self.open:
                fresh = [self.end(self.open.pop(0))]
            elif self.begun:
                break  # everybody who is available has had a trip from this version
            else:
                raise ValueError(self.nobody(1))
            if len(self.arrived) < settings.buffer:
                missing = self.fill(settings, fresh if missing else None)
        oldest = self.number + 1 - settings.most
        aborted = [trip.stopped(self.now, ABORTED) for trip in self.open if trip.version < oldest]
        self.open = [trip for trip in self.open if trip.version >= oldest]
        return self.step(settings.server_seconds, bool(self.arrived), aborted=aborted)

    def fill(self, settings: BufferedClock, fresh: list[int] | None = None) -> int:
        """Begin the missing trips; return how many are still missing.

        `fresh`: if no candidate was left, the clients that may have become candidates since.
        """
        wanted = settings.concurrency - (len(self.arrived) if settings.refill == "step" else 0) - len(self.open)
        if fresh is not None and len(fresh) <= wanted:
            self.candidates.now = self.now
            chosen = [client for client in fresh if client in self.candidates and self.rule.allows(client)]
            self.candidates.taken.update(chosen)
        else:
            chosen = self.choose(wanted) if wanted > 0 else []
        for client in chosen:
            self.begin(client)
        return max(0, wanted - len(chosen))

    def choose(self, count: int) -> list[int]:
        """Choose at most `count` of the clients that are candidates now."""
        self.candidates.now = self.now
        return self.rule.choose(self.number, len(self.begun), count, self.candidates)

    def wake(self) -> tuple[int, list[int]] | None:
        """The next moment at which other clients become available, and these clients; None: none within seven days."""
        self.candidates.now = self.now
        wake = self.candidates.next()
        return wake if wake is not None and wake[0] <= self.since + PATIENCE else None

    def nobody(self, wanted: int) -> str:
        """The message if the server waits in vain."""
        who = "no client is" if wanted == 1 else f"fewer than {wanted:,} clients at once are"
        return (
            f"{who} available for seven days from day {self.since / DAY:.1f} of virtual time: see "
            "devices.availability, and clock.quorum if it is set"
        )

    def begin(self, client: int, limit: int | None = None) -> None:
        """Begin a trip now. `limit`: us; a longer trip does the share of its work that fits."""
        devices, name = self.clock.devices, (self.clock.seed, "lost", self.number, self.clock.ids[client])
        latency, down, compute, up = devices.phases(client, self.load(client, client not in self.seen))
        if not (seconds := latency + down + compute + up) <= LONGEST:
            raise ValueError(
                f"a trip of client {self.clock.ids[client]} takes {seconds:.2g} seconds, more than a hundred years: "
                "check the speeds and rates in devices"
            )
        duration, work = round(SECOND * seconds), 1.0
        if limit is not None and duration > limit and (left := limit / SECOND - latency - down - up) > 0:
            work = left / compute
            compute, duration = left, limit
        end, fate = self.now + duration, ARRIVES
        if (lost := devices.lost(client)) and seeds.share(*name) < lost:
            end, fate = self.now + round(duration * seeds.share(*name, "moment")), LOST
        until = devices.availability.until(client, self.now)
        assert until is not None, "a client is chosen while it is away"
        if until < end:
            end, fate = until, LOST
        trip = Trip(end, client, self.number, self.now, fate, work, latency, down, compute, up)
        insort(self.open, trip)
        self.begun.append(trip)

    def end(self, trip: Trip) -> int:
        """End a trip and return its client. The server sees trips that end while it is busy only when it is done.

        A client that arrives stays taken until the next step, since it is trained once per step. A lost client may be
        chosen again, unless its trip began in this step.
        """
        self.since = self.now = max(self.now, trip.end)
        (self.arrived if trip.fate == ARRIVES else self.lost).append(trip)
        if trip.fate == LOST and trip.version < self.number:
            self.candidates.taken.discard(trip.client)
        return trip.client

    def step(
        self, server_seconds: float, complete: bool, late: Sequence[Trip] = (), aborted: Sequence[Trip] = ()
    ) -> Step:
        ended = self.now + round(server_seconds * SECOND)
        begun, arrived, lost = map(tuple, (self.begun, self.arrived, self.lost))
        return Step(self.number, self.started, ended, begun, arrived, lost, tuple(late), tuple(aborted), complete)
