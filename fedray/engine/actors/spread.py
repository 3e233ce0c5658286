"""Spreads the parts of `Algorithm.init` over client actors: the actor that runs `Init` calls the idle ones.

The driver says which actors are idle and replaces those that are lost. A lost actor's parts are computed again here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError

from fedray.core.types import Vector
from fedray.engine.actors.ray_deaths import DEATHS, death_of
from fedray.engine.jobs.deaths import Cause, Death
from fedray.engine.jobs.job import InitPart, Reference

LOOK_SECONDS = 2.0  # between questions to the driver
SILENT_SECONDS = 120.0  # without an answer, until an actor counts as lost
SLOWER = 10.0  # an actor may take this multiple of this actor's time for its own parts


class Spread:
    """Computes parts here and on the idle actors, and returns the results in the order of the parts.

    `here(params, parts)` computes them in this process. `driver`: the driver actor.
    """

    def __init__(self, driver: Any, here: Callable[[Vector, Sequence[Any]], list[Any]]) -> None:
        self._driver, self._here = driver, here
        self._actors: dict[int, Any] = {}  # number -> idle actor
        self._lost: dict[int, Death] = {}  # since the last question to the driver
        self._asked: Reference = None  # the pending question to the driver
        self._looked = -math.inf

    def __call__(self, params: Vector, parts: Sequence[Any]) -> list[Any]:
        if len(parts) > 1:
            self._look()
        others = list(self._actors.items())[: len(parts) - 1]
        if not others:
            return self._here(params, parts)
        turns = len(others) + 1
        where = ray.put(params)
        sent = {
            number: actor.run.remote(InitPart(tuple(parts[turn::turns])), where)
            for turn, (number, actor) in enumerate(others)
        }
        results: list[Any] = [None] * len(parts)
        since = time.monotonic()
        results[turns - 1 :: turns] = self._here(params, parts[turns - 1 :: turns])
        patience = max(SILENT_SECONDS, SLOWER * (time.monotonic() - since))
        for turn, (number, reference) in enumerate(sent.items()):
            try:
                computed = ray.get(reference, timeout=patience)
            except (*DEATHS, ObjectLostError, GetTimeoutError) as error:
                self._lost[number] = _why(error, patience)
                del self._actors[number]
                computed = self._here(params, parts[turn::turns])
            results[turn::turns] = computed
        return results

    def _look(self) -> None:
        """Ask the driver for idle actors from time to time, and report lost ones. Wait only for its first answer."""
        first = self._looked == -math.inf
        if self._asked is None and (self._lost or time.monotonic() - self._looked > LOOK_SECONDS):
            self._looked = time.monotonic()
            here = ray.get_runtime_context().get_node_id()
            self._asked, self._lost = self._driver.idle.remote(here, self._lost), {}
        if self._asked is not None and (first or ray.wait([self._asked], timeout=0)[0]):
            self._actors = {n: actor for n, actor in ray.get(self._asked).items() if n not in self._lost}
            self._asked = None


def _why(error: Exception, patience: float) -> Death:
    if isinstance(error, GetTimeoutError):
        return Death(Cause.HANG, f"it was silent for {patience:,.0f} s while the seed model was trained")
    if isinstance(error, ObjectLostError):
        return Death(Cause.CRASH, "its result was lost while the seed model was trained")
    return death_of(error)
