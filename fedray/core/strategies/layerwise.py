"""Layer-wise pruning aggregation (LPA) of FedMLAC (2025)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedray.core.ranges import Positive, Range
from fedray.core.strategies.base import TwoPhase, Weights, part
from fedray.core.types import Layer, Vector


@dataclass(frozen=True)
class LayerwisePruning(TwoPhase):
    """In each layer, drop the r largest and the r smallest deviations ||delta_i - mean||_2; weigh the rest by examples.

    The paper (FedMLAC, LPA) does not state r. Here r is the share `pruning` of the cohort, at least 1, with 2r < |S|;
    cohorts of 1 or 2 clients are not pruned. Of equal deviations, that of the first id ranks lower.
    """

    pruning: Annotated[float, Range(0, 0.5, "both")] = 0.1  # share of the cohort that each layer drops at either end
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def probe(self, delta: Vector, mean: Vector, layers: Sequence[Layer]) -> Mapping[str, float]:
        """The deviation in each layer that the vector reaches."""
        squares: dict[str, float] = {}
        for layer in layers:
            if layer.start < min(layer.stop, delta.size):
                stretch = slice(layer.start, layer.stop)
                # float64, since the squares of large deviations exceed float32.
                deviation = np.subtract(delta[stretch], mean[stretch], dtype=np.float64)
                squares[layer.name] = squares.get(layer.name, 0.0) + float(np.square(deviation, out=deviation).sum())
        return {name: math.sqrt(square) for name, square in squares.items()}

    def weigh(self, probes: Mapping[str, Mapping[str, float]], reports: Mapping[str, Mapping[str, float]]) -> Weights:
        examples = {client: max(reports[client]["examples"], 0.0) for client in probes}  # weights are not negative
        r = min(max(1, part(self.pruning, len(probes))), (len(probes) - 1) // 2)
        weights: dict[str, dict[str, float]] = {client: {} for client in probes}
        for layer in next(iter(probes.values()), {}):
            ranked = sorted(probes, key=lambda client: (probes[client][layer], client))
            for client in ranked[r : len(ranked) - r]:
                weights[client][layer] = examples[client]
        return weights
