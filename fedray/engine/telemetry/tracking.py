"""Sends a run to its tracker from a separate thread. Errors are counted and reported, and never reach the run."""

from __future__ import annotations

import json
import math
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedray.core.settings import kind_of
from fedray.engine.telemetry.trackers import FOLDER, TRACKERS, Card, Nothing, Tracked, Tracker, silent
from fedray.runs.folder import RunFolder

FILE = "tracker.json"  # in a run folder: the id by which a resumed run continues
CLOSE_SECONDS = 60.0  # that a run waits for its tracker at the end
FILES = ("config.yaml", "results.json", "sweep.json", "report.html")  # in the folder of a run or a sweep


class Tracking:
    """Sends rows to a tracker, in order. A row that cannot be written is tried again with the next row, and at the end.

    `warn` receives the first error, and at the end what is missing.
    """

    def __init__(self, tracker: Tracker, card: Card, folder: RunFolder, warn: Callable[[str], None]) -> None:
        self._tracker, self._card, self._folder, self._warn = tracker, card, folder, warn
        self._kind = kind_of(tracker, TRACKERS)
        self._run: Tracked | None = None
        self._rows: deque[tuple[int, dict[str, float]]] = deque()
        self._errors = 0
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._open = False  # whether rows are accepted

    def knock(self) -> None:
        """Warn at once if the tracker's server cannot be reached: its client says so only after minutes."""

        def ask() -> None:
            if (reason := silent(self._tracker)) is not None:
                self._warn(f"tracker {self._kind}: {reason}: the run continues, and tries again after each round")

        if not isinstance(self._tracker, Nothing):
            threading.Thread(target=ask, name=f"tracker {self._kind} asked", daemon=True).start()

    def begin(self) -> None:
        """Begin the run in the tracker, or continue it."""
        self._open = not isinstance(self._tracker, Nothing)
        if self._open:
            # A daemon: a tracker that does not answer must not keep the process alive.
            threading.Thread(target=self._serve, name=f"tracker {self._kind}", daemon=True).start()
            self._work.put(lambda: self._attempt("the beginning", self._opened))

    def id(self) -> str | None:
        """Wait for the run's id in the tracker, and return it. None: no tracker, or it has not answered."""
        known = threading.Event()
        self._work.put(known.set)
        if self._open:
            known.wait(CLOSE_SECONDS)
        return self._run.id if self._run is not None else None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add finite numbers of a round."""
        if self._open:
            row = (step, dict(values))
            self._work.put(lambda: self._add(row))

    def close(self, status: str, results: Mapping[str, Any] | None = None) -> None:
        """End the run, and wait for the tracker. `status`: finished | stopped | failed."""
        if not self._open:
            return
        self._open = False
        done = threading.Event()

        def finish() -> None:
            self._attempt("the end", lambda: self._finish(status, flat(results or {})))
            done.set()

        self._work.put(finish)
        if not done.wait(CLOSE_SECONDS):
            self._warn(f"tracker {self._kind} has not answered for {CLOSE_SECONDS:g} s: the run ends without it")
        elif self._errors:
            missing = ", ".join(str(step) for step, _ in self._rows)
            left = f"rounds {missing} are missing there (metrics.jsonl has them)" if missing else "no round is missing"
            self._warn(f"tracker {self._kind} failed {self._errors} times; {left}")

    def _serve(self) -> None:
        while True:
            self._work.get()()

    def _attempt(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - no tracker is worth a run
            self._errors += 1
            if self._errors == 1:
                self._warn(f"tracker {self._kind}: {what} could not be written, the run continues: {error!r}")

    def _add(self, row: tuple[int, dict[str, float]]) -> None:
        self._rows.append(row)
        self._attempt(f"round {row[0]}", self._flush)

    def _flush(self) -> None:
        run = self._opened()
        while self._rows:
            run.log(self._rows[0][1], self._rows[0][0])
            self._rows.popleft()

    def _opened(self) -> Tracked:
        if self._run is None:
            before = {}
            with suppress(FileNotFoundError):
                before = json.loads(self._folder.read_text(FILE))
            id = before.get("id") if before.get("kind") == self._kind else None
            run = self._tracker.open(self._card, id, self._folder.scratch())
            assert run is not None
            self._folder.write_json(FILE, {"kind": self._kind, "id": run.id})
            self._run = run
        return self._run

    def _finish(self, status: str, results: Mapping[str, float]) -> None:
        try:
            self._flush()
        finally:  # a row that is refused must not hold back the results
            with tempfile.TemporaryDirectory(prefix="fedray-") as files:
                for name in FILES:
                    if self._folder.exists(name):
                        Path(files, name).write_text(self._folder.read_text(name), encoding="utf-8")
                self._opened().close(status, results, Path(files))
            self._folder.publish(FOLDER)


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among the values."""
    return {key: value for key, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}


def flat(results: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of results.json by name: best/test/wer for a section's, results/rounds for the others.

    Rounds have metrics of the names of totals, such as traffic/total_bytes.
    """
    top = {f"results/{key}": value for key, value in finite(results).items()}
    for title, section in results.items():
        if isinstance(section, Mapping):
            top |= {f"{title}/{key}": value for key, value in finite(section).items()}
    return top
