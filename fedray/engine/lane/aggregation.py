"""One class for each kind of strategy: it takes updates on an actor, and computes the cohort's mean on the driver."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar, final

import numpy as np
import numpy.typing as npt

from fedray.core.packing import Packing
from fedray.core.strategies import Coordinatewise, Grouped, OnePass, Pairwise, Strategy, TwoPhase, Weights
from fedray.core.sums import PartialSum, WeightedSum
from fedray.core.types import NOTHING, Layer, RunError, Vector
from fedray.engine.jobs.holding import Holder
from fedray.engine.jobs.job import Workers
from fedray.engine.lane.held import CombineBlock, Distances, HeldUpdates, MeasureBlock
from fedray.engine.lane.lane import Lane, LaneResult

Take = Callable[[str, Vector, float], None]  # (client, flat update, log-weight): takes a checked update
Kind_co = TypeVar("Kind_co", bound=Strategy, covariant=True)


@dataclass
class Aggregate:
    """The mean of a cohort's updates, and how it was computed."""

    mean: Vector | None  # of the flat updates; None: no client answered
    effective: float  # clients: (sum w)^2 / sum w^2
    weight: float = 1.0  # the sum of the weights, the mean over layers
    left_out: dict[str, list[str]] = field(default_factory=dict)  # client -> layers in which its weight is 0
    bytes: int = 0  # of parameters that passed through the driver
    packing: Packing | None = None  # of the mean
    kept: dict[str, float] = field(default_factory=dict)  # what the strategy keeps for the next round

    def parts(self) -> tuple[Vector | None, dict[str, Vector]]:
        """The mean of the deltas, and the means of the vectors sent with them."""
        if self.mean is None:
            return None, {}
        assert self.packing is not None
        return self.packing.unpack(self.mean)


@dataclass(frozen=True)
class TrainedLanes:
    """A round's lanes after training, in lane order."""

    round: int
    results: Sequence[LaneResult]
    holders: Sequence[int]  # for each lane, the number of the actor that trained it
    partial: PartialSum  # of all lanes
    packing: Packing | None  # of all updates; None: no client succeeded
    through: int  # bytes of updates that passed through the driver
    server: Vector | None = None  # the delta that the server trained
    groups: Mapping[str, str] = field(default_factory=dict)  # client -> its group
    kept: Mapping[str, float] = field(default_factory=dict)  # what the strategy kept of the round before


class Aggregation(ABC, Generic[Kind_co]):
    """How the updates of a round become one mean, under one kind of strategy."""

    holds: ClassVar[bool]  # whether updates wait on the actors that trained them

    def __init__(self, strategy: Kind_co) -> None:
        self.strategy = strategy

    @abstractmethod
    def log_weight(self, report: Mapping[str, float]) -> float:
        """On an actor: the log-weight of a client's report, -inf if its update does not count.

        ValueError: the strategy cannot weigh the report.
        """

    @abstractmethod
    def taker(self, lane: Lane, holder: Holder, total: WeightedSum) -> Take:
        """On an actor: begin a lane, and return a function that takes its updates one by one."""

    @abstractmethod
    def aggregate(self, pool: Workers, lanes: TrainedLanes, layers: Sequence[Layer]) -> Aggregate:
        """On the driver: the mean of all updates. Lost: an actor died with updates that it held."""


@final
class OnePassAggregation(Aggregation[OnePass]):
    """Adds each update to its lane's sum at once, and forgets it."""

    holds = False

    def log_weight(self, report: Mapping[str, float]) -> float:
        try:
            log_weight = self.strategy.log_weight(report)
        except KeyError as error:
            known = ", ".join(report)
            raise ValueError(
                f"the strategy weighs by {error}, which this algorithm's clients do not report (they report {known})"
            ) from error
        if np.isnan(log_weight) or log_weight == np.inf:
            raise ValueError(f"the strategy cannot weigh the report {dict(report)}")
        return log_weight

    def taker(self, lane: Lane, holder: Holder, total: WeightedSum) -> Take:
        return lambda client, update, log_weight: total.add(update, log_weight)

    def aggregate(self, pool: Workers, lanes: TrainedLanes, layers: Sequence[Layer]) -> Aggregate:
        updates = lanes.partial.updates
        left_out = _without_weight(lanes, layers, lambda report: self.log_weight(report) == -math.inf)
        count = updates.effective_clients()
        return Aggregate(updates.mean(), count, left_out=left_out, bytes=lanes.through, packing=lanes.packing)


class HeldAggregation(Aggregation[Kind_co]):
    """Updates wait on the actors that trained them until the strategy has seen the whole cohort. Abstract."""

    holds = True

    def log_weight(self, report: Mapping[str, float]) -> float:
        """0 (one vote) for every client with examples, -inf for a client without."""
        return 0.0 if _votes(report) else -math.inf

    def taker(self, lane: Lane, holder: Holder, total: WeightedSum) -> Take:
        keep = holder.open(lane.round, lane.number)

        def take(client: str, update: Vector, log_weight: float) -> None:
            if log_weight != -math.inf:
                keep(client, update)

        return take

    def aggregate(self, pool: Workers, lanes: TrainedLanes, layers: Sequence[Layer]) -> Aggregate:
        counted = [{name: report for name, report in lane.reports.items() if _votes(report)} for lane in lanes.results]
        reports = {client: report for lane in counted for client, report in lane.items()}
        packing = lanes.packing
        if not reports or packing is None:
            return Aggregate(None, 0.0)
        if not packing.size:  # nothing to compare: all clients count
            return Aggregate(NOTHING, float(len(reports)), packing=packing)
        holders = {number: holder for number, holder in enumerate(lanes.holders) if counted[number]}
        held = HeldUpdates(pool, lanes.round, holders, reports, packing, packing.layers(layers))
        aggregate = self.combine(held, lanes)
        aggregate.left_out |= _without_weight(lanes, layers, lambda report: not _votes(report))
        return aggregate

    @abstractmethod
    def combine(self, held: HeldUpdates, lanes: TrainedLanes) -> Aggregate:
        """The mean of the held updates. There is at least one, and none is empty."""


@final
class TwoPhaseAggregation(HeldAggregation[TwoPhase]):
    """Computes each update's scalars (`probe`), if asked against the plain mean, then the mean that `weigh` weighs."""

    def combine(self, held: HeldUpdates, lanes: TrainedLanes) -> Aggregate:
        other, through = NOTHING, 0
        if self.strategy.against == "mean":
            plain, through = held.fold(dict.fromkeys(held.reports, 1.0))
            assert plain is not None
            other = plain
        elif self.strategy.against == "server":
            if lanes.server is None:
                raise RunError("the strategy compares clients with what the server trains, and it has trained nothing")
            other = lanes.server
        probes = held.probe(self.strategy, other)
        aggregate = _weighted(held, _checked(lambda: self.strategy.weigh(probes, held.reports)), through)
        if self.strategy.absolute and aggregate.mean is not None:
            aggregate.mean *= np.float32(aggregate.weight)
        return aggregate


@final
class GroupedAggregation(HeldAggregation[Grouped]):
    """Weighs clients by their groups."""

    def combine(self, held: HeldUpdates, lanes: TrainedLanes) -> Aggregate:
        kept: dict[str, float] = {}

        def weigh() -> Weights:
            weights, after = self.strategy.weigh(held.reports, lanes.groups, lanes.kept)
            kept.update(after)
            return weights

        aggregate = _weighted(held, _checked(weigh), 0)
        aggregate.kept = kept
        return aggregate


@final
class PairwiseAggregation(HeldAggregation[Pairwise]):
    """Sums the distances between all updates block by block. The holders fold their updates under the weights."""

    def combine(self, held: HeldUpdates, lanes: TrainedLanes) -> Aggregate:
        distances: Distances = np.zeros((len(held.reports), len(held.reports)))
        for block in held.blocks(MeasureBlock()):
            distances += block
        weights = _checked(lambda: self.strategy.weigh(distances, list(held.reports), held.reports))
        return _weighted(held, weights, 0)


@final
class CoordinatewiseAggregation(HeldAggregation[Coordinatewise]):
    """Combines each number over all clients, block by block."""

    def combine(self, held: HeldUpdates, lanes: TrainedLanes) -> Aggregate:
        mean: Vector = np.concatenate(list(held.blocks(CombineBlock(self.strategy))))
        return Aggregate(mean, float(len(held.reports)), bytes=mean.nbytes, packing=held.packing)


def aggregation_of(strategy: Strategy) -> Aggregation[Strategy]:
    """The object for a strategy's kind."""
    match strategy:
        case OnePass():
            return OnePassAggregation(strategy)
        case TwoPhase():
            return TwoPhaseAggregation(strategy)
        case Grouped():
            return GroupedAggregation(strategy)
        case Pairwise():
            return PairwiseAggregation(strategy)
        case Coordinatewise():
            return CoordinatewiseAggregation(strategy)
    raise TypeError(
        f"{type(strategy).__name__} must derive from OnePass, TwoPhase, Grouped, Pairwise or Coordinatewise"
    )


def common_packing(lanes: Sequence[LaneResult]) -> Packing | None:
    """The packing of all updates of these lanes; None if no client succeeded. RunError: updates differ in size."""
    packings = list(dict.fromkeys(lane.packing for lane in lanes if lane.packing is not None))
    if len(packings) > 1:
        raise RunError(f"clients sent updates of {' and updates of '.join(map(str, packings))}: they have no mean")
    return packings[0] if packings else None


def _without_weight(
    lanes: TrainedLanes, layers: Sequence[Layer], weightless: Callable[[Mapping[str, float]], bool]
) -> dict[str, list[str]]:
    """The clients whose reports have no weight, each with all layers."""
    names = list(dict.fromkeys(layer.name for layer in layers))
    return {client: names for lane in lanes.results for client, report in lane.reports.items() if weightless(report)}


def _votes(report: Mapping[str, float]) -> bool:
    """Whether a client's update counts when every client has one vote: not if it trained on nothing."""
    return report.get("examples", 1.0) > 0


def _weighted(held: HeldUpdates, weights: Weights, through: int) -> Aggregate:
    """The mean under these weights, with the layers that each client was left out of."""
    mean, more = held.fold(weights)
    names = list(dict.fromkeys(layer.name for layer in held.layers))
    table = np.array([[_weight_of(weights, client, name) for name in names] for client in held.reports])
    left_out = {
        client: [names[i] for i in np.flatnonzero(row == 0)] for client, row in zip(held.reports, table, strict=True)
    }
    missing = {client: layers for client, layers in left_out.items() if layers}
    weight = float(table.sum(0).mean())
    return Aggregate(mean, effective(table), weight, missing, through + more, held.packing)


def _checked(weigh: Callable[[], Weights]) -> Weights:
    """A strategy's weights; none of them may be negative, infinite or NaN."""
    try:
        weights = dict(weigh())
    except KeyError as error:
        raise RunError(f"the strategy weighs by {error}, which this algorithm's clients do not report") from error
    for client, weight in weights.items():
        if not all(0 <= value < math.inf for value in (weight.values() if isinstance(weight, Mapping) else [weight])):
            raise RunError(
                f"the strategy gives client {client} the weight {weight}: weights are finite and not negative"
            )
    return weights


def _weight_of(weights: Weights, client: str, layer: str) -> float:
    weight = weights.get(client, 0.0)
    return weight.get(layer, 0.0) if isinstance(weight, Mapping) else weight


def effective(table: npt.NDArray[np.float64]) -> float:
    """(sum w)^2 / sum w^2 of weights [clients, layers], the mean over layers."""
    squares = np.square(table).sum(0)
    return float(np.mean(np.divide(np.square(table.sum(0)), squares, out=np.zeros(len(squares)), where=squares > 0)))
