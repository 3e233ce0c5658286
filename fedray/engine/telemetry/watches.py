"""Stopwatches: for the phases of a round, for a whole round, and a simple one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

DRIVER = ("broadcast", "merge", "update", "evaluate", "checkpoint", "events")  # phases of the driver


class Phases:
    """The driver's seconds by phase, since the last `take`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(phase, time.perf_counter() - started)

    def add(self, phase: str, seconds: float) -> None:
        """Add to a phase's seconds."""
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def take(self) -> dict[str, float | None]:
        """Return the seconds as columns of a round's row (None: no such phase), and start again from zero."""
        taken, self._seconds = self._seconds, {}
        return {f"time/{phase}_s": taken.get(phase) for phase in DRIVER}


class Stopwatch:
    """Calling it gives the seconds since it was made."""

    def __init__(self) -> None:
        self.started = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self.started


class RoundWatch:
    """Times a round. `busy`: seconds that each actor has worked so far."""

    def __init__(self, busy: Sequence[float]) -> None:
        self.seconds = Stopwatch()
        self.idle: list[float] = []  # share of the round in which each actor had nothing to do
        self._busy = list(busy)
        self._trained = 0.0

    def trained(self) -> None:
        """Take the time: the clients have been trained and their updates merged."""
        self._trained = self.seconds()

    def row(self, busy: Sequence[float]) -> dict[str, float]:
        """End the round; returns its times as columns of its row."""
        seconds = self.seconds()
        self.idle = [1 - (now - before) / seconds for now, before in zip(busy, self._busy, strict=True)]
        idle = sum(self.idle) / len(self.idle)
        return {"time/round_s": seconds, "time/train_s": self._trained, "time/idle_share": idle}
