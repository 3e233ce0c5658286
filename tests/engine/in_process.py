"""Runs whose driver and client actors are objects of this process.

Ray takes seconds of CPU to start an actor, and most tests of the engine are not about processes. Jobs, their inputs and
their results pass through Ray's object store as usual. Each actor keeps its own state of the global random generators,
as a process does, so a result that depends on this state differs with the number of actors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import ray
import torch

from fedray.core.seeds import seed_all
from fedray.engine.actors.actor import ClientActor
from fedray.engine.cluster.reservation import Reserved
from fedray.engine.driver import driver as drivers
from fedray.engine.driver.driver import Assignment
from fedray.engine.telemetry.progress import Display


def run(assignment: Assignment) -> dict[str, Any]:
    """As `session.run`, but without GPUs. The run's events are shown once it has ended."""
    assert not assignment.share.gpus
    deterministic = torch.are_deterministic_algorithms_enabled()
    driver = Driver(assignment, detached=False)
    try:
        return driver.run()
    finally:
        # torch imports a module before it sets the flag. A signal in that import leaves it broken: a second call fails.
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)
        with Display.for_terminal() as display:
            for event in driver.events(0, 0.0):
                display.show(event)


class Driver(drivers.Driver):
    """The driver, with client actors of its own process."""

    def _reserve(self) -> Reserved:
        return Reserved(self.assignment.share)

    def _client_actor(self, slot: int, *arguments: Any) -> Handle:
        return Handle(ClientActor(*map(copied, arguments), Handle(self)), Generators(slot))


class Generators:
    """The global random generators of another process."""

    def __init__(self, number: int) -> None:
        here = self._swap()
        seed_all("another process", number)
        self._state = self._swap(here)

    @staticmethod
    def _swap(state: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Return the state of this process' generators, and set it to `state` if given."""
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        if state is not None:
            for restore, value in zip((random.setstate, np.random.set_state, torch.set_rng_state), state, strict=True):
                restore(value)
        return before

    @contextmanager
    def in_use(self) -> Iterator[None]:
        here = self._swap(self._state)
        try:
            yield
        finally:
            self._state = self._swap(here)


class Handle:
    """A stand-in for Ray's handle of an actor; like a real handle, it is pickled by reference."""

    def __init__(self, actor: Any, generators: Generators | None = None) -> None:
        self._actor, self._generators = actor, generators
        HANDLES[id(self)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return handle, (id(self),)

    def __getattr__(self, name: str) -> Method:
        function = (lambda: None) if name == "__ray_terminate__" else getattr(self._actor, name)
        return Method(self._generators.in_use()(function) if self._generators else function)


HANDLES: WeakValueDictionary[int, Handle] = WeakValueDictionary()


def handle(number: int) -> Handle:
    return HANDLES[number]


class Method:
    """A stand-in for a method of an actor handle."""

    def __init__(self, function: Callable[..., Any], returns: int = 1) -> None:
        self._function, self._returns = function, returns

    def options(self, num_returns: int) -> Method:
        return Method(self._function, num_returns)

    def remote(self, *arguments: Any) -> Any:
        """Call the method at once. Errors are raised here, not by `ray.get`."""
        result = self._function(*map(copied, arguments))
        return ray.put(result) if self._returns == 1 else tuple(map(ray.put, result))


def copied(value: Any) -> Any:
    """The copy that an actor would receive of a value, or of the value behind a reference."""
    return ray.get(value if isinstance(value, ray.ObjectRef) else ray.put(value))
