"""Client actors: one process each, played by whichever client is leased to it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
import torch

from fedray.core.storage import Storage
from fedray.core.strategies import Coordinatewise, OnePass, TwoPhase, Weights, squared_distances
from fedray.core.sums import LayeredSum, WeightedSum
from fedray.core.types import Broadcast, Evaluation, Received, RunError, Server, ServerState, Update, Vector
from fedray.engine import own, work
from fedray.engine.holding import Holder, OwnStates, scratch
from fedray.engine.lanes import Lane, LaneResult, LaneRun, Take, prepare_lane
from fedray.engine.work import Program


class ClientActor:
    """What it computes depends on the arguments alone, so any actor may do any piece of work again.

    Between calls it keeps updates that wait for the whole cohort's weights, and in a placement of its own the state of its client.
    """

    def __init__(self, program: Program, assets: Mapping[str, Any], gpus: float, hold: float, own: bool, run: str, driver: Any) -> None:
        """`hold`: bytes of updates kept in memory; `own`: the actor is one client's; `run`: a name for what it leaves on local disk."""
        torch.set_num_threads(1)  # two threads a process are slower on small models, and give other bits
        torch.use_deterministic_algorithms(True, warn_only=gpus > 0)  # on a GPU some backward passes (CTC) have no deterministic kernel
        # A debugging aid that writes every new tensor twice.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if own:
            program = replace(program, states=OwnStates(program.states))
        self.program, self.assets, self.driver = program, assets, driver
        self.strategy, self.layers = program.algorithm.strategy, tuple(program.algorithm.layers())
        self.device, self.gpus = "cpu", gpus
        self.holder = Holder(scratch(run) / f"held-{os.getpid()}", hold)

    def ping(self, folder: str | None) -> tuple[str, str]:
        """(node, device), once this actor can work; where there are several nodes, leaves word in the run `folder`, which all must see."""
        if self.gpus:
            if not torch.cuda.is_available():
                raise RunError(f"Ray counts {ray.get_gpu_ids()} as this actor's GPUs, but torch finds none: set engine.gpus_per_client=0")
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            self.device = "cuda"  # Ray shows this process its own GPU only
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.gpus))
        node = ray.get_runtime_context().get_node_id()
        if folder is not None:
            self._probe(Storage.of(folder), node)
        return node, self.device

    def _probe(self, folder: Storage, node: str) -> None:
        where = f"node {ray.util.get_node_ip_address()}"
        try:
            found = folder.read("probe/driver").decode()
        except OSError as error:
            raise RunError(
                f"{where} cannot read the run folder {folder.place} ({error}): with several nodes choose --out on a shared folder or an "
                "object store"
            ) from error
        folder.write(f"probe/{node}", found.encode())
        try:
            self.program.data.load(self.program.data.client_ids()[0])
        except Exception as error:
            raise RunError(
                f"{where} cannot read the clients' data ({error}): set FEDRAY_CACHE to a folder that all nodes see, or FEDRAY_SHARED_CACHE"
            ) from error

    def train_lane(self, lane: Lane, broadcast: Broadcast, first: Broadcast) -> LaneResult:
        """Train a lane's clients one after the other; their updates are summed, or held where the strategy must see the whole cohort."""
        run = LaneRun(self.program, lane, self._arrive(broadcast, lane.round), self._arrive(first, 0))
        return run.run(self._taker(lane, run.result.partial.updates))

    def train_client(self, lane: Lane, broadcast: Broadcast, first: Broadcast) -> tuple[list[tuple[Vector, float]], LaneResult]:
        """Train one client of a lane whose clients have an actor each: its update with its log-weight (none: it failed), and the rest."""
        run = LaneRun(self.program, lane, self._arrive(broadcast, lane.round), self._arrive(first, 0))
        updates: list[tuple[Vector, float]] = []
        result = run.run(lambda client, delta, log_weight: updates.append((delta, log_weight)))
        return updates, result

    def gather_lane(self, lane: Lane, *parts: list[tuple[Vector, float]]) -> WeightedSum:
        """Sum or hold what the lane's clients learnt on their own actors, in lane order."""
        total = WeightedSum()
        take = self._taker(lane, total)
        for (client, _), part in zip(lane.clients, parts, strict=True):
            for delta, log_weight in part:
                take(client, delta, log_weight)
        return total

    def _taker(self, lane: Lane, total: WeightedSum) -> Take:
        """Where a sound update goes: into a sum, or, for strategies that must see the whole cohort, where it waits for them."""
        if isinstance(self.strategy, OnePass):
            return lambda client, delta, log_weight: total.add(delta, log_weight)
        keep = self.holder.open(lane.round, lane.number)
        return lambda client, delta, log_weight: None if log_weight == -math.inf else keep(client, delta)

    def probe_lane(self, round: int, lane: int, mean: Vector) -> dict[str, Any]:
        assert isinstance(self.strategy, TwoPhase)
        return self.holder.probe(self.strategy.probe, round, lane, mean, self.layers)

    def fold_lane(self, round: int, lane: int, weights: Weights) -> LayeredSum:
        return self.holder.fold(round, lane, weights, self.layers)

    def block(self, round: int, lane: int, start: int, stop: int) -> tuple[Vector, None]:
        return self.holder.block(round, lane, start, stop), None

    def combine(self, *parts: Vector) -> npt.NDArray[Any]:
        """A block of the whole cohort's updates, lane by lane: combined coordinate by coordinate, or all clients' distances in it."""
        values = np.concatenate(parts)
        return self.strategy.combine(values) if isinstance(self.strategy, Coordinatewise) else squared_distances(values)

    def prepare_lane(self, lane: Lane, first: Broadcast) -> LaneResult:
        return prepare_lane(self.program, lane, self._arrive(first, 0))

    def server_train(self, round: int, broadcast: Broadcast) -> Update | None:
        return self.program.algorithm.server_train(self._server(round), self._arrive(broadcast, round))

    def server_finish(self, round: int, state: ServerState) -> ServerState:
        return self.program.algorithm.server_finish(self._server(round), state)

    def init(self) -> tuple[ServerState, bool]:
        return work.init(self.program, lambda: self._server(None))

    def evaluate(self, split: str, shard: int, shards: int, round: int, broadcast: Broadcast, final: bool) -> Evaluation:
        return work.evaluate(self.program, split, shard, shards, self._arrive(broadcast, round), final)

    def evaluate_own(
        self, clients: Sequence[tuple[str, int | None]], round: int, broadcast: Broadcast, splits: Sequence[str], utterances: int | None
    ) -> list[Any]:
        return own.evaluate(self.program, clients, self._arrive(broadcast, round), splits, utterances)

    def clear(self) -> None:
        """Leave nothing on this machine's disk."""
        self.holder.clear()

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


def read_text(path: Path) -> str:
    """A file of the node on which this is called."""
    return path.read_text(encoding="utf-8")
