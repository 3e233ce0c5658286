"""How long jobs usually take: the basis of deadlines, and of warnings about actors that hang and about slow nodes.

An actor hangs if it is silent for too long. It gives signs of life during long work (`fedray.core.pulse`).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Callable

from fedray.engine.settings import DeadlineSettings

TIMES = 5.0  # a job that takes this multiple of the usual time seems to hang
FIRST = 10.0  # until a job of the kind has ended: this multiple of the patience
LONGEST = 2.0  # the deadline is at least this multiple of the longest time so far
REMEMBERED = 1000  # jobs of a kind
SLOW = 3.0  # a node whose jobs take this multiple of the time elsewhere is slow
JUDGED = 5  # a node is compared with the others after every so many jobs of a kind, once as many have ended elsewhere
SLOW_SECONDS = 0.5  # shorter jobs say nothing about a node
OFF = DeadlineSettings(factor=None)


class Hangs:
    """Knows how long jobs usually take, and which actors hang.

    `patience`: seconds that any job may take. `note` receives the warnings, which end with `remedy`. `deadline`: when
    an actor is killed.
    """

    def __init__(
        self,
        patience: float = math.inf,
        note: Callable[[str], None] = lambda text: None,
        remedy: str = "",
        deadline: DeadlineSettings = OFF,
    ) -> None:
        self.patience, self._note, self._remedy, self._deadline = patience, note, remedy, deadline
        self._seconds: dict[tuple[str, bool], deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self._nodes: dict[tuple[str, bool], dict[str, deque[tuple[float, float]]]] = defaultdict(dict)
        self._slow: set[str] = set()
        self.marked: set[int] = set()  # numbers of the actors that seem to hang

    def done(self, actor: int, node: str, kind: str, cost: float, seconds: float) -> None:
        """Record that a job has ended on a node after so many seconds."""
        each = seconds / cost if _counts(cost) else seconds
        self._seconds[kind, _counts(cost)].append(each)
        self._judge(node, self._nodes[kind, _counts(cost)], each, seconds)
        if actor in self.marked:
            self.marked.remove(actor)
            self._note(f"the client actor that seemed to hang has answered after {seconds:,.0f} s")

    def at_work(self, actor: int) -> None:
        """An actor has given a sign of life."""
        if actor in self.marked:
            self.marked.remove(actor)
            self._note("the client actor that seemed to hang is at work")

    def usual(self, kind: str, cost: float) -> float | None:
        """The usual seconds of such a job: the median, scaled by its cost if it has one; None: none has ended yet."""
        known = self._seconds[kind, _counts(cost)]
        return statistics.median(known) * (cost if _counts(cost) else 1.0) if known else None

    @property
    def earliest(self) -> float:
        """Seconds before which no job is late or overdue."""
        return min(self.patience, math.inf if self._deadline.factor is None else self._deadline.floor_s)

    def late(self, actor: int, kind: str, cost: float, seconds: float) -> bool:
        """Whether to mark an actor after so many silent seconds: far too many, and it is not marked yet."""
        if seconds <= self.patience or actor in self.marked:
            return False
        usual = self.usual(kind, cost)
        return seconds > (FIRST * self.patience if usual is None else TIMES * usual)

    def overdue(self, kind: str, cost: float, seconds: float) -> bool:
        """Whether a job is beyond its deadline after so many silent seconds. Until such a job has ended it has none."""
        if self._deadline.factor is None or seconds <= self._deadline.floor_s:
            return False
        usual = self.usual(kind, cost)
        if usual is None:
            return False
        longest = max(self._seconds[kind, _counts(cost)]) * (cost if _counts(cost) else 1.0)
        return seconds > max(self._deadline.factor * usual, LONGEST * longest)

    def mark(self, actor: int, kind: str, cost: float, seconds: float, what: str, where: str) -> None:
        """Mark an actor and warn about it. `what`: the work it does; `where`: its process, in words."""
        self.marked.add(actor)
        usual = self.usual(kind, cost)
        compared = "no such work has ended yet" if usual is None else f"such work usually takes {usual:,.1f} s"
        self._note(
            f"a client actor seems to hang at {what}: {where} has been silent for {seconds:,.1f} s, {compared}"
            f"{self._remedy}"
        )

    def _judge(self, node: str, times: dict[str, deque[tuple[float, float]]], each: float, seconds: float) -> None:
        """Warn, once, about a node whose jobs take far longer than jobs of the same kind elsewhere."""
        mine = times.setdefault(node, deque(maxlen=REMEMBERED))
        mine.append((each, seconds))
        if len(times) == 1 or len(mine) % JUDGED or node in self._slow:
            return
        elsewhere = [one for name, known in times.items() if name != node for one, _ in known]
        if len(elsewhere) < JUDGED or statistics.median(whole for _, whole in mine) < SLOW_SECONDS:
            return
        here, there = statistics.median(one for one, _ in mine), statistics.median(elsewhere)
        if here > SLOW * there:
            self._slow.add(node)
            self._note(
                f"node {node} is slow: the same work takes {here / there:.1f} times as long there as elsewhere, and "
                "rounds wait for it; check it, or start the run without it"
            )


def _counts(cost: float) -> bool:
    """Whether a cost says how long a job takes: 0 is unknown, infinite means first in line."""
    return 0 < cost < math.inf
