"""What a client actor tells its driver during long work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SIGN_SECONDS = 5.0  # between two signs of life
LONG_SECONDS = 10.0  # work that takes longer shows its progress


class Signs:
    """Listens to long work: gives signs of life, and shows the progress of work that takes very long."""

    def __init__(self, alive: Callable[[], object], progress: Callable[[int, int, str], None]) -> None:
        """`alive` tells the driver that this actor is at work; `progress` receives (done, of, what)."""
        self._alive, self._progress = alive, progress
        self._work: tuple[str, int] | None = None  # what is done, and how much of it there is
        self._since = self._told = 0.0
        self._shown = False

    def __call__(self, done: int, of: int, what: str) -> None:
        now = time.monotonic()
        if self._work != (what, of) or done == 0:
            self._work, self._since, self._shown = (what, of), now, False
        if now - self._told > SIGN_SECONDS:
            self._told = now
            self._alive()
        if done == of:
            self._work = None
        if self._shown or (now - self._since > LONG_SECONDS and done < of):
            self._shown = True
            self._progress(done, of, f"{what}, process {os.getpid()}")
