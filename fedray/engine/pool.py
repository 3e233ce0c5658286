"""A pool of client actors and the loop that leases them out: one piece of work in flight an actor; what a dead actor held is done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError

from fedray.core.types import RunError

READY_SECONDS = 120.0


class Stopped(Exception):
    """The user wants the run to end at once."""


@dataclass(frozen=True)
class Job:
    """A method of the actor with its arguments; the dearest jobs start first, which changes no result."""

    method: str
    arguments: tuple[Any, ...]
    cost: float = 0.0


class Pool:
    def __init__(self, make: Callable[[], Any], size: int, replacements: int, stopped: Callable[[], bool] = lambda: False) -> None:
        self._make, self._left, self._stopped = make, replacements, stopped
        self.busy_seconds = 0.0  # of all actors together
        self.replaced = 0
        self.size = size
        self._idle = self._start(size)

    def _start(self, count: int) -> list[Any]:
        """Actors that have answered. One that cannot start is an error: unasked, the work sent to it would wait for ever."""
        actors = [self._make() for _ in range(count)]
        pings = [actor.ping.remote() for actor in actors]
        ready, waiting = ray.wait(pings, num_returns=count, timeout=READY_SECONDS)
        if waiting:
            raise RunError(
                f"{len(waiting)} of {count} client actors did not start within {READY_SECONDS:.0f} s: the cluster lacks the cores, GPUs or "
                "memory that engine.actors, cpus_per_client and gpus_per_client ask for, or something else holds them (see `ray status`)"
            )
        try:
            ray.get(ready)
        except RayActorError as error:
            raise RunError(f"a client actor died while it started: {error}") from error
        return actors

    def run(self, jobs: Mapping[Hashable, Job], on_death: Callable[[Hashable, Job], Job] = lambda key, job: job) -> dict[Hashable, Any]:
        """All results, in the order of `jobs`. When an actor dies, `on_death` says what is done instead (by default the same again)."""
        jobs = dict(jobs)
        waiting = sorted(jobs, key=lambda key: -jobs[key].cost)
        flying: dict[Any, tuple[Any, Hashable, float]] = {}
        results: dict[Hashable, Any] = {}
        while waiting or flying:
            while waiting and self._idle:
                actor, key = self._idle.pop(), waiting.pop(0)
                reference = getattr(actor, jobs[key].method).remote(*jobs[key].arguments)
                flying[reference] = (actor, key, time.perf_counter())
            ready, _ = ray.wait(list(flying), num_returns=1, timeout=0.5)
            if self._stopped():
                raise Stopped
            for reference in ready:
                actor, key, since = flying.pop(reference)
                self.busy_seconds += time.perf_counter() - since
                try:
                    results[key] = ray.get(reference)
                    self._idle.append(actor)
                except RayActorError as error:
                    self._replace(error)
                    jobs[key] = on_death(key, jobs[key])
                    waiting.insert(0, key)
        return {key: results[key] for key in jobs}

    def _replace(self, error: RayActorError) -> None:
        if self._left == 0:
            raise RunError(
                f"a client actor died, and engine.replacements allows no further one ({self.replaced} were replaced): {error}"
            ) from error
        self._left -= 1
        self.replaced += 1
        self._idle.extend(self._start(1))
