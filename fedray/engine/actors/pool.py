"""A pool of client actors, and the loop that leases them to jobs. The jobs of a dead actor are run again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, cast

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayTaskError

from fedray.core.types import RunError
from fedray.engine.actors.crew import READY_SECONDS, Crew, Start
from fedray.engine.actors.flights import Flight, Flights
from fedray.engine.actors.hangs import Hangs
from fedray.engine.actors.ray_deaths import DEATHS, death_of
from fedray.engine.actors.stops import Lost, Stopped, Wish
from fedray.engine.cluster.nodes import alive
from fedray.engine.cluster.reservation import standing
from fedray.engine.jobs.deaths import Cause, Death
from fedray.engine.jobs.job import Job, Key, Reference, Result, Taker, Workers

ATTENTIVE_SECONDS = 5.0  # if this loop pauses for longer, its own process was suspended: no actor was silent
STRIKES = 3  # the run fails when one job has killed this many actors by memory or a broken GPU context
HICCUP_SECONDS = 60.0  # an actor that is unreachable for longer counts as dead


class Pool(Workers):
    """Client actors that run jobs. `wish()`: when the user wants the run to end; for the other arguments see `Crew`."""

    def __init__(
        self,
        make: Callable[[int], Any],
        size: int,
        replacements: int,
        wish: Callable[[], Wish] = lambda: Wish.NOT_YET,
        folder: str | None = None,
        warn: Callable[[str], None] = lambda text: None,
        hangs: Hangs | None = None,
        start: Start | None = None,
    ) -> None:
        self._wish, self._warn = wish, warn
        self.hangs = hangs or Hangs()
        self.busy_seconds = [0.0] * size  # of each slot's actors
        self._lost: dict[int, Death] = {}  # actors that another actor could not reach
        self._struck = Counter[Hashable]()  # job -> actors that it has killed, if no client is to blame
        self._clock, self._looked = 0.0, time.perf_counter()  # seconds of this loop in motion; its last poll
        self._heard: dict[tuple[str, int], float] = {}  # node and process of an actor -> its last sign of life
        self.crew = Crew(make, size, replacements, folder, warn, start)

    @property
    def size(self) -> int:
        return self.crew.size

    @property
    def nodes(self) -> set[str]:
        return {actor.node for actor in self.crew.actors.values()}

    def lend(self, node: str, lost: Mapping[int, Death]) -> dict[int, Any]:
        """The idle actors by number, those of `node` first. `lost`: unreachable ones. Any thread may call this."""
        self._lost.update(lost)  # `run` replaces them
        idle = set(self.crew.idle) - self._lost.keys()
        actors = sorted([*self.crew.actors.values()], key=lambda actor: (actor.node != node, actor.number))
        return {actor.number: actor.handle for actor in actors if actor.number in idle}

    def neighbours(self, jobs: int) -> list[str | None]:
        """The node that each of so many jobs should run on, so that those next to each other meet on one node.

        None: any, because there is one node, or no actor is alive and their replacements are starting.
        """
        if len(self.nodes) < 2:
            return [None] * jobs
        nodes = sorted(actor.node for actor in self.crew.actors.values())
        return [nodes[job * len(nodes) // jobs] for job in range(jobs)]

    def grow(self) -> None:
        """Start actors on nodes that have joined the cluster."""
        self.busy_seconds += [0.0] * self.crew.grow()

    def nodes_alive(self) -> set[str]:
        """The nodes of the cluster that are alive."""
        return alive()

    def heard(self, node: str, pid: int) -> None:
        """An actor is at long work. Any thread may call this."""
        self._heard[node, pid] = self._clock

    def lives(self, number: int | None) -> bool:
        return number in self.crew.actors

    def put(self, value: Any) -> Reference:
        """Put a value into the object store, as an input of several jobs."""
        return ray.put(value)

    def fetch(self, reference: Reference) -> Any:
        """The value behind a reference. Lost: it was on a node that is gone."""
        try:
            return ray.get(reference)
        except ObjectLostError as error:
            raise Lost from error

    def each(self, jobs: Mapping[Key, Job[Result]], take: Taker[Key, Result]) -> None:
        """Run all jobs. `take` gets each result with the actor that gave it; the jobs that it returns run next.

        If an actor dies, its job is run again as `Job.after_death` says. Raises Lost if the holder of a job is gone or
        an input is lost a second time, once none of these jobs is in flight any more.
        """
        flights = Flights(jobs)
        self._looked = time.perf_counter()
        self._struck.clear()
        while flights.open():
            flights.check(self.crew.actors)
            self._bury_unreachable()
            if not flights.lost:
                self._lease(flights)
            if not flights.open():
                break
            for reference in self._wait([*flights.flying, *self.crew.starting]):
                if reference in self.crew.starting:
                    self._arrived(reference)
                else:
                    self._landed(reference, flights, take)
            self._end_overdue(flights)
        if flights.lost:
            raise Lost

    def _bury_unreachable(self) -> None:
        """Replace idle actors that another actor could not reach."""
        for number in self._lost.keys() & set(self.crew.idle):
            self.crew.idle.remove(number)
            self.crew.bury(self.crew.actors[number], self._lost[number])

    def _lease(self, flights: Flights[Key, Result]) -> None:
        """Give idle actors the jobs in line. A job that must run alone waits until no other is in flight."""
        slots = {actor.slot for actor in self.crew.actors.values()}
        idle = Counter(self.crew.actors[number].node for number in self.crew.idle)  # actors by node
        for number in list(self.crew.idle):
            actor = self.crew.actors[number]
            key = flights.next(actor, slots, idle)
            if key is not None and not flights.blocked(key):
                idle -= Counter([actor.node])
                flights.waiting.remove(key)
                reference, flight = self._send(number, key, flights.jobs[key])
                flights.flying[reference] = flight

    def _landed(
        self,
        reference: Reference,
        flights: Flights[Key, Result],
        take: Taker[Key, Result],
    ) -> None:
        """Hand on the result of a job that has ended, or put the job back in line."""
        flight = flights.flying.pop(reference)
        try:
            if flight.cut_off is not None:  # a ping: whether the job ran or not, it may run twice
                ray.get(reference)
                self.crew.idle.append(flight.actor.number)
                flights.again(flight.key)
                return
            result = self._receive(reference, flight)
        except ActorUnavailableError as error:
            if (again := self._cut_off(flight, error)) is not None:
                flights.flying |= again
            else:
                flights.again(flight.key)
        except DEATHS as error:
            flights.again(flight.key, self._died(flight, death_of(error)))
        except ObjectLostError:  # a result or an input was on a node that is gone
            self.crew.idle.append(flight.actor.number)
            flights.without(flight.key)
        else:
            flights.done(flight.key)
            flights.add(take(flight.key, result, flight.actor))

    def _end_overdue(self, flights: Flights[Key, Result]) -> None:
        """Kill actors that have worked on a job for longer than `engine.deadline` allows."""
        for reference, flight in list(flights.flying.items()):
            if (silent := self._look_at(flight)) is not None:
                del flights.flying[reference]
                why = f"it was silent for {silent:,.0f} s, beyond engine.deadline, and was killed"
                flights.again(flight.key, self._died(flight, Death(Cause.HANG, why)))

    def _send(self, number: int, key: Key, job: Job[Result]) -> tuple[Reference, Flight[Key, Result]]:
        """Start a job on an idle actor; returns the reference to the driver's result, and the flight."""
        self.crew.idle.remove(number)
        actor, bare = self.crew.actors[number], job.with_inputs()  # Ray fetches inputs first, as they are arguments
        if job.keeps:
            kept, told = actor.handle.run.options(num_returns=2).remote(bare, *job.inputs)
        else:
            kept, told = None, actor.handle.run.remote(bare, *job.inputs)
        return told, Flight(key, job, actor, kept, time.perf_counter(), self._clock)

    def _receive(self, reference: Reference, flight: Flight[Key, Result]) -> Result:
        """The result of a finished job, whose actor becomes idle. Raises the job's error if it failed."""
        actor, seconds = flight.actor, time.perf_counter() - flight.since
        self.busy_seconds[actor.slot] += seconds
        told = ray.get(reference)
        self.hangs.done(actor.number, actor.node, flight.job.kind, flight.job.cost, seconds)
        self.crew.idle.append(actor.number)
        result: Result = cast(Result, (flight.kept, told)) if flight.job.keeps else told
        return result

    def _wait(self, references: list[Reference]) -> list[Reference]:
        if not references:  # no actor is alive or starting
            raise RunError("all client actors are gone: free memory, cores or GPUs, and `fedray resume` continues")
        ready, _ = ray.wait(references, num_returns=1, timeout=0.5)
        now = time.perf_counter()
        self._clock += min(now - self._looked, ATTENTIVE_SECONDS)
        self._looked = now
        wish = self._wish()
        if wish is not Wish.NOT_YET and self.hangs.marked:
            self._warn("the run ends now, since a client actor hangs: the round is lost, the last checkpoint stays")
            raise Stopped
        if wish is Wish.NOW:
            raise Stopped
        if self.crew.late():
            raise RunError(
                f"all client actors are gone, and new ones did not start within {READY_SECONDS:.0f} s: the cluster "
                f"lacks what they reserve ({standing()}); `fedray resume` continues from the last checkpoint"
            )
        return list(ready)

    def _look_at(self, flight: Flight[Key, Result]) -> float | None:
        """Warn if an actor has been silent for far too long; returns the seconds if they are beyond the deadline."""
        actor, job = flight.actor, flight.job
        silent = self._clock - max(flight.attentive, self._heard.get((actor.node, actor.pid), 0.0))
        if silent <= self.hangs.earliest:
            self.hangs.at_work(actor.number)
            return None
        if self.hangs.late(actor.number, job.kind, job.cost, silent):
            nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
            where = f"process {actor.pid} on node {nodes.get(actor.node, actor.node)}"
            self.hangs.mark(actor.number, job.kind, job.cost, silent, job.at_work(actor.node), where)
        return silent if self.hangs.overdue(job.kind, job.cost, silent) else None

    def _arrived(self, reference: Reference) -> None:
        """Admit a replacement that has started, or replace one that died while starting."""
        actor, _ = self.crew.starting[reference]
        try:
            self.crew.admit(reference)
        except DEATHS as error:
            self.crew.bury(actor, death_of(error))
        except (RayTaskError, RunError) as error:
            if not actor.joined:
                raise
            self.crew.refuse(actor, error.cause if isinstance(error, RayTaskError) else error)

    def _died(self, flight: Flight[Key, Result], death: Death) -> Job[Result]:
        """Replace the actor of a flight; returns the job to run instead."""
        self.hangs.marked.discard(flight.actor.number)
        job, node = flight.job, flight.actor.node
        death = self.crew.bury(flight.actor, replace(death, alone=job.alone or self.size == 1))
        again = job.after_death(node, death, self._warn)
        if again is job and death.cause not in (Cause.CRASH, Cause.HANG):  # it would continue for ever
            self._struck[flight.key] += 1
            if self._struck[flight.key] == STRIKES:
                raise RunError(
                    f"{job.at_work(node)} ended its actor {STRIKES} times, at last: {death.why}; `fedray resume` goes "
                    "on from the last checkpoint"
                )
        return again

    def _cut_off(
        self, flight: Flight[Key, Result], error: ActorUnavailableError
    ) -> dict[Reference, Flight[Key, Result]] | None:
        """Ping an actor that cannot be reached. None: it was unreachable for HICCUP_SECONDS and is replaced."""
        since = flight.cut_off if flight.cut_off is not None else self._clock
        if flight.cut_off is None:
            self._warn(f"a client actor cannot be reached; waiting for it: {' '.join(str(error).split())[:200]}")
        elif self._clock - since > HICCUP_SECONDS:
            why = f"it could not be reached for {HICCUP_SECONDS:.0f} s"
            self.hangs.marked.discard(flight.actor.number)
            self.crew.bury(flight.actor, Death(Cause.HANG, why))
            return None
        else:
            time.sleep(0.2)
        return {self.crew.ping(flight.actor): replace(flight, cut_off=since)}

    def close(self) -> None:
        """See `Crew.close`."""
        self.crew.close(self.hangs.marked)
