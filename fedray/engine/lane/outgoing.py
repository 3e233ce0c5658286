"""How updates leave the clients of a lane."""

from __future__ import annotations

from collections.abc import Mapping

from fedray.core.algorithm import Algorithm
from fedray.core.packing import Packing
from fedray.core.types import Update, Vector
from fedray.engine.lane.aggregation import aggregation_of
from fedray.engine.lane.lane import Lane, LaneResult


class Outgoing:
    """The strategy weighs and clips updates; late ones count less."""

    def __init__(self, lane: Lane, algorithm: Algorithm) -> None:
        self.lane, self.strategy = lane, algorithm.strategy
        self._aggregation = aggregation_of(algorithm.strategy)
        tensors = None if algorithm.overrides("server_receive") else algorithm.tensors()
        self._weights = None if tensors is None else sum(tensors)  # in a delta; running statistics follow

    def log_weight(self, report: Mapping[str, float]) -> float:
        """The log-weight of a client's update. ValueError: the strategy cannot weigh the report."""
        return self._aggregation.log_weight(report)

    def flat(self, update: Update, packing: Packing, client: str) -> Vector:
        """The flat update as it leaves the client."""
        delta, factor = self.strategy.clip(update.delta, self._weights), self.lane.factor
        return packing.pack(delta if factor == 1 else factor * delta, update)

    def bytes(self, sent: int) -> int:
        """The bytes of an update. `sent`: those of the numbers that the algorithm sends."""
        return sent

    def taken(self, result: LaneResult) -> None:
        """The newest update has been taken: record it in the lane's result."""
