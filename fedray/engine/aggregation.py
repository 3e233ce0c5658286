"""From what the lanes hold to the cohort's one change: a mean, or what a strategy makes of the whole cohort."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from fedray.core.strategies import Coordinatewise, OnePass, Pairwise, Strategy, TwoPhase, Weights
from fedray.core.sums import LayeredSum, PartialSum
from fedray.core.types import Layer, RunError, Vector
from fedray.engine.lanes import LaneResult, votes
from fedray.engine.pool import Job, Pool

Held = Sequence[tuple[int, int]]  # lane and the number of the actor that holds its updates, in lane order
BLOCK_BYTES = 64e6  # of all clients' numbers that are looked at together


@dataclass
class Aggregate:
    """What became of a cohort's updates."""

    mean: Vector | None  # None: nobody answered
    effective: float  # clients
    left_out: dict[str, list[str]] = field(default_factory=dict)  # client -> layers in which the strategy gave it no weight
    bytes: int = 0  # of parameters that passed through the driver


def aggregate(
    pool: Pool,
    strategy: Strategy,
    layers: Sequence[Layer],
    round: int,
    lanes: Sequence[LaneResult],
    holders: Sequence[int],
    partial: PartialSum,
) -> Aggregate:
    """The aggregate of a round's lanes, in lane order; `holders` are the numbers of the actors that hold their updates."""
    through = sum(lane.partial.updates.total.nbytes for lane in lanes if lane.partial.updates.total is not None)
    if isinstance(strategy, OnePass):
        return Aggregate(partial.updates.mean(), partial.updates.effective_clients(), bytes=through)
    counted = [{client: report for client, report in lane.reports.items() if votes(report)} for lane in lanes]
    held = [(number, holder) for number, holder in enumerate(holders) if counted[number]]
    reports = {client: report for lane in counted for client, report in lane.items()}
    if not held:
        return Aggregate(None, 0.0)
    sizes = sorted({lane.size for lane in lanes if lane.size})
    if len(sizes) > 1:
        raise RunError(f"clients sent updates of {' and '.join(f'{size:,}' for size in sizes)} numbers: the strategy cannot compare them")
    layers = [layer for layer in layers if layer.start < sizes[0]]
    if isinstance(strategy, Coordinatewise):
        combined = np.concatenate(list(blocks(pool, round, held, len(reports), sizes[0])))
        return Aggregate(combined, float(len(reports)), bytes=combined.nbytes)
    if isinstance(strategy, TwoPhase):
        plain, through = fold(pool, round, held, dict.fromkeys(reports, 1.0))
        mean = ray.put(plain)
        probes = pool.run({n: Job("probe_lane", (round, n, mean), holder=holder) for n, holder in held})
        weights = checked(lambda: strategy.weigh({client: probe for lane in probes.values() for client, probe in lane.items()}, reports))
    else:
        assert isinstance(strategy, Pairwise)
        distances: npt.NDArray[np.float64] = np.zeros((len(reports), len(reports)))
        for block in blocks(pool, round, held, len(reports), sizes[0]):
            distances += block
        weights = checked(lambda: strategy.weigh(distances, list(reports), reports))
    mean, more = fold(pool, round, held, weights)
    table = np.array([[weight_of(weights, client, name) for name in names(layers)] for client in reports])
    left_out = {client: [names(layers)[i] for i in np.flatnonzero(row == 0)] for client, row in zip(reports, table, strict=True)}
    return Aggregate(mean, effective(table), {client: missing for client, missing in left_out.items() if missing}, through + more)


def fold(pool: Pool, round: int, held: Held, weights: Weights) -> tuple[Vector | None, int]:
    """The weighted mean of what is held, in lane order, and the bytes that it cost the driver."""
    shared = ray.put(weights)
    sums = pool.run({lane: Job("fold_lane", (round, lane, shared), holder=holder) for lane, holder in held})
    total, through = LayeredSum(next(iter(sums.values())).layers), 0
    for part in sums.values():
        total.merge(part)
        through += part.total.nbytes if part.total is not None else 0
    return total.mean(), through


def blocks(pool: Pool, round: int, held: Held, clients: int, size: int) -> Iterator[npt.NDArray[Any]]:
    """What `ClientActor.combine` makes of all updates, some coordinates at a time: from their holders to other actors, past the driver."""
    width = max(1024, int(BLOCK_BYTES / 4 / clients))
    spans = [(start, min(start + width, size)) for start in range(0, size, width)]
    for i in range(0, len(spans), pool.size):
        wave = spans[i : i + pool.size]
        wanted: dict[Hashable, Job] = {
            (lane, span): Job("block", (round, lane, *span), holder=holder, keep=True) for lane, holder in held for span in wave
        }
        parts = pool.run(wanted)
        jobs: dict[Hashable, Job] = {span: Job("combine", tuple(parts[lane, span][0] for lane, _ in held)) for span in wave}
        yield from pool.run(jobs).values()


def checked(weigh: Callable[[], Weights]) -> Weights:
    """A strategy's weights; none of them may be negative, infinite or NaN."""
    try:
        weights = dict(weigh())
    except KeyError as error:
        raise RunError(f"the strategy weighs by {error}, which this algorithm's clients do not report") from error
    for client, weight in weights.items():
        if not all(0 <= value < math.inf for value in (weight.values() if isinstance(weight, Mapping) else [weight])):
            raise RunError(f"the strategy gives client {client} the weight {weight}: weights are finite and not negative")
    return weights


def names(layers: Sequence[Layer]) -> list[str]:
    return list(dict.fromkeys(layer.name for layer in layers))


def weight_of(weights: Weights, client: str, layer: str) -> float:
    weight = weights.get(client, 0.0)
    return weight.get(layer, 0.0) if isinstance(weight, Mapping) else weight


def effective(table: npt.NDArray[np.float64]) -> float:
    """(sum w)^2 / sum w^2 of weights [clients, layers], the mean over layers."""
    squares = np.square(table).sum(0)
    return float(np.mean(np.divide(np.square(table.sum(0)), squares, out=np.zeros(len(squares)), where=squares > 0)))
