"""Draw a cohort from a population, without replacement, and pick examples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Clients = npt.NDArray[np.int64]


def drawn(
    generator: np.random.Generator, among: int | Clients, count: int, costs: npt.NDArray[np.float64] | None = None
) -> Clients:
    """Draw at most `count` of the clients `among` (a number n: the first n clients), in the order of the draw.

    `costs`: the cost of each of them. A client is drawn with probability proportional to its cost, never at cost 0.
    """
    weights = None
    if costs is not None:
        among = np.arange(among) if isinstance(among, int) else among
        among, costs = among[costs > 0], costs[costs > 0]
        weights = costs / costs.sum()
    count = min(count, among if isinstance(among, int) else len(among))
    if not count:
        return np.empty(0, np.int64)
    return generator.choice(among, count, replace=False, p=weights)


def spread(count: int, most: int) -> list[int]:
    """The positions of at most `most` of `count` items, evenly spread and ascending."""
    chosen = min(count, most)
    return [(2 * number + 1) * count // (2 * chosen) for number in range(chosen)]
