"""Actors that take far longer than their kind of job usually takes: a warning names them, once for each job."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Callable

TIMES = 5.0  # a job that takes this multiple of the usual time hangs
FIRST = 10.0  # the multiple of the patience, while no job of the kind has ended
REMEMBERED = 1000  # jobs of a kind


class Hangs:
    """Knows how long jobs usually take, and which actors hang.

    `patience`: seconds that any job may take. `note` hears the warnings, which end with `remedy`.
    """

    def __init__(
        self, patience: float = math.inf, note: Callable[[str], None] = lambda text: None, remedy: str = ""
    ) -> None:
        self.patience, self._note, self._remedy = patience, note, remedy
        self._seconds: dict[tuple[str, bool], deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self.marked: set[int] = set()  # numbers of the actors that seem to hang

    def done(self, actor: int, method: str, cost: float, seconds: float) -> None:
        """A job has ended after so many seconds."""
        self._seconds[method, _counts(cost)].append(seconds / cost if _counts(cost) else seconds)
        if actor in self.marked:
            self.marked.remove(actor)
            self._note(f"the client actor that seemed to hang has answered after {seconds:,.0f} s")

    def usual(self, method: str, cost: float) -> float | None:
        """Seconds that such a job takes: the median, by cost where jobs have one; None: no such job has ended yet."""
        known = self._seconds[method, _counts(cost)]
        return statistics.median(known) * (cost if _counts(cost) else 1.0) if known else None

    def late(self, actor: int, method: str, cost: float, seconds: float) -> bool:
        """Whether to mark an actor after so many seconds: it takes far too long and is not marked yet."""
        if seconds <= self.patience or actor in self.marked:
            return False
        usual = self.usual(method, cost)
        return seconds > (FIRST * self.patience if usual is None else TIMES * usual)

    def mark(self, actor: int, method: str, cost: float, seconds: float, what: str, where: str) -> None:
        """Mark an actor and warn of it. `what`: the work it does; `where`: its process, in words."""
        self.marked.add(actor)
        usual = self.usual(method, cost)
        compared = "no such work has ended yet" if usual is None else f"such work takes {usual:,.1f} s"
        self._note(
            f"a client actor seems to hang at {what}: {where} has been silent for {seconds:,.1f} s, {compared}"
            f"{self._remedy}"
        )


def _counts(cost: float) -> bool:
    """Whether a cost says how long a job takes: 0 is unknown, infinite means first in line."""
    return 0 < cost < math.inf
