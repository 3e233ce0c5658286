"""The jobs of a call to a pool: those in line, and those that actors are running."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

from fedray.engine.actors.crew import Actor
from fedray.engine.jobs.job import Job, Key, Reference, Result


@dataclass(frozen=True)
class Flight(Generic[Key, Result]):
    """A job that an actor is running."""

    key: Key
    job: Job[Result]
    actor: Actor
    kept: Reference  # the part of the result that stays in the object store; None: no part does
    since: float
    attentive: float  # the same on the pool's clock
    cut_off: float | None = None  # since when the actor has been unreachable: it has been pinged


class Flights(Generic[Key, Result]):
    """The jobs by key. A job whose actor or input is lost goes back to the front of the line."""

    def __init__(self, jobs: Mapping[Key, Job[Result]]) -> None:
        self.jobs = dict(jobs)
        self.waiting = sorted(jobs, key=lambda key: -jobs[key].cost)
        self.flying: dict[Reference, Flight[Key, Result]] = {}
        self.lost = False  # what jobs need is gone for good: no further one starts
        self._without: set[Key] = set()  # jobs that have met a lost object

    def open(self) -> bool:
        """Whether there is work left."""
        return bool(self.flying or (self.waiting and not self.lost))

    def add(self, jobs: Mapping[Key, Job[Result]]) -> None:
        """Put further jobs at the front of the line."""
        self.jobs |= jobs
        self.waiting[:0] = jobs

    def done(self, key: Key) -> None:
        """Forget a job that has ended, and so its inputs."""
        del self.jobs[key]

    def again(self, key: Key, job: Job[Result] | None = None) -> None:
        """Put a job back in line, or `job` in its place."""
        if job is not None:
            self.jobs[key] = job
        self.waiting.insert(0, key)

    def without(self, key: Key) -> None:
        """Put a job back in line that has met a lost object. The second time, the object is gone for good."""
        self.lost = self.lost or key in self._without
        self._without.add(key)
        self.again(key)

    def check(self, living: Iterable[int]) -> None:
        """Look whether the holder of a waiting job is gone, of these actors that live."""
        holders = {self.jobs[key].holder for key in self.waiting} - {None}
        self.lost = self.lost or not holders <= {*living}

    def next(self, actor: Actor, slots: Container[int], nodes: Container[str]) -> Key | None:
        """The first job in line that an actor may run, if possible one that should run on its node.

        `slots`: those that have an actor now. `nodes`: those with idle actors.
        """
        elsewhere = None
        for key in self.waiting:
            job = self.jobs[key]
            if _may(actor, job, slots):
                if job.near is None or job.near == actor.node:
                    return key
                if elsewhere is None and job.near not in nodes:
                    elsewhere = key
        return elsewhere

    def blocked(self, key: Key) -> bool:
        """Whether a job must wait: it must run alone, or one that must run alone is in flight."""
        return bool(self.flying) and (self.jobs[key].alone or any(flight.job.alone for flight in self.flying.values()))


def _may(actor: Actor, job: Job[Result], slots: Container[int]) -> bool:
    """Whether an actor may run a job. Without its dedicated actor, any actor can train a client."""
    if job.holder is not None:
        return job.holder == actor.number
    return job.slot is None or job.slot == actor.slot or job.slot not in slots
