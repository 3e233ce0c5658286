"""The draw of a cohort: so many of a population, without replacement."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Clients = npt.NDArray[np.int64]


def drawn(
    generator: np.random.Generator, among: int | Clients, count: int, costs: npt.NDArray[np.float64] | None = None
) -> Clients:
    """At most `count` of the clients `among` (a number: of the first so many), in the order of the draw.

    `costs` of each of them: a client is drawn with a probability in proportion to its cost, never at a cost of 0.
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
