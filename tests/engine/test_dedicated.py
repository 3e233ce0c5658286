"""Dedicated placement without Ray: what is left to merge when a node is lost between training and merging."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedray.core.packing import Packing
from fedray.core.sums import WeightedSum
from fedray.engine.lane.lane import Lane, LaneResult
from fedray.engine.lane.training import GatherLane, TrainClient, TrainKept
from fedray.engine.lane.tree import FAN_IN, Kept, Merge, Spot
from fedray.engine.round.dedicated import train_dedicated
from fedray.engine.round.trained import Trained

TRAINED, LANES = FAN_IN**2, FAN_IN**2 + 2  # the sum of all lanes is two merges away from the first lane's


def lane_sum(lane: int) -> WeightedSum:
    total = WeightedSum()
    total.add(np.full(4, float(lane), np.float32), 0.0)
    return total


class Pool:
    """Runs jobs as `Pool.each` does, and those that their takers return."""

    def each(self, jobs: Mapping[Hashable, Any], take: Callable[..., Mapping[Hashable, Any]]) -> None:
        waiting = dict(jobs)
        while waiting:
            key = next(iter(waiting))
            waiting |= take(key, self._run(waiting.pop(key)), SimpleNamespace(number=0, node="a"))

    def _run(self, job: Any) -> Any:
        match job:
            case Merge():
                return job.run(None, *(WeightedSum(**vars(part)) for part in job.inputs))  # type: ignore[arg-type]
            case TrainClient():
                return [(np.full(4, float(job.lane.number), np.float32), 0.0)], LaneResult(packing=Packing(4))
            case GatherLane():
                total = WeightedSum()
                for update, log_weight in [each for updates in job.inputs for each in updates]:
                    total.add(update, log_weight)
                return total, None
        raise AssertionError(job)

    def fetch(self, reference: Any) -> Any:
        return reference


def test_a_merge_that_follows_a_merge_is_not_taken_for_a_client(tmp_path: Path) -> None:
    trained = Trained(0, LANES, holds=False)
    trained._begun = True
    for lane in range(TRAINED):
        trained.lanes[lane], trained._holders[lane] = LaneResult(packing=Packing(4)), 0
        for spot, job in trained.tree.add(Spot(0, lane), Kept(lane_sum(lane), "a")).items():
            if spot.at:  # the merge of the first lanes waits
                total, _ = job.run(None, *job.inputs)  # type: ignore[arg-type]
                assert not trained.tree.add(spot, Kept(total, "a"))
    assert trained.tree.missing() == {TRAINED, TRAINED + 1} and list(trained.tree.ready()) == [Spot(1, 0)]
    lanes = {lane: TrainKept(Lane(lane, 0, ((f"client-{lane}", None),))) for lane in (TRAINED, TRAINED + 1)}
    slots = {f"client-{lane}": lane for lane in range(LANES)}
    pool: Any = Pool()
    train_dedicated(pool, {**trained.tree.ready(), **lanes}, slots, lambda client: 1.0, tmp_path, trained.take)
    found = trained.merged(pool).partial.updates
    assert found.weight == LANES and found.total is not None and found.total.tolist() == [sum(range(LANES))] * 4
