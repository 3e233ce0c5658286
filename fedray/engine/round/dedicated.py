"""Dedicated placement: each client has an actor. A lane's clients train in parallel; one actor folds their updates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedray.engine.jobs.job import Job, Reference, Taker, Worker, Workers
from fedray.engine.lane.aggregation import common_packing
from fedray.engine.lane.lane import LaneResult
from fedray.engine.lane.training import GatherLane, TrainClient, TrainKept, TrainLane


def train_dedicated(
    pool: Workers,
    jobs: Mapping[Hashable, Job[Any]],
    slots: Mapping[str, int],
    cost: Callable[[str], float],
    markers: Path,
    take: Taker[Hashable, Any],
) -> None:
    """Run `jobs`, and hand their results to `take`, as `Pool.each` does. Each client is trained on its own actor.

    The actor of a lane's first client folds the lane's updates, in lane order, or holds them if the strategy must see
    the whole cohort. `slots`: client -> place of its actor in the pool.
    """
    lanes = {key: job for key, job in jobs.items() if isinstance(job, TrainLane | TrainKept)}
    single: dict[Hashable, Job[Any]] = {key: job for key, job in jobs.items() if key not in lanes}
    for key, job in lanes.items():
        for client, version in job.lane.clients:
            alone = replace(job.lane, clients=((client, version),), marker=markers / f"client_{slots[client]}")
            single[key, client] = TrainClient(alone, inputs=job.inputs, cost=cost(client), slot=slots[client])
    own = single.keys() - jobs.keys()  # a merge may lead to another one, whose key is in neither
    trained: dict[Hashable, tuple[Reference, LaneResult]] = {}

    def take_client(key: Hashable, result: Any, worker: Worker) -> Mapping[Hashable, Job[Any]]:
        if key not in own:
            return take(key, result, worker)
        trained[key] = result
        return {}

    pool.each(single, take_client)
    results: dict[Hashable, LaneResult] = {}
    gathering: dict[Hashable, Job[Any]] = {}
    for key, job in lanes.items():
        results[key], updates = LaneResult(), []
        for client, _ in job.lane.clients:
            update, part = trained.pop((key, client))
            updates.append(update)
            common_packing([results[key], part])
            results[key].extend(part)
        kept, slot = isinstance(job, TrainKept), slots[job.lane.clients[0][0]]
        gathering[key] = GatherLane(job.lane, kept, inputs=tuple(updates), slot=slot)

    def take_lane(key: Hashable, result: Any, worker: Worker) -> Mapping[Hashable, Job[Any]]:
        if key not in results:
            return take(key, result, worker)
        if isinstance(result, tuple):
            return take(key, (result[0], results[key]), worker)
        results[key].partial.updates = result
        return take(key, results[key], worker)

    pool.each(gathering, take_lane)
