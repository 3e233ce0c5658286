"""The display of a run: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedray.core.texts import printable
from fedray.engine.telemetry.events import Event

QUIET_SECONDS = 10.0  # between two lines about the same work, without a terminal
RECENT = 5  # past rounds that `fedray watch` shows


class Display:
    """Shows events. `live`: with progress bars; else a line for each phase and round, and some lines for long work."""

    def __init__(self, console: Console, live: bool) -> None:
        self.console = console
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True) if live else None
        self._tasks: dict[str, Any] = {}
        self._said: dict[str, float] = {}
        self._past = 0  # rounds that `catch_up` has shown

    @classmethod
    def for_terminal(cls) -> Display:
        console = Console(stderr=True, highlight=False)
        return cls(console, console.is_terminal)

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        self.console.print(printable(text), soft_wrap=True, markup=False)
        sys.stderr.flush()

    def progress(self, done: int, of: int, what: str) -> None:
        if self._bar is not None:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=of)
            self._bar.update(self._tasks[what], completed=done, total=of, visible=done < of)
        last = self._said.get(what)
        if self._bar is None and (done == of or last is None or time.monotonic() - last > QUIET_SECONDS):
            self._said[what] = time.monotonic()
            self.say(f"{what}: {done:,} of {of:,}")

    def show(self, event: Event) -> None:
        data = event.data
        if event.kind == "progress":
            self.progress(data["done"], data["of"], data["what"])
        elif event.kind == "phase":
            self.say(str(data["text"]))
        elif event.kind == "warning":
            self.say(f"warning: {data['text']}")
        elif event.kind == "seed":
            self.say("initial model: " + "  ".join(f"{name} {value:.2f}" for name, value in data.items()))
        elif event.kind == "round" and data["row"]["round"] > self._past:
            self._round(data["row"], data["rounds"])

    def catch_up(self, rows: Sequence[Mapping[str, Any]], events: Sequence[Event]) -> None:
        """Show a summary of earlier events: the last rounds, and the driver's events after its last round."""
        last = max((position for position, event in enumerate(events) if event.kind == "round"), default=-1)
        rounds = events[last].data["rounds"] if last >= 0 else None
        if len(rows) > RECENT:
            self.say(f"({len(rows) - RECENT:,} rounds before)")
        for row in rows[-RECENT:]:
            self._round(row, rounds)
        self._past = rows[-1]["round"] if rows else 0
        work: dict[str, Event] = {}
        for event in events[last + 1 :]:
            if event.kind == "progress":
                work[event.data["what"]] = event
            else:
                self.show(event)
        for event in work.values():
            if event.data["done"] < event.data["of"]:
                self.show(event)

    def _round(self, row: Mapping[str, Any], rounds: int | None) -> None:
        seconds = row["time/round_s"]
        shown = ("train/loss", *(key for key in row if key.startswith("dev/")))
        of = f"/{rounds}" if rounds is not None else ""
        parts = [f"round {row['round']}{of}", *(f"{key} {row[key]:.2f}" for key in shown if row.get(key) is not None)]
        if row.get("virtual/hours") is not None:
            parts.append(f"{row['virtual/hours']:.2f} virtual hours")
        if row.get("privacy/epsilon") is not None:
            parts.append(f"epsilon (Renyi) {row['privacy/epsilon']:.3g}")
        if row.get("privacy/snr") is not None:
            parts.append(f"signal to noise {row['privacy/snr']:.2g}")
        parts.append(f"{row['clients/ok'] / seconds:.1f} clients/s")
        if row["clients/failed"]:
            parts.append(f"{row['clients/failed']} failed (failures.jsonl)")
        self.say("  ".join(parts))
        if self._bar is not None and rounds is not None:
            self.progress(row["round"], rounds, "rounds")
