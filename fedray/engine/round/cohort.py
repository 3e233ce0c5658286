"""The cohort of a round, and the lanes that it is cut into."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fedray.core.drawing import drawn
from fedray.core.seeds import numpy_generator
from fedray.engine.settings import CohortSettings


def sample(
    ids: Sequence[str], settings: CohortSettings, cost: Callable[[str], float], seed: int, round: int
) -> list[str]:
    """The cohort of a round, drawn without replacement. It is smaller if too few clients are available.

    A Poisson cohort has a random size, and may be empty.
    """
    generator = numpy_generator(seed, "cohort", round)
    count = settings.count(len(ids))
    if settings.sampling == "poisson":
        chosen = np.flatnonzero(generator.random(len(ids)) < count / len(ids))
        if settings.limit is not None and len(chosen) > settings.limit:
            chosen = np.sort(generator.choice(chosen, settings.limit, replace=False))
        return [ids[i] for i in chosen.tolist()]
    if settings.sampling == "cyclic":
        order, groups = numpy_generator(seed, "cohort", "cycle").permutation(len(ids)), settings.groups(len(ids))
        return [ids[i] for i in np.array_split(order, groups)[round % groups].tolist()]
    available: int | npt.NDArray[np.int64] = len(ids)
    if settings.availability < 1.0:
        available = np.flatnonzero(
            numpy_generator(seed, "availability", round).random(len(ids)) < settings.availability
        )
    costs = None
    if settings.sampling == "weighted":
        positions = range(len(ids)) if isinstance(available, int) else available
        costs = np.array([cost(ids[i]) for i in positions], dtype=np.float64)
    return [ids[i] for i in drawn(generator, available, count, costs).tolist()]


def answering(chosen: Sequence[str], settings: CohortSettings, seed: int, round: int) -> list[str]:
    """The chosen clients that answer."""
    return [client for client in chosen if not drops_out(client, settings, seed, round)]


def drops_out(client: str, settings: CohortSettings, seed: int, round: int) -> bool:
    """Whether a chosen client never answers in this round."""
    return settings.dropout > 0 and numpy_generator(seed, "dropout", round, client).random() < settings.dropout


def cut(cohort: Sequence[str], lanes: int, cost: Callable[[str], float]) -> list[list[str]]:
    """Cut a cohort into at most `lanes` lanes of about equal cost: costliest client first, each to the lightest lane.

    The cut does not depend on the hardware.
    """
    costs = {client: cost(client) for client in cohort}
    heap = [(0.0, lane) for lane in range(min(lanes, len(cohort)))]
    result: list[list[str]] = [[] for _ in heap]
    for client in sorted(cohort, key=lambda c: (-costs[c], c)):
        load, lane = heapq.heappop(heap)
        result[lane].append(client)
        heapq.heappush(heap, (load + costs[client], lane))
    return result
