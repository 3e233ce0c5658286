"""Rules that a minority of faulty or hostile clients can change only a little. They ignore the number of examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.ranges import Count, Minority, Positive
from fedray.core.strategies.base import Block, Coordinatewise, Distances, Pairwise, Weights, part
from fedray.core.types import Vector


@dataclass(frozen=True)
class Median(Coordinatewise):
    """The median of each parameter (Yin et al., ICML 2018); for an even cohort, the mean of the two middle values."""

    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def combine(self, values: Block) -> Vector:
        return _middle(values, (len(values) - 1) // 2)


@dataclass(frozen=True)
class TrimmedMean(Coordinatewise):
    """The mean of each parameter without its floor(trim * |S|) largest and smallest values (Yin et al., ICML 2018)."""

    trim: Minority = 0.1  # share of the cohort that is cut at either end
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def combine(self, values: Block) -> Vector:
        return _middle(values, min(part(self.trim, len(values)), (len(values) - 1) // 2))


def _middle(values: Block, dropped: int) -> Vector:
    """The mean of each column without its `dropped` largest and smallest values.

    Computed in float64, so that the mean lies between the smallest and the largest value that is left.
    """
    ordered = np.sort(values, axis=0)
    total = np.zeros(values.shape[1])
    for row in ordered[
        dropped : len(values) - dropped
    ]:  # not sum(axis=0): numpy adds in another order if a block is one column
        total += row
    mean: Vector = (total / (len(values) - 2 * dropped)).astype(np.float32)
    return mean


@dataclass(frozen=True)
class Krum(Pairwise):
    """The update with the smallest score: the sum of its m - f - 2 smallest squared distances to other updates.

    Blanchard et al., NeurIPS 2017. Of m clients, f = floor(byzantine * m) may be faulty. `select` above 1 is
    Multi-Krum: the unweighted mean of the `select` best updates, or of all updates in a smaller cohort. The rule needs
    m >= 2f + 3: smaller cohorts lower f to floor((m - 3) / 2), and 1 or 2 clients all have the same weight. Ties go to
    the first id.
    """

    byzantine: Minority = 0.2  # share of the cohort that may be faulty
    select: Count = 1  # updates whose mean is taken; 1: Krum, above 1: Multi-Krum
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def weigh(
        self, distances: Distances, clients: Sequence[str], reports: Mapping[str, Mapping[str, float]]
    ) -> Weights:
        count = len(clients)
        if count < 3:
            return dict.fromkeys(clients, 1.0)
        f = min(part(self.byzantine, count), (count - 3) // 2)
        scores = {}
        for place, client in enumerate(clients):
            others = np.sort(np.delete(distances[place], place))
            scores[client] = math.fsum(others[: count - f - 2])
        best = set(sorted(clients, key=lambda client: (scores[client], client))[: self.select])
        return {client: 1.0 for client in clients if client in best}
