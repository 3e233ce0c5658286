"""What the page shows of run folders, as values for JSON. It reads a run again once the run's files have changed."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedray.core.drawing import spread
from fedray.core.texts import printable
from fedray.core.words import words
from fedray.live.heard import heard
from fedray.report import discover, groups
from fedray.report.files import FILES
from fedray.report.page import SCORED
from fedray.report.recorded import Run
from fedray.report.words import direction, number, scaled, title, unit, with_unit
from fedray.runs import hypotheses
from fedray.runs.folder import METRICS, RunFolder
from fedray.runs.scores import first_model
from fedray.runs.standing import ATTACH, active, standing
from fedray.runs.strangers import CONFIG, check_files

READ = (*FILES, CONFIG, hypotheses.NAME, ATTACH, "error.txt")
CHOICES = (*SCORED, "train/loss")  # the metric that the page shows at first: the first of these that a run has
POINTS, OF_ALL = 400, 20_000  # of a curve, and of all curves together
ROUNDS, FAILURES = 60, 20  # the newest ones that the page shows
RECENT = 5  # rounds, at least, whose time says how long the others take
BUCKET_SECONDS = 15  # between two looks at a run on object storage
SHARE, LEAST_SECONDS = 0.05, 2.0  # of a core that an open page may take; between two questions of the page
Json = dict[str, Any]


@dataclass
class Seen:
    """A run folder as it was when its files last changed. `problem`: why it cannot be read, or why the run failed."""

    folder: RunFolder
    name: str
    signature: object
    run: Run | None = None
    heard: Json = field(default_factory=dict)
    ended: str = "damaged"  # how the run stands if no driver is using the folder
    problem: str = ""
    changed: float | None = None  # when the newest round was written, in seconds since the epoch

    @property
    def state(self) -> str:
        """`running`, `on HOST`, or how the run ended."""
        try:
            return (active(self.folder) if self.run is not None else None) or self.ended
        except (ValueError, OSError):  # driver.json has gone in this moment
            return self.ended

    @functools.cached_property
    def metrics(self) -> list[str]:
        """The metrics that have a number in some round."""
        rows = self.run.rows if self.run is not None else ()
        found = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None and "/" in name)
        return list(found)

    def curve(self, metric: str, most: int = POINTS) -> list[tuple[int, float]]:
        """(round, value) of a metric, in the unit of `words.unit`, at most so many and always with the newest.

        Round 0 is the model before the first round, if it was scored.
        """
        if self.run is None:
            return []
        start = self.run.seed_model or self.heard.get("initial", {}).get("scores", {})
        points = [(0, start.get(metric)), *((row["round"], row.get(metric)) for row in self.run.rows)]
        known = [(round, scaled(value, metric)) for round, value in points if value is not None]
        return [known[place] for place in spread(len(known) - 1, most - 1)] + known[-1:] if known else []


class Watched:
    """The runs at or below some paths. Several threads may ask for snapshots."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        """Raises ValueError if a path holds no run."""
        self.paths = list(paths)
        self._seen: dict[str, Seen] = {}
        self._lock = threading.Lock()
        discover.located(self.paths)

    def snapshot(self, metric: str = "", run: str = "") -> Json:
        """All runs, their curves of a metric, one run in detail, and the seconds until the page should ask again.

        `metric`, `run`: what the reader has chosen; an unknown name counts as none.
        """
        with self._lock:
            began = time.thread_time()
            found = [self._look(*located) for located in discover.located(self.paths)]
            self._seen = {seen.folder.place: seen for seen in found}
            metrics = list(dict.fromkeys(name for seen in found for name in seen.metrics))
            if metric not in metrics:
                metric = next((name for name in (*CHOICES, *metrics) if name in metrics), "")
            labels = _labels([seen.run for seen in found if seen.run is not None])
            most = max(10, min(POINTS, OF_ALL // len(found)))
            curves = [seen.curve(metric, most) for seen in found]
            rows = [_row(seen, metric, values, labels) for seen, values in zip(found, curves, strict=True)]
            first = next((place for place, row in enumerate(rows) if row["state"] == "running"), 0)
            at = next((place for place, row in enumerate(rows) if row["name"] == run), first)
            answer = {
                "runs": rows,
                "metrics": [{"name": name, "title": with_unit(name)} for name in metrics],
                "metric": {"name": metric, "title": with_unit(metric), "short": title(metric)},
                "curves": curves,
                "run": {"index": at, **_detail(found[at])},
            }
            return answer | {"wait": max(LEAST_SECONDS, (time.thread_time() - began) / SHARE)}

    def _look(self, folder: RunFolder, name: str, trial: RunFolder | None) -> Seen:
        signature = _signature(folder)
        before = self._seen.get(folder.place)
        if before is not None and (before.signature, before.name) == (signature, name):
            return before
        try:
            check_files(folder, READ)
            run, ended = Run.read(folder, name, trial), standing(folder)
            active(folder)  # for its error if the file is damaged
            newest = folder.root / METRICS if folder.root is not None else None
            changed = newest.stat().st_mtime if newest is not None and newest.exists() else None
            return Seen(folder, name, signature, run, heard(folder), ended.state, printable(ended.error), changed)
        except (ValueError, OSError) as error:
            return Seen(folder, name, signature, problem=words(error))


def _signature(folder: RunFolder) -> object:
    """A value that changes with the run's files. On object storage it changes with the time."""
    if folder.root is None:
        return int(time.monotonic() // BUCKET_SECONDS)
    found = []
    for name in READ:
        try:
            status = (folder.root / name).stat()
        except OSError:  # most often there is no such file
            continue
        found.append((name, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _labels(runs: Sequence[Run]) -> dict[str, str]:
    """Name of a run -> what distinguishes it from the others; {} if nothing does."""
    found = groups.group(runs) if len(runs) > 1 else []
    labels = {}
    for group in found:
        for run in group.runs:
            seed = [f"seed={run.settings.get('seed')}"] if len(group.runs) > 1 else []
            labels[run.name] = ", ".join([*([group.label] if len(found) > 1 else []), *seed])
    return labels


def _row(seen: Seen, metric: str, values: Sequence[tuple[int, float]], labels: Mapping[str, str]) -> Json:
    """A run as the table of runs shows it. Times are in seconds."""
    state, run = printable(seen.state), seen.run
    rounds = run.config.get("rounds") if run is not None else 0
    best = {"min": min, "max": max, None: None}[direction(metric)]
    return {
        "name": seen.name,
        "label": labels.get(seen.name, ""),
        "place": seen.folder.place,
        "state": state,
        "problem": seen.problem,
        "round": run.rounds if run is not None else 0,
        "rounds": rounds if isinstance(rounds, int) else None,
        "newest": _shown(values[-1][1], metric) if values else "",
        "best": _shown(best(value for _, value in values), metric) if values and best is not None else "",
        "failed": len(run.failures) if run is not None else 0,
        "left": left(run) if run is not None and (state == "running" or state.startswith("on ")) else None,
        "changed": seen.changed,
    }


def left(run: Run) -> float | None:
    """Seconds until the last round ends, by the newest rounds; None before the first one. Final scores come after."""
    rounds, evaluation = run.config.get("rounds"), run.config.get("evaluation")
    every = evaluation.get("every") if isinstance(evaluation, Mapping) else None
    newest = run.rows[-max(RECENT, every if isinstance(every, int) else 1) :]
    spent = [sum(row.get(name) or 0.0 for name in ("time/round_s", "time/checkpoint_s")) for row in newest]
    return max(0, rounds - run.rounds) * sum(spent) / len(spent) if spent and isinstance(rounds, int) else None


def _detail(seen: Seen) -> Json:
    """A run as the page shows it below its curves."""
    run = seen.run
    last = run.rows[-1] if run is not None and run.rows else {}
    seconds, total = last.get("time/round_s"), "traffic/total_bytes"
    facts = {
        "Clients per second": number((last.get("clients/ok") or 0) / seconds) if seconds else "",
        "Traffic so far": _shown(None if last.get(total) is None else scaled(last[total], total), total),
        "Client learning rate": number(last.get("lr/client")),
        "Virtual hours": number(last.get("virtual/hours")),
        "Epsilon (Rényi)": number(last.get("privacy/epsilon")),
    }
    names = ("round", "clients/ok", "clients/failed", "clients/dropped")
    return {
        "facts": [(name, value) for name, value in facts.items() if value],
        "loss": seen.curve("train/loss"),
        "seconds": seen.curve("time/round_s"),
        "cohort": [[row.get(name) or 0 for name in names] for row in (run.rows[-ROUNDS:] if run is not None else ())],
        "failures": [
            [row["round"], row["client"], row["reason"]]
            for row in reversed(run.failures[-FAILURES:] if run is not None else ())
        ],
        "heard": seen.heard.get("newest"),
        "first": first_model(run.config if run is not None else None),
    }


def _shown(value: float | None, metric: str) -> str:
    """A value that `Seen.curve` has scaled, with its unit."""
    if value is None:
        return ""
    return f"{number(value * (1e9 if metric.endswith('_bytes') else 1), metric)} {unit(metric)}".strip()
