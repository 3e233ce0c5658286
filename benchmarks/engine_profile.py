"""What a client costs, piece by piece: a lane of the standard workload in this process, with timers around fedray's own functions."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest import mock

import engine_floor
import torch
from engine_floor import Workload

from fedray.core.parameters import FlatModel
from fedray.core.sums import WeightedSum
from fedray.core.types import Received
from fedray.engine import lanes, work
from fedray.engine.work import Program
from fedray.training import federated, local
from fedray.training.classification import Classification

# Phase -> what is timed. What happens inside a nested one counts there alone.
TIMED: dict[str, tuple[tuple[Any, str], ...]] = {
    "hydration: data, seed, state": ((lanes, "hydrate"),),
    "global generators re-seeded": ((lanes, "seed_all"),),
    "broadcast loaded, difference taken": ((FlatModel, "load"), (FlatModel, "difference")),
    "features and targets": ((Classification, "targets"), (local, "batches")),
    "forward": ((Classification, "loss"),),
    "backward": ((torch.Tensor, "backward"),),
    "gradients zeroed, loss read": ((local.Steps, "backward"),),
    "optimiser step": ((local.Steps, "step"), (federated, "train")),
    "update checked, metrics added": ((lanes.LaneRun, "_accept"),),
    "update folded": ((WeightedSum, "add"),),
}
STEPS = ("features and targets", "forward", "backward", "gradients zeroed, loss read", "optimiser step")  # what the floor has as well
REST = "the lane's loop"


class Timers:
    """Seconds by phase; at any moment the innermost phase is running."""

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
        """`function`, timed; where it gives an iterator, each of its steps too."""

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
    """Milliseconds a client by phase, medians over lanes; all phases together are the lane."""
    torch.set_num_threads(1)
    assets = program.algorithm.assets()
    state, _ = work.init(program, lambda: work.server(program, None, "cpu", assets, lambda *_: None))
    broadcast = program.algorithm.broadcast(state, 0)
    received = Received(broadcast.params, broadcast.settings, 0, assets)
    ids = program.data.client_ids()
    found: list[Counter[str]] = []
    for repeat in range(repeats + 1):
        chosen = tuple((ids[(repeat * clients + i) % len(ids)], None) for i in range(clients))
        run = lanes.LaneRun(program, lanes.Lane(repeat, 0, chosen), received, received)
        total = run.result.partial.updates
        with ExitStack() as stack:
            timers = Timers()
            for phase, functions in TIMED.items():
                for owner, name in functions:
                    stack.enter_context(mock.patch.object(owner, name, timers.around(getattr(owner, name), phase)))
            result = run.run(lambda client, delta, log_weight, total=total: total.add(delta, log_weight))
            timers._lap()
        assert len(result.reports) == clients, result.failures
        found.append(timers.seconds)
    # The first lane builds the model and reads the clips.
    return {phase: 1000 * median(seconds[phase] for seconds in found[1:]) / clients for phase in (*TIMED, REST)}


def floor_ms(workload: Workload, rounds: int) -> float:
    """Milliseconds a client of the bare steps, in this process."""
    return 1000 * median(engine_floor.play(workload, rounds + 1)[1:]) / workload.cohort
