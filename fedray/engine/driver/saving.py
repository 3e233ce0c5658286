"""Checkpoints are written while the next round trains, and count once they are in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from fedray.runs.folder import Progress, RunFolder
from fedray.runs.retention import Retention


class Saving:
    """Saves progress in the order of its rounds, in a thread of its own, and removes what is no longer needed.

    An error is raised by the next call. `beside()`: whether `save` returns before the checkpoint is in place.
    """

    def __init__(self, folder: RunFolder, retention: Retention, beside: Callable[[], bool]) -> None:
        self._folder, self._retention, self._beside = folder, retention, beside
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[float] | None = None

    def save(self, progress: Progress, superseded: Iterable[tuple[str, int]], due: bool) -> float | None:
        """Save a round, if it is `due`, once the round before is in place; returns the seconds that one took.

        `superseded`: versions of client states (client, version) that the round has replaced. None: nothing was saved.
        """
        seconds = self.wait()
        # The table of clients is changed in place by the next round; its records and the arrays are not.
        still = replace(progress, clients=dict(progress.clients), totals=dict(progress.totals))
        self._retention.note_best(still)
        self._pending = self._thread.submit(self._save, still, list(superseded), due)
        return seconds if self._beside() else self.wait()

    def wait(self) -> float | None:
        """Wait until everything is in place; returns the seconds of the newest checkpoint (None: as from `save`)."""
        pending, self._pending = self._pending, None
        return pending.result() or None if pending is not None else None

    def close(self) -> None:
        """End the thread, which first ends its work."""
        self._thread.shutdown()

    def _save(self, progress: Progress, superseded: list[tuple[str, int]], due: bool) -> float:
        started = time.perf_counter()
        if due:
            self._folder.save(progress)
            self._retention.prune(progress)
        self._retention.collect(superseded, progress)
        return time.perf_counter() - started if due else 0.0
