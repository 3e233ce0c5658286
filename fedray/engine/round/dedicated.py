"""Dedicated placement: each client has an actor. A lane's clients train in parallel; one actor folds their updates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path

from fedray.core.types import Update
from fedray.engine.jobs.job import Job, Reference, Workers
from fedray.engine.lane.aggregation import common_packing
from fedray.engine.lane.lane import LaneResult
from fedray.engine.lane.training import GatherLane, TrainClient, TrainLane

RoundJobResult = LaneResult | Update | None


def train_dedicated(
    pool: Workers,
    jobs: Mapping[Hashable, Job[RoundJobResult]],
    slots: Mapping[str, int],
    cost: Callable[[str], float],
    markers: Path,
) -> dict[Hashable, RoundJobResult]:
    """Run `jobs` and return their results. Each client of a lane is trained on its own actor.

    The actor of a lane's first client folds the lane's updates, in lane order, or holds them if the strategy must see
    the whole cohort. `pool.where` names that actor. `slots`: client -> place of its actor in the pool.
    """
    lanes = {key: job for key, job in jobs.items() if isinstance(job, TrainLane)}
    single: dict[Hashable, Job[RoundJobResult | tuple[Reference, LaneResult]]] = {
        key: job for key, job in jobs.items() if key not in lanes
    }
    for key, job in lanes.items():
        for client, version in job.lane.clients:
            alone = replace(job.lane, clients=((client, version),), marker=markers / f"client_{slots[client]}")
            single[key, client] = TrainClient(alone, inputs=job.inputs, cost=cost(client), slot=slots[client])
    trained = pool.run(single)
    results: dict[Hashable, LaneResult] = {}
    gathering: dict[Hashable, GatherLane] = {}
    for key, job in lanes.items():
        result, updates = LaneResult(), []
        for client, _ in job.lane.clients:
            part = trained[key, client]
            assert isinstance(part, tuple)
            updates.append(part[0])
            common_packing([result, part[1]])
            result.extend(part[1])
        results[key] = result
        gathering[key] = GatherLane(job.lane, inputs=tuple(updates), slot=slots[job.lane.clients[0][0]])
    for key, total in pool.run(gathering).items():
        results[key].partial.updates = total
    found: dict[Hashable, RoundJobResult] = dict(results)
    for key in jobs.keys() - lanes.keys():
        other = trained[key]
        assert not isinstance(other, tuple)
        found[key] = other
    return found
