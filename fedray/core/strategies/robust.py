"""Rules that a minority of faulty or hostile clients cannot move far. None of them weighs by examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.config import positive
from fedray.core.strategies.base import Block, Coordinatewise, Distances, Pairwise, Weights, below_half, part
from fedray.core.types import Vector


@dataclass(frozen=True)
class Median(Coordinatewise):
    """The median of each parameter (Yin et al., ICML 2018); of an even number of clients the mean of the middle two."""

    clip_norm: float | None = None

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm)

    def combine(self, values: Block) -> Vector:
        return _middle(values, (len(values) - 1) // 2)


@dataclass(frozen=True)
class TrimmedMean(Coordinatewise):
    """The mean of each parameter without its floor(trim * |S|) largest and as many smallest values (Yin et al., ICML 2018)."""

    trim: float = 0.1
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm)
        below_half(trim=self.trim)

    def combine(self, values: Block) -> Vector:
        return _middle(values, min(part(self.trim, len(values)), (len(values) - 1) // 2))


def _middle(values: Block, dropped: int) -> Vector:
    """The mean of each column without its `dropped` largest and smallest values; in float64, so it lies between those that are left."""
    ordered = np.sort(values, axis=0)
    total = np.zeros(values.shape[1])
    for row in ordered[dropped : len(values) - dropped]:  # not sum(axis=0): numpy adds in another order where a block is one column
        total += row
    mean: Vector = (total / (len(values) - 2 * dropped)).astype(np.float32)
    return mean


@dataclass(frozen=True)
class Krum(Pairwise):
    """The update whose m - f - 2 nearest others are nearest (squared), of m clients, f of them faulty (Blanchard et al., NeurIPS 2017).

    f = floor(byzantine * m). `select` above 1 is Multi-Krum: the unweighted mean of that many best, of all when the cohort is smaller. The
    rule needs m >= 2f + 3: in smaller cohorts f is lowered to floor((m - 3) / 2), and of 1 or 2 clients all weigh alike. Of clients that
    score alike, the one whose id comes first is the better.
    """

    byzantine: float = 0.2
    select: int = 1
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        positive(select=self.select, clip_norm=self.clip_norm)
        below_half(byzantine=self.byzantine)

    def weigh(self, distances: Distances, clients: Sequence[str], reports: Mapping[str, Mapping[str, float]]) -> Weights:
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
