"""Weighted sums of updates: each update is added at once and forgotten; partial sums are merged in lane order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.types import Layer, Vector
from fedray.core.vectors import add, writeable

HEADROOM = 20.0  # a log-weight further above the reference becomes the reference, and the sum is scaled down


@dataclass
class WeightedSum:
    """A streaming weighted mean: the sum of exp(log_weight - reference) * delta.

    The reference stays within `HEADROOM` of the largest log-weight so far. Weights are float64 relative to the
    reference, sums are float32: softmax weights of losses up to 1e4 neither overflow nor vanish. The reference moves
    only when the sum so far becomes negligible: scaling the sum for every larger weight would lose digits.
    """

    reference: float = -math.inf
    weight: float = 0.0  # sum of exp(log_weight - reference)
    squares: float = 0.0  # sum of their squares, for the effective number of clients
    total: Vector | None = None

    def add(self, delta: Vector, log_weight: float) -> None:
        """Add an update. An update with log-weight -inf is left out."""
        if log_weight != -math.inf:
            self._merge(delta, log_weight, 1.0, 1.0, copy=True)

    def merge(self, other: WeightedSum) -> None:
        """Add another sum; the order of merging is the order of float additions."""
        if other.total is not None:
            self._merge(other.total, other.reference, other.weight, other.squares, copy=False)

    def _merge(self, total: Vector, reference: float, weight: float, squares: float, copy: bool) -> None:
        if self.total is None:
            self.total = total.copy() if copy or not total.flags.writeable else total
            self.reference, self.weight, self.squares = reference, weight, squares
            return
        self.total = writeable(self.total)
        if reference > self.reference + HEADROOM:
            scale = math.exp(self.reference - reference)
            self.total *= np.float32(scale)
            self.weight *= scale
            self.squares *= scale * scale
            self.reference = reference
        scale = math.exp(reference - self.reference)
        add(self.total, total, scale)
        self.weight += scale * weight
        self.squares += scale * scale * squares

    def mean(self) -> Vector | None:
        """The weighted mean; None if nothing was added."""
        return None if self.total is None else self.total / np.float32(self.weight)

    def effective_clients(self) -> float:
        """(sum w)^2 / sum w^2: how many clients with equal weights would be as concentrated; 0 if none was added."""
        return self.weight**2 / self.squares if self.squares else 0.0


@dataclass
class LayeredSum:
    """A streaming weighted mean with a weight for each layer and client: float32 sums, float64 weights.

    The layers follow each other without gap or overlap (else AssertionError) from 0 to the end of the deltas; layers
    beyond the end are cut. Without layers, one layer covers everything and a weight is a number. Sums are scaled by a
    power of two, which is exact, so that their weights sum to at most a half: neither weights of 1e9 nor deltas near
    the largest float32 overflow.
    """

    layers: Sequence[Layer] = ()
    weights: dict[str, float] = field(default_factory=dict)  # layer -> the sum of its weights
    total: Vector | None = None

    def add(self, delta: Vector, weight: float | Mapping[str, float]) -> None:
        """Add an update with one weight, or with a weight for each layer (absent: 0). Weight 0 leaves a layer out."""
        names = [name for name, _ in self._stretches(delta.size)]
        weights = {name: weight.get(name, 0.0) if isinstance(weight, Mapping) else weight for name in names}
        assert self.layers or not isinstance(weight, Mapping)
        assert all(0 <= value < math.inf for value in weights.values()), weights
        self._fold(delta, weights, summed=False)

    def merge(self, other: LayeredSum) -> None:
        """Add another sum; the order of merging is the order of float additions."""
        assert list(self.layers) == list(other.layers)
        if other.total is not None:
            self._fold(other.total, other.weights, summed=True)

    def mean(self) -> Vector | None:
        """The weighted mean; None if no update had a weight. A layer whose weights sum to 0 is all zeros: no change."""
        if self.total is None:
            return None
        result = np.zeros_like(self.total)
        with np.errstate(
            over="ignore"
        ):  # a mean near the largest float32 may round to infinity; the clip below makes it finite again
            for name, stretch in self._stretches(self.total.size):
                if name in self.weights:
                    weight = self.weights[name]
                    np.divide(
                        self.total[stretch], np.float32(math.ldexp(weight, -_exponent(weight))), out=result[stretch]
                    )
        limit = np.finfo(np.float32).max
        return np.clip(result, -limit, limit, out=result)

    def _fold(self, vector: Vector, weights: Mapping[str, float], summed: bool) -> None:
        weights = {name: weight for name, weight in weights.items() if weight > 0}
        if not weights:
            return
        if self.total is None:
            self.total = np.zeros_like(vector)
        self.total = writeable(self.total)
        assert self.total.shape == vector.shape
        scales = {}
        for name, weight in weights.items():
            before = self.weights.get(name, 0.0)
            self.weights[name] = before + weight
            exponent = _exponent(before + weight)
            kept = math.ldexp(1.0, _exponent(before) - exponent) if before else 1.0
            new = math.ldexp(1.0, _exponent(weight) - exponent) if summed else math.ldexp(weight, -exponent)
            scales[name] = kept, new
        for name, stretch in self._stretches(vector.size):
            if name in scales:
                kept, new = scales[name]
                if kept != 1.0:
                    self.total[stretch] *= np.float32(kept)
                add(self.total[stretch], vector[stretch], new)

    def _stretches(self, size: int) -> Iterator[tuple[str, slice]]:
        edge = 0
        for layer in self.layers or (Layer("", 0, size),):
            assert layer.start == edge <= layer.stop, f"{layer}, but the one before ends at {edge}"
            edge = layer.stop
            yield layer.name, slice(min(layer.start, size), min(layer.stop, size))
        assert edge >= size, f"the layers end at {edge:,}, the vector at {size:,}"


def _exponent(weight: float) -> int:
    """An exponent e with weight <= 2^(e - 1)."""
    return math.frexp(weight)[1] + 1


@dataclass
class PartialSum:
    """The weighted sum of a lane's updates, and the sums of its metrics."""

    updates: WeightedSum = field(default_factory=WeightedSum)
    metrics: Metrics = field(default_factory=Metrics)
    personal: Metrics = field(default_factory=Metrics)  # scores of personal models

    def merge(self, other: PartialSum) -> None:
        """Add the sums of a later lane."""
        self.updates.merge(other.updates)
        self.metrics = self.metrics + other.metrics
        self.personal = self.personal + other.personal
