"""Partial sums of updates: folded one by one and forgotten, merged in lane order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.types import Vector

HEADROOM = 20.0  # how far a log-weight may lie above the reference before the sum is scaled down to it


@dataclass
class WeightedSum:
    """A weighted mean that streams: sum of exp(log_weight - reference) * delta, the reference within `HEADROOM` of the largest seen so far.

    Weights are float64 relative to the reference, sums are float32; so softmax weights of losses up to 1e4 neither overflow nor vanish.
    The reference moves only where all that is in the sum becomes negligible: a sum that is scaled for every larger weight loses digits.
    """

    reference: float = -math.inf
    weight: float = 0.0  # sum of exp(log_weight - reference)
    squares: float = 0.0  # sum of their squares, for the effective number of clients
    total: Vector | None = None

    def add(self, delta: Vector, log_weight: float) -> None:
        """Fold an update; one whose log-weight is -inf is left out."""
        if log_weight != -math.inf:
            self._merge(delta, log_weight, 1.0, 1.0, owned=False)

    def merge(self, other: WeightedSum) -> None:
        """Add another sum; the order of merging is the order of float additions."""
        if other.total is not None:
            self._merge(other.total, other.reference, other.weight, other.squares, owned=True)

    def _merge(self, total: Vector, reference: float, weight: float, squares: float, owned: bool) -> None:
        if self.total is None:
            self.total = total if owned and total.flags.writeable else total.copy()
            self.reference, self.weight, self.squares = reference, weight, squares
            return
        if reference > self.reference + HEADROOM:
            scale = math.exp(self.reference - reference)
            self.total *= np.float32(scale)
            self.weight *= scale
            self.squares *= scale * scale
            self.reference = reference
        scale = math.exp(reference - self.reference)
        self.total += total if scale == 1.0 else np.float32(scale) * total
        self.weight += scale * weight
        self.squares += scale * scale * squares

    def mean(self) -> Vector | None:
        return None if self.total is None else self.total / np.float32(self.weight)

    def effective_clients(self) -> float:
        """(sum w)^2 / sum w^2: how many clients of equal weight would weigh as evenly."""
        return self.weight**2 / self.squares if self.squares else 0.0


@dataclass
class PartialSum:
    """What a lane brings home: its weighted sum and its metrics."""

    updates: WeightedSum = field(default_factory=WeightedSum)
    metrics: Metrics = field(default_factory=Metrics)
    own: Metrics = field(default_factory=Metrics)  # of the clients' own models

    def merge(self, other: PartialSum) -> None:
        self.updates.merge(other.updates)
        self.metrics = self.metrics + other.metrics
        self.own = self.own + other.own
