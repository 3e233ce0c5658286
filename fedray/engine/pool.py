"""A pool of client actors and the loop that leases them out: one piece of work in flight an actor; what a dead actor held is done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError

from fedray.core.types import RunError

READY_SECONDS = 120.0


class Stopped(Exception):
    """The user wants the run to end at once."""


class Lost(Exception):
    """What an actor held between two pieces of work went with it: it must be made again."""


@dataclass(frozen=True)
class Job:
    """A method of the actor with its arguments; the dearest jobs start first, which changes no result."""

    method: str
    arguments: tuple[Any, ...]
    cost: float = 0.0
    slot: int | None = None  # the actor's place in the pool, where it is alive: a client's own actor
    holder: int | None = None  # the number of the one actor that can do it, since it holds what is needed
    keep: bool = False  # of the two results the first stays in the object store, for another actor: of it the driver gets the reference


@dataclass(frozen=True)
class Actor:
    number: int  # counts up, also when a dead one is replaced
    slot: int
    handle: Any
    node: str = ""


class Pool:
    """`make(slot)` gives an actor. `folder`: where actors leave word if they are on several nodes (None: never)."""

    def __init__(
        self,
        make: Callable[[int], Any],
        size: int,
        replacements: int,
        stopped: Callable[[], bool] = lambda: False,
        folder: str | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._make, self._left, self._stopped, self._folder, self._note = make, replacements, stopped, folder, note
        self.size, self.replaced = size, 0
        self.busy_seconds = [0.0] * size  # of each place's actors
        self.where: dict[Hashable, int] = {}  # job of the last `run` -> the number of the actor that did it
        self._numbers = 0
        self._actors: dict[int, Actor] = {}  # by number: those that have answered and live
        self._idle: list[int] = []
        self._starting: dict[Any, tuple[Actor, float]] = {}  # answer to come -> actor, since when
        for slot in range(size):
            self._start(slot)
        self._await_all()

    def _start(self, slot: int) -> None:
        actor = Actor(self._numbers, slot, self._make(slot))
        self._numbers += 1
        self._starting[actor.handle.ping.remote(self._folder)] = (actor, time.monotonic())

    def _await_all(self) -> None:
        """Wait until every actor has answered. One that cannot start is an error: unasked, the work sent to it would wait for ever."""
        ready, waiting = ray.wait(list(self._starting), num_returns=len(self._starting), timeout=READY_SECONDS)
        if waiting:
            raise RunError(
                f"{len(waiting)} of {self.size} client actors did not start within {READY_SECONDS:.0f} s: the cluster lacks the cores, "
                "GPUs or memory that engine.actors, cpus_per_client and gpus_per_client ask for, or others hold them (see `ray status`)"
            )
        for reference in ready:
            try:
                self._admit(reference)
            except RayActorError as error:
                raise RunError(f"a client actor died while it started: {error}") from error

    def _admit(self, reference: Any) -> None:
        actor, _ = self._starting.pop(reference)
        node, _ = ray.get(reference)
        self._actors[actor.number] = Actor(actor.number, actor.slot, actor.handle, node)
        self._idle.append(actor.number)

    @property
    def nodes(self) -> set[str]:
        return {actor.node for actor in self._actors.values()}

    def lives(self, number: int | None) -> bool:
        return number in self._actors

    def run(
        self,
        jobs: Mapping[Hashable, Job],
        on_death: Callable[[Hashable, Job, str], Job] = lambda key, job, node: job,
        on_result: Callable[[int], None] = lambda done: None,
    ) -> dict[Hashable, Any]:
        """All results, in the order of `jobs`. When an actor dies, `on_death` says what is done instead (by default the same again).
        `on_result` hears how many there are.

        Raises Lost when a job's holder is gone, once nothing of this call is in flight any more.
        """
        jobs, results, lost = dict(jobs), {}, False
        held = any(job.holder is not None for job in jobs.values())
        self.where = {}
        waiting = sorted(jobs, key=lambda key: -jobs[key].cost)
        flying: dict[Any, tuple[Actor, Hashable, Any, float]] = {}
        while waiting or flying:
            lost = lost or held and any(jobs[key].holder is not None and not self.lives(jobs[key].holder) for key in waiting)
            if lost:
                waiting = []
            for number in list(self._idle):
                if (key := self._next(number, waiting, jobs)) is not None:
                    self._idle.remove(number)
                    waiting.remove(key)
                    actor = self._actors[number]
                    stays, told = self._send(actor, jobs[key])
                    flying[told] = (actor, key, stays, time.perf_counter())
            for reference in self._wait([*flying, *self._starting]):
                if reference in self._starting:
                    self._arrived(reference)
                    continue
                actor, key, stays, since = flying.pop(reference)
                self.busy_seconds[actor.slot] += time.perf_counter() - since
                try:
                    told = ray.get(reference)
                    results[key] = (stays, told) if jobs[key].keep else told
                    on_result(len(results))
                    self.where[key] = actor.number
                    self._idle.append(actor.number)
                except RayActorError as error:
                    self._replace(actor, error)
                    jobs[key] = on_death(key, jobs[key], actor.node)
                    waiting.insert(0, key)
                except ObjectLostError:  # an argument was on a node that is gone
                    self._idle.append(actor.number)
                    lost = True
        if lost:
            raise Lost
        return {key: results[key] for key in jobs}

    def _next(self, number: int, waiting: list[Hashable], jobs: Mapping[Hashable, Job]) -> Hashable | None:
        """The first job in line that this actor may do."""
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
                if job.slot not in slots:  # its own actor is gone for now: anybody can play the client
                    return key
        return None

    def _send(self, actor: Actor, job: Job) -> tuple[Any, Any]:
        """(what stays in the object store or None, what the driver is told)."""
        method = getattr(actor.handle, job.method)
        if not job.keep:
            return None, method.remote(*job.arguments)
        stays, told = method.options(num_returns=2).remote(*job.arguments)
        return stays, told

    def _wait(self, references: list[Any]) -> list[Any]:
        if not references:  # nobody lives, and nobody is on the way
            raise RunError("all client actors are gone: free memory, cores or GPUs, and `fedray resume` goes on")
        ready, _ = ray.wait(references, num_returns=1, timeout=0.5)
        if self._stopped():
            raise Stopped
        if not self._actors and all(time.monotonic() - since > READY_SECONDS for _, since in self._starting.values()):
            raise RunError(
                f"all client actors are gone, and new ones did not start within {READY_SECONDS:.0f} s: the cluster lacks what they book "
                "(see `ray status`); `fedray resume` goes on from the last checkpoint"
            )
        return list(ready)

    def _arrived(self, reference: Any) -> None:
        """A replacement is there; one that died while it started is replaced again."""
        actor, _ = self._starting[reference]
        try:
            self._admit(reference)
        except RayActorError as error:
            self._replace(actor, error)

    def _replace(self, actor: Actor, error: RayActorError) -> None:
        self._actors.pop(actor.number, None)
        if self._left == 0:
            raise RunError(
                f"a client actor died, and engine.replacements allows no further one ({self.replaced} were replaced): {error}"
            ) from error
        self._left -= 1
        self.replaced += 1
        why = " ".join(str(error).partition("class_name")[0].split())[:300]
        self._note(f"a client actor died and is replaced ({self._left} more may): {why}")
        self._start(actor.slot)

    def close(self) -> None:
        """Have every actor leave nothing behind, and end it."""
        for actor in self._actors.values():
            actor.handle.clear.remote()
            actor.handle.__ray_terminate__.remote()  # after the work that was sent before
