"""Client actors: one process each, played by whichever client is leased to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fedray.core.types import Broadcast, Evaluation, Received, Server, ServerState, Update
from fedray.engine import work
from fedray.engine.work import Lane, LaneResult, Program


class ClientActor:
    """Stateless between calls: what it computes depends on the arguments alone, so any actor may do any piece of work again."""

    def __init__(self, program: Program, assets: Mapping[str, Any], gpus: float, driver: Any) -> None:
        torch.set_num_threads(1)  # two threads a process are slower on small models, and give other bits
        torch.use_deterministic_algorithms(True, warn_only=gpus > 0)  # on a GPU some backward passes (CTC) have no deterministic kernel
        self.program, self.assets, self.driver = program, assets, driver
        self.device = "cpu"
        if gpus:
            self.device = "cuda"  # Ray shows this process its own GPU only
            torch.cuda.set_per_process_memory_fraction(min(1.0, gpus))
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    def ping(self) -> str:
        return self.device

    def train_lane(self, lane: Lane, broadcast: Broadcast, first: Broadcast) -> LaneResult:
        return work.LaneRun(self.program, lane, self._arrive(broadcast, lane.round), self._arrive(first, 0)).run()

    def prepare_lane(self, lane: Lane, first: Broadcast) -> LaneResult:
        return work.prepare_lane(self.program, lane, self._arrive(first, 0))

    def server_train(self, round: int, broadcast: Broadcast) -> Update | None:
        return self.program.algorithm.server_train(self._server(round), self._arrive(broadcast, round))

    def server_finish(self, round: int, state: ServerState) -> ServerState:
        return self.program.algorithm.server_finish(self._server(round), state)

    def init(self) -> ServerState:
        return work.init(self.program, lambda: self._server(None))

    def evaluate(self, split: str, shard: int, shards: int, round: int, broadcast: Broadcast, final: bool) -> Evaluation:
        return work.evaluate(self.program, split, shard, shards, self._arrive(broadcast, round), final)

    def _arrive(self, broadcast: Broadcast, round: int) -> Received:
        return work.arrive(broadcast, round, self.assets, self.device)

    def _server(self, round: int | None) -> Server:
        return work.server(self.program, round, self.device, self.assets, self._progress())

    def _progress(self) -> Callable[[int, int, str], None]:
        last = [0.0]

        def report(done: int, of: int, what: str) -> None:
            now = time.monotonic()
            if now - last[0] > 0.5 or done == of:
                last[0] = now
                self.driver.note.remote("progress", {"done": done, "of": of, "what": what})

        return report
