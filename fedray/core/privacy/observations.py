"""What an attacker sees of clients' updates, as numbers: single updates or their sums, and views of them.

A view is a choice of numbers in which an attacker looks for a difference: of which models' updates, of which layers,
and whether it takes lengths, directions or both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from fedray.core.privacy.sketches import Layout, Places, Sketch

Numbers = npt.NDArray[np.float64]  # [observations, numbers]
LEAST = 1e-12  # a norm below it is none
LOWEST = -1e300  # a log-weight below it is none


@dataclass(frozen=True)
class Observations:
    """Sketches of updates that clients trained from one model."""

    buckets: Numbers  # [observations, buckets]
    norms: Numbers  # [observations, layers]
    log_weights: npt.NDArray[np.float64]  # [observations], in a sum

    @classmethod
    def of(cls, sketches: Sequence[Sketch]) -> Self:
        """The observations of at least one update."""
        buckets = np.stack([sketch.buckets for sketch in sketches]).astype(np.float64)
        norms = np.stack([sketch.norms for sketch in sketches]).astype(np.float64)
        return cls(buckets, norms, np.array([sketch.log_weight for sketch in sketches]))

    def summed(
        self, others: Observations, companions: Places, layout: Layout, deviation: float, generator: np.random.Generator
    ) -> Observations:
        """Weighted means of each of these updates with those of its companions in `others`, int64 [n, companions].

        `deviation`: of the noise in each number of a sum. Norms are those of the sketch: a sum's own are not known.
        """
        means = np.empty_like(self.buckets)
        for row, chosen in enumerate(companions):
            logs = np.append(others.log_weights[chosen], self.log_weights[row])
            weights = np.exp(logs - max(logs.max(), LOWEST))
            updates = np.concatenate([others.buckets[chosen], self.buckets[row : row + 1]])
            total = (weights[:, None] * updates).sum(0)
            if deviation:
                total += deviation * np.sqrt(layout.numbers) * generator.standard_normal(len(total))
            means[row] = total / max(weights.sum(), LEAST)
        ends = zip(layout.edges[:-1], layout.edges[1:], strict=True)
        norms = [np.sqrt(np.square(means[:, start:stop]).sum(1)) for start, stop in ends]
        return Observations(means, np.stack(norms, 1), np.zeros(len(means)))

    def take(self, rows: Places) -> Observations:
        """The observations at these positions."""
        return Observations(self.buckets[rows], self.norms[rows], self.log_weights[rows])


def companions(clients: int, count: int, generator: np.random.Generator) -> Places:
    """For each client `count` others, drawn without replacement: int64 [clients, count]."""
    if not count:
        return np.empty((clients, 0), np.int64)
    drawn = np.stack([generator.permutation(clients - 1)[:count] for _ in range(clients)])
    return drawn + (drawn >= np.arange(clients)[:, None])


def views(models: Sequence[Observations], layout: Layout) -> Iterator[tuple[str, Numbers]]:
    """Yield (name, numbers) of each view of the same clients' updates from one or more models."""
    layers = len(layout.edges) - 1
    third = -(-layers // 3)
    stretches = {"all layers": (0, layers)}
    if layers >= 3:
        stretches |= {"first layers": (0, third), "last layers": (layers - third, layers)}
    for words, (first, last) in stretches.items():
        span = slice(layout.edges[first], layout.edges[last])
        updates = np.concatenate([seen.buckets[:, span] for seen in models], 1)
        yield f"update, {words}", updates
        directions = np.concatenate([_directions(seen, layout, first, last) for seen in models], 1)
        yield f"directions, {words}", directions
        norms = np.concatenate([seen.norms[:, first:last] for seen in models], 1)
        yield f"norms, {words}", np.log(np.maximum(norms, LEAST))


def standard(known: Numbers, *others: Numbers) -> list[Numbers]:
    """The numbers with mean 0 and standard deviation 1 over known observations; a number that never changes is 0."""
    middle, spread = known.mean(0), known.std(0)
    factors = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9 * np.abs(middle) + 1e-30)
    return [(numbers - middle) * factors for numbers in (known, *others)]


def products(one: Numbers, other: Numbers | None = None) -> Numbers:
    """The inner products of observations, divided by how many numbers they have: float64 [one, other].

    By torch, whose threads the run fixes: the bits of a BLAS product depend on them.
    """
    left = torch.from_numpy(np.ascontiguousarray(one))
    right = left if other is None else torch.from_numpy(np.ascontiguousarray(other))
    found: Numbers = (left @ right.T / max(left.shape[1], 1)).numpy()
    return found


def _directions(seen: Observations, layout: Layout, first: int, last: int) -> Numbers:
    """The buckets of these layers, each layer divided by its norm."""
    widths = np.diff(layout.edges[first : last + 1])
    norms = np.repeat(np.maximum(seen.norms[:, first:last], LEAST), widths, axis=1)
    found: Numbers = seen.buckets[:, layout.edges[first] : layout.edges[last]] / norms
    return found
