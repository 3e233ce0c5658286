"""Updates that actors hold until the whole cohort has trained: the jobs on them, and the driver's view of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedray.core.packing import Packing
from fedray.core.strategies import Coordinatewise, TwoPhase, Weights, squared_distances
from fedray.core.sums import LayeredSum
from fedray.core.types import Layer, Vector
from fedray.engine.jobs.job import Job, Reference, Workers, Workplace
from fedray.engine.lane.tree import Spot, Tree, large

BLOCK_BYTES = 64e6  # of all clients' numbers that one job combines
LEAST_BLOCK = 1024  # numbers of a client in a block, at least
Distances = npt.NDArray[np.float64]  # [clients, clients]


@final
@dataclass(frozen=True)
class ProbeLane(Job[dict[str, Mapping[str, float]]]):
    """The strategy's scalars for each update of a lane, by client."""

    strategy: TwoPhase
    round: int
    lane: int
    packing: Packing

    def run(self, workplace: Workplace, mean: Vector) -> dict[str, Mapping[str, float]]:
        layers, updates = self.packing.layers(workplace.layers), workplace.holder.updates(self.round, self.lane)
        return {client: dict(self.strategy.probe(update, mean, layers)) for client, update in updates.items()}


@final
@dataclass(frozen=True)
class FoldLane(Job[Any]):
    """The weighted sum of a lane's updates. Clients without a weight are left out. `kept`: in the object store."""

    round: int
    lane: int
    packing: Packing
    kept: bool

    @property
    def keeps(self) -> bool:
        return self.kept

    def run(self, workplace: Workplace, weights: Weights) -> LayeredSum | tuple[LayeredSum, None]:
        total = LayeredSum(self.packing.layers(workplace.layers))
        for client, update in workplace.holder.updates(self.round, self.lane).items():
            if client in weights:
                total.add(update, weights[client])
        return (total, None) if self.kept else total


@final
@dataclass(frozen=True)
class ReadBlock(Job[tuple[Reference, None]]):
    """The numbers [start, stop) of all updates of a lane, float32 [clients, stop - start], for another actor."""

    round: int
    lane: int
    start: int
    stop: int

    @property
    def keeps(self) -> bool:
        return True

    def run(self, workplace: Workplace) -> tuple[Vector, None]:
        updates = workplace.holder.updates(self.round, self.lane)
        return np.stack([update[self.start : self.stop] for update in updates.values()]), None


@final
@dataclass(frozen=True)
class CombineBlock(Job[Vector]):
    """The coordinate-wise combination of a block of all updates, [block]."""

    strategy: Coordinatewise

    def run(self, workplace: Workplace, *lanes: Vector) -> Vector:
        return self.strategy.combine(np.concatenate(lanes))


@final
@dataclass(frozen=True)
class MeasureBlock(Job[Distances]):
    """The squared distances between all updates within a block, [clients, clients]."""

    def run(self, workplace: Workplace, *lanes: Vector) -> Distances:
        return squared_distances(np.concatenate(lanes))


@dataclass(frozen=True)
class HeldUpdates:
    """The updates of a round on the actors that hold them. Everything is in lane order."""

    pool: Workers
    round: int
    holders: Mapping[int, int]  # lane -> number of the actor that holds the lane's updates
    reports: Mapping[str, Mapping[str, float]]  # of the clients whose updates count
    packing: Packing
    layers: Sequence[Layer]  # of the flat updates

    def probe(self, strategy: TwoPhase, mean: Vector) -> dict[str, Mapping[str, float]]:
        """The strategy's scalars for each client's update."""
        inputs = (self.pool.put(mean),)
        jobs = {
            lane: ProbeLane(strategy, self.round, lane, self.packing, inputs=inputs, holder=holder)
            for lane, holder in self.holders.items()
        }
        return {client: probe for lane in self.pool.run(jobs).values() for client, probe in lane.items()}

    def fold(self, weights: Weights) -> tuple[Vector | None, int]:
        """The weighted mean, and the bytes that passed through the driver."""
        inputs = (self.pool.put(weights),)
        jobs = {
            lane: FoldLane(self.round, lane, self.packing, large(self.packing.size), inputs=inputs, holder=holder)
            for lane, holder in self.holders.items()
        }
        tree = Tree[LayeredSum](max(jobs) + 1)
        for lane in range(tree.lanes):
            if lane not in jobs:
                tree.add(Spot(0, lane), None)
        self.pool.each(jobs, tree.then)
        total, through = tree.total(self.pool)
        return None if total is None else total.mean(), through

    def blocks(self, job: Job[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
        """The results of `job` for each block of all updates. Blocks travel between actors, not through the driver."""
        width = max(LEAST_BLOCK, int(BLOCK_BYTES / 4 / len(self.reports)))
        spans = [(start, min(start + width, self.packing.size)) for start in range(0, self.packing.size, width)]
        while spans:  # in waves of one block per actor: there may be fewer actors by the next wave
            wave, spans = spans[: self.pool.size], spans[self.pool.size :]
            reading = {
                (lane, span): ReadBlock(self.round, lane, *span, holder=holder)
                for lane, holder in self.holders.items()
                for span in wave
            }
            parts = self.pool.run(reading)
            inputs = {span: tuple(parts[lane, span][0] for lane in self.holders) for span in wave}
            yield from self.pool.run({span: job.with_inputs(*inputs[span]) for span in wave}).values()
