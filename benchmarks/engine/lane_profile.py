"""The cost of a client by piece: one lane of the standard workload in this process, with timers around functions."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch

from benchmarks.engine import floor
from benchmarks.engine.workloads import Keywords
from fedray.core.parameters import FlatModel
from fedray.core.sums import WeightedSum
from fedray.core.types import Broadcast
from fedray.engine.jobs import work
from fedray.engine.jobs.holding import Holder
from fedray.engine.jobs.job import Workplace
from fedray.engine.jobs.work import Program
from fedray.engine.lane import book
from fedray.engine.lane.lane import Lane
from fedray.engine.lane.training import TrainLane
from fedray.training import local
from fedray.training.classification import Classification

# Phase -> the functions timed. Time inside a nested function counts there only.
TIMED: dict[str, tuple[tuple[Any, str], ...]] = {
    "hydration: data, seed, state": ((book, "hydrate"),),
    "global generators re-seeded": ((book, "seed_all"),),
    "broadcast loaded, difference taken": ((FlatModel, "load"), (FlatModel, "difference")),
    "features and targets": ((Classification, "targets"), (local, "batches")),
    "forward": ((Classification, "loss"),),
    "backward": ((torch.Tensor, "backward"),),
    "gradients zeroed, loss read": ((local.LocalModel, "descend"),),
    "optimiser step": ((local.ClientOptimizer, "step"), (local.LocalModel, "fit")),
    "update checked, metrics added": ((book.LaneBook, "_accept"),),
    "update folded": ((WeightedSum, "add"),),
}
STEPS = (
    "features and targets",
    "forward",
    "backward",
    "gradients zeroed, loss read",
    "optimiser step",
)  # of the floor too
REST = "the lane's loop"


class Timers:
    """Seconds by phase; only the innermost phase runs at any moment."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._open: list[str] = [REST]
        self._mark = time.perf_counter()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._lap()
        self._open.append(phase)
        try:
            yield
        finally:
            self._lap()
            self._open.pop()

    def _lap(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._mark
        self._mark = now

    def around(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """`function` with a timer; if it returns an iterator, each step is timed too."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            with self(phase):
                result = function(*arguments, **named)
            return self._steps(result, phase) if isinstance(result, Iterator) else result

        return timed

    def _steps(self, iterator: Iterator[Any], phase: str) -> Iterator[Any]:
        while True:
            with self(phase):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item


def lane_ms(program: Program, clients: int, repeats: int) -> dict[str, float]:
    """Milliseconds a client by phase, medians over lanes; the phases add up to the lane."""
    torch.set_num_threads(1)
    place, broadcast = workplace(program)
    found: list[Counter[str]] = []
    for repeat in range(repeats + 1):
        job = lane(program, clients, repeat)
        with ExitStack() as stack:
            timers = Timers()
            for phase, functions in TIMED.items():
                for owner, name in functions:
                    stack.enter_context(mock.patch.object(owner, name, timers.around(getattr(owner, name), phase)))
            result = job.run(place, broadcast, broadcast)
            timers._lap()
        assert len(result.reports) == clients, result.failures
        found.append(timers.seconds)
    # The first lane builds the model and reads the clips.
    return {phase: 1000 * median(seconds[phase] for seconds in found[1:]) / clients for phase in (*TIMED, REST)}


def workplace(program: Program) -> tuple[Workplace, Broadcast]:
    """What a lane's job needs in this process, and the broadcast of the first round."""
    assets = program.algorithm.assets(program.data)
    state, _ = work.init(program, lambda: work.server(program, None, "cpu", assets, lambda *_: None))
    layers = tuple(program.algorithm.layers())
    place = Workplace(program, layers, assets, Holder(Path(), math.inf), lambda *_: None)
    return place, program.algorithm.broadcast(state, 0)


def lane(program: Program, clients: int, number: int) -> TrainLane:
    """The job of lane `number`, each of which trains the next `clients` clients."""
    ids = program.data.client_ids()
    chosen = tuple((ids[(number * clients + i) % len(ids)], None) for i in range(clients))
    return TrainLane(Lane(number, 0, chosen))


def floor_ms(workload: Keywords, rounds: int) -> float:
    """Milliseconds a client of the bare steps in this process."""
    return 1000 * median(floor.play(workload, rounds + 1)[1:]) / workload.cohort
