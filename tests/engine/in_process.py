"""Runs whose driver and client actor are objects of this process.

Ray takes seconds of CPU to start an actor, and most tests of the engine are not about actors: what a run computes does
not depend on them. Jobs, their inputs and their results pass Ray's object store as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
import torch

from fedray.engine import driver as drivers
from fedray.engine.actors import ClientActor
from fedray.engine.driver import Assignment
from fedray.engine.telemetry.progress import Display


def fits(assignment: Assignment) -> bool:
    """Whether the run has one client actor, which any process can be."""
    share, engine = assignment.share, assignment.plan.engine
    return share.actors == 1 and not share.gpus and engine.placement == "pooled"


def run(assignment: Assignment) -> dict[str, Any]:
    """As `session.run`, for a run that `fits`. Its events are shown once it has ended."""
    assert fits(assignment)
    deterministic = torch.are_deterministic_algorithms_enabled()
    driver = Driver(assignment, detached=False)
    try:
        return driver.run()
    finally:
        torch.use_deterministic_algorithms(deterministic)
        with Display.for_terminal() as display:
            for event in driver.events(0, 0.0):
                display.show(event)


class Driver(drivers.Driver):
    """The driver, with a client actor of its own process."""

    def _client_actor(self, slot: int, *arguments: Any) -> Handle:
        return Handle(ClientActor(*map(copied, arguments), Handle(self)))


class Handle:
    """Stands for Ray's handle of an actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Method:
        return Method((lambda: None) if name == "__ray_terminate__" else getattr(self._actor, name))


class Method:
    """Stands for a method of such a handle."""

    def __init__(self, function: Callable[..., Any], returns: int = 1) -> None:
        self._function, self._returns = function, returns

    def options(self, num_returns: int) -> Method:
        return Method(self._function, num_returns)

    def remote(self, *arguments: Any) -> Any:
        """Call the method at once. Its errors are not kept for `ray.get`."""
        result = self._function(*map(copied, arguments))
        return ray.put(result) if self._returns == 1 else tuple(map(ray.put, result))


def copied(value: Any) -> Any:
    """What an actor gets of a value, or of a reference to one."""
    return ray.get(value if isinstance(value, ray.ObjectRef) else ray.put(value))
