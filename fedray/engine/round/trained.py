"""The results of a round's lanes as they come in, and the sum of their updates."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, cast

from fedray.core.sums import PartialSum, WeightedSum
from fedray.core.types import Update
from fedray.engine.jobs.job import Job, Worker, Workers
from fedray.engine.lane.aggregation import TrainedLanes, common_packing
from fedray.engine.lane.lane import LaneResult
from fedray.engine.lane.tree import Spot, Tree

SERVER = "server"  # the key of the server's job; lanes have their numbers


class Trained:
    """The lanes of a round that are trained. `holds`: whether the updates wait on the actors that trained them."""

    def __init__(self, round: int, lanes: int, holds: bool) -> None:
        self.round, self.holds = round, holds
        self.lanes: dict[int, LaneResult] = {}
        self.served, self.server = False, cast(Update | None, None)
        self.tree = Tree[WeightedSum](lanes)
        self._holders: dict[int, int] = {}  # lane -> number of the actor that trained it
        self._begun = False

    def missing(self, pool: Workers) -> set[int]:
        """The lanes to train: at first all, later those whose updates were lost with an actor or a node."""
        if self.holds:
            held = {lane for lane, holder in self._holders.items() if pool.lives(holder)}
            return set(range(self.tree.lanes)) - held
        if self._begun:
            before = self.tree.missing()
            self.tree.lose(pool.nodes_alive())
            if self.tree.missing() == before:  # lost, though no node is gone
                self.tree.lose(())
        self._begun = True
        return self.tree.missing()

    def take(self, key: Hashable, result: Any, worker: Worker) -> Mapping[Hashable, Job[Any]]:
        """Take a result of the pool; returns the jobs that it makes possible. RunError: updates differ in size."""
        if key == SERVER:
            self.served, self.server = True, result
            return {}
        if isinstance(key, Spot):
            return {**self.tree.then(key, result, worker)}
        assert isinstance(key, int)
        part, lane = result if isinstance(result, tuple) else (None, result)
        self.lanes[key], self._holders[key] = lane, worker.number
        if self.holds:
            return {}
        common_packing([*list(self.lanes.values())[:1], lane])
        if part is not None:
            return {**self.tree.then(key, (part, None), worker)}
        total, lane.partial.updates = lane.partial.updates, WeightedSum()
        return {**self.tree.then(key, total, worker)}

    def merged(self, pool: Workers) -> TrainedLanes:
        """All lanes, merged in their order. RunError: updates differ in size. Lost: a node died with sums."""
        results = [self.lanes[lane] for lane in range(self.tree.lanes)]
        holders = [self._holders[lane] for lane in range(self.tree.lanes)]
        partial, through = PartialSum(), 0
        for lane in results:
            partial.merge(lane.partial)
        if not self.holds:
            total, through = self.tree.total(pool)
            partial.updates = total or partial.updates
        server = None if self.server is None else self.server.delta
        return TrainedLanes(self.round, results, holders, partial, common_packing(results), through, server)
