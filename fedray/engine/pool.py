"""A pool of client actors, and the loop that leases them to jobs. The jobs of a dead actor are run again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar, cast

import ray
from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError, RayError

from fedray.core.types import RunError
from fedray.engine.hangs import Hangs
from fedray.engine.jobs import Job, Reference

READY_SECONDS = 120.0
DEATHS = (RayActorError, OutOfMemoryError)  # Ray's errors for an actor that is gone; the second: its memory monitor


class Wish(Enum):
    """When the user wants the run to end."""

    NOT_YET = "not yet"
    AFTER_ROUND = "after the round"
    NOW = "now"


class Stopped(Exception):
    """The user wants the run to end at once."""


class Lost(Exception):
    """An actor died with updates that it held between two jobs: they must be trained again."""


Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Actor:
    """A client actor in the pool."""

    number: int  # counts up; a replacement has a number of its own
    slot: int  # place in the pool, which a replacement takes over
    handle: Any
    node: str = ""
    pid: int = 0


@dataclass(frozen=True)
class Flight(Generic[Key, Result]):
    """A job at work on an actor."""

    key: Key
    job: Job[Result]
    actor: Actor
    kept: Reference  # what stays in the object store; None: nothing does
    since: float

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.since


class Pool:
    """Client actors that run jobs.

    `make(slot)` starts an actor. `replacements`: dead actors that may be replaced. `wish()`: when the user wants the
    run to end. `folder`: the run folder, where actors on several nodes write probe files (None: one node). `warn` hears
    warnings.
    """

    def __init__(
        self,
        make: Callable[[int], Any],
        size: int,
        replacements: int,
        wish: Callable[[], Wish] = lambda: Wish.NOT_YET,
        folder: str | None = None,
        warn: Callable[[str], None] = lambda text: None,
        hangs: Hangs | None = None,
    ) -> None:
        self._make, self._left, self._wish, self._folder, self._warn = make, replacements, wish, folder, warn
        self.hangs = hangs or Hangs()
        self.size, self.replaced = size, 0
        self.busy_seconds = [0.0] * size  # of each slot's actors
        self.where: dict[Hashable, int] = {}  # key of a job of the last `run` -> number of the actor that ran it
        self._numbers = 0
        self._actors: dict[int, Actor] = {}  # by number: those that have answered and live
        self._idle: list[int] = []
        self._starting: dict[Reference, tuple[Actor, float]] = {}  # answer to come -> actor, since when
        for slot in range(size):
            self._start(slot)
        self._await_all()

    def _start(self, slot: int) -> None:
        actor = Actor(self._numbers, slot, self._make(slot))
        self._numbers += 1
        self._starting[actor.handle.ping.remote(self._folder)] = (actor, time.monotonic())

    def _await_all(self) -> None:
        """Wait until every actor has answered. RunError: one cannot start; its jobs would wait for ever."""
        ready, waiting = ray.wait(list(self._starting), num_returns=len(self._starting), timeout=READY_SECONDS)
        if waiting:
            raise RunError(
                f"{len(waiting)} of {self.size} client actors did not start within {READY_SECONDS:.0f} s: the cluster "
                "lacks the cores, GPUs or memory that engine.actors, cpus_per_client and gpus_per_client ask for, or "
                "others hold them (see `ray status`)"
            )
        for reference in ready:
            try:
                self._admit(reference)
            except DEATHS as error:
                raise RunError(f"a client actor died while it started: {eviction(error) or error}") from error

    def _admit(self, reference: Reference) -> None:
        actor, _ = self._starting.pop(reference)
        node, _, pid = ray.get(reference)
        self._actors[actor.number] = replace(actor, node=node, pid=pid)
        self._idle.append(actor.number)

    @property
    def nodes(self) -> set[str]:
        return {actor.node for actor in self._actors.values()}

    def lives(self, number: int | None) -> bool:
        return number in self._actors

    def run(
        self, jobs: Mapping[Key, Job[Result]], on_result: Callable[[int], None] = lambda done: None
    ) -> dict[Key, Result]:
        """All results, in the order of `jobs`. `on_result` hears how many there are.

        When an actor dies, its job is run again as `Job.after_death` says. Raises Lost when the holder of a job is gone
        or an input is lost, once none of these jobs is in flight any more.
        """
        jobs, results, lost = dict(jobs), dict[Key, Result](), False
        self.where = {}
        waiting = sorted(jobs, key=lambda key: -jobs[key].cost)
        flying: dict[Reference, Flight[Key, Result]] = {}
        while waiting or flying:
            lost = lost or any(jobs[key].holder is not None and not self.lives(jobs[key].holder) for key in waiting)
            if lost:
                waiting = []
            for number in list(self._idle):
                if (key := self._next(number, waiting, jobs)) is not None:
                    waiting.remove(key)
                    reference, flight = self._send(number, key, jobs[key])
                    flying[reference] = flight
            for reference in self._wait([*flying, *self._starting]):
                if reference in self._starting:
                    self._arrived(reference)
                    continue
                flight = flying.pop(reference)
                try:
                    results[flight.key] = self._receive(reference, flight)
                    on_result(len(results))
                except DEATHS as error:
                    self._replace(flight.actor, error)
                    jobs[flight.key] = flight.job.after_death(flight.actor.node, self._warn)
                    waiting.insert(0, flight.key)
                except ObjectLostError:  # an input was on a node that is gone
                    self._idle.append(flight.actor.number)
                    lost = True
            for flight in flying.values():
                self._look_at(flight)
        if lost:
            raise Lost
        return {key: results[key] for key in jobs}

    def _next(self, number: int, waiting: list[Key], jobs: Mapping[Key, Job[Result]]) -> Key | None:
        """The first job in line that this actor may run."""
        slot, slots = self._actors[number].slot, None
        for key in waiting:
            job = jobs[key]
            if job.holder is not None:
                if job.holder == number:
                    return key
            elif job.slot is None or job.slot == slot:
                return key
            else:
                slots = slots or {actor.slot for actor in self._actors.values()}
                if job.slot not in slots:  # the dedicated actor is gone for now: any actor can play the client
                    return key
        return None

    def _send(self, number: int, key: Key, job: Job[Result]) -> tuple[Reference, Flight[Key, Result]]:
        """Start a job on an idle actor: the reference to the driver's result, and the flight."""
        self._idle.remove(number)
        actor, bare = self._actors[number], job.on()  # inputs go as arguments: Ray fetches these before the job starts
        if job.keeps:
            kept, told = actor.handle.run.options(num_returns=2).remote(bare, *job.inputs)
        else:
            kept, told = None, actor.handle.run.remote(bare, *job.inputs)
        return told, Flight(key, job, actor, kept, time.perf_counter())

    def _receive(self, reference: Reference, flight: Flight[Key, Result]) -> Result:
        """The result of a job that has ended; its actor is idle again. Raises what ended the job otherwise."""
        actor, seconds = flight.actor, flight.seconds
        self.busy_seconds[actor.slot] += seconds
        told = ray.get(reference)
        self.hangs.done(actor.number, type(flight.job).__name__, flight.job.cost, seconds)
        self.where[flight.key] = actor.number
        self._idle.append(actor.number)
        result: Result = cast(Result, (flight.kept, told)) if flight.job.keeps else told
        return result

    def _wait(self, references: list[Reference]) -> list[Reference]:
        if not references:  # no actor lives, and none starts
            raise RunError("all client actors are gone: free memory, cores or GPUs, and `fedray resume` goes on")
        ready, _ = ray.wait(references, num_returns=1, timeout=0.5)
        wish = self._wish()
        if wish is not Wish.NOT_YET and self.hangs.marked:
            self._warn("the run ends now, since a client actor hangs: the round is lost, the last checkpoint stays")
            raise Stopped
        if wish is Wish.NOW:
            raise Stopped
        if not self._actors and all(time.monotonic() - since > READY_SECONDS for _, since in self._starting.values()):
            raise RunError(
                f"all client actors are gone, and new ones did not start within {READY_SECONDS:.0f} s: the cluster "
                "lacks what they book (see `ray status`); `fedray resume` goes on from the last checkpoint"
            )
        return list(ready)

    def _look_at(self, flight: Flight[Key, Result]) -> None:
        """Warn where an actor has been at work for far too long."""
        actor, job, kind = flight.actor, flight.job, type(flight.job).__name__
        if self.hangs.late(actor.number, kind, job.cost, flight.seconds):
            nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
            where = f"process {actor.pid} on node {nodes.get(actor.node, actor.node)}"
            self.hangs.mark(actor.number, kind, job.cost, flight.seconds, job.at_work(actor.node), where)

    def _arrived(self, reference: Reference) -> None:
        """A replacement is there; one that died while it started is replaced again."""
        actor, _ = self._starting[reference]
        try:
            self._admit(reference)
        except DEATHS as error:
            self._replace(actor, error)

    def _replace(self, actor: Actor, error: RayError) -> None:
        self._actors.pop(actor.number, None)
        self.hangs.marked.discard(actor.number)
        if self._left == 0:
            raise RunError(
                f"a client actor died, and engine.replacements allows no further one ({self.replaced} were replaced): "
                f"{eviction(error) or error}"
            ) from error
        self._left -= 1
        self.replaced += 1
        why = eviction(error) or " ".join(str(error).partition("class_name")[0].split())[:300]
        self._warn(f"a client actor died and is replaced ({self._left} more may be): {why}")
        self._start(actor.slot)

    def close(self) -> None:
        """Have every actor clear its disk, and end it, without waiting for any; an actor that hangs is killed."""
        for actor in self._actors.values():
            if actor.number in self.hangs.marked:
                ray.kill(actor.handle)
                continue
            actor.handle.clear.remote()
            actor.handle.__ray_terminate__.remote()  # after the work that was sent before


def eviction(error: RayError) -> str | None:
    """In words, why Ray's memory monitor ended an actor, of which Ray writes a page; None: it did not."""
    if not isinstance(error, OutOfMemoryError):
        return None
    found = re.search(r"[\d.]+ ?GB used / [\d.]+ ?GB limit", str(error))
    used = f" ({found.group()})" if found else ""
    return f"Ray's memory monitor ended it, since its node ran low on memory{used}: a lower engine.actors needs less"
