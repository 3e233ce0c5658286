"""Events of a run: the driver appends them, and watching processes ask for those after the last that they know."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

KEPT = 2_000  # the row of a round takes a few kilobytes; older rows are in metrics.jsonl


@dataclass(frozen=True)
class Event:
    """An entry in the log of a run. Numbers count from 0."""

    number: int
    kind: str  # phase | progress | seed | round | warning | end
    data: dict[str, Any]


class Events:
    """A bounded log. Several threads may append events and wait for them."""

    def __init__(self) -> None:
        self._log: deque[Event] = deque(maxlen=KEPT)
        self._count = 0
        self._news = threading.Condition()

    def add(self, kind: str, data: dict[str, Any]) -> None:
        with self._news:
            self._log.append(Event(self._count, kind, data))
            self._count += 1
            self._news.notify_all()

    def after(self, number: int, timeout: float) -> list[Event]:
        """The events with `number` or a higher one; waits up to `timeout` seconds for the first."""
        with self._news:
            self._news.wait_for(lambda: self._count > number, timeout)
            return [event for event in self._log if event.number >= number]
