"""Reads runs into a report, prints it and saves it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedray.report import discover, further, groups, page, sweep_description, tables
from fedray.report.canvas import Drawing
from fedray.report.comparison import Comparison
from fedray.report.notebook import Worst, frame
from fedray.report.recorded import Run, known_metric
from fedray.report.sweep_description import SweepDescription
from fedray.runs.folder import RunFolder
from fedray.storage.claims import claim

AUDIO = "FEDRAY_AUDIO"  # an environment variable: folders, separated as in PATH
LABELLED = ("fednst", "nst")  # algorithms whose labels come from a search
FIRST_CHOICES = (
    "personal/test/accuracy",
    "personal/test/wer",
    "personal/test/wer_lm",
    "personal/test/bleu",
    "test/wer",
    "test/accuracy",
    "test/bleu",
    "dev/wer",
    "dev/accuracy",
    "dev/bleu",
)


class Report(Comparison):
    """A comparison of runs: a table for a terminal, files to save, and the page itself in a notebook."""

    def table(self, console: Console | None = None) -> Table:
        """A table to print with rich, no wider than `console` (default: the terminal)."""
        return tables.rich_table(self, console or Console())

    def further_tables(self, console: Console | None = None) -> list[Table]:
        """Tables of devices, and of what runs spend until they reach a target, if there are any."""
        return [found.on(console or Console()) for found in further.tables(self)]

    def save(self, out: str | Path | None = None) -> str:
        """Write report.html, report.md, report.csv and figures/ to `out`, a path or URI (default: `place`).

        Returns the path or URI of report.html. ValueError: `out` holds other files than a report's, or than these runs.
        """
        folder = RunFolder(out if out is not None else self.place)
        if not any(_is_below(run.folder, folder) for run in self.runs):
            claim(folder.storage, "a report")
        return page.save(self, folder)

    def html(self) -> str:
        """The page, as report.html holds it."""
        return page.html(self, *page.draw(self))

    def drawings(self) -> dict[str, Drawing]:
        """The page's figures by name. A notebook shows each as a picture."""
        return page.draw(self)[0]

    def worst(self, count: int = 12) -> Worst:
        """The worst utterances of the best group's first run, with their audio where the corpus is on this machine.

        Raises ValueError if no run is finished.
        """
        return Worst.of(self, count)

    def __repr__(self) -> str:
        return f"<Report of {len(self.runs)} runs in {len(self.groups)} groups; save() writes its page>"

    def _repr_html_(self) -> str:
        return frame(self.html())


def read(
    paths: str | Path | Sequence[str | Path],
    *,
    baseline: str | None = None,
    metric: str | None = None,
    group_by: Sequence[str] = (),
    target: float | None = None,
    audio: Sequence[str | Path] = (),
) -> Report:
    """The report of run folders, or of folders that hold them (studies, Tune's experiments, sweeps with a sweep.json).

    baseline  the label of a group, the folder of one of its runs (its name or path), or "first" for the first group:
              the other groups are compared with it
    metric    a key of results.json or metrics.jsonl (default: the test set's WER, accuracy or BLEU)
    group_by  the only keys that distinguish groups (default: all that differ, except seeds)
    target    a dev score; a table shows what runs spend until they reach it (default: with devices, the best that all
              runs reach)
    audio     folders whose audio the page may contain (default: those in $FEDRAY_AUDIO). A run folder says which files
              its corpus has, and may come from anybody: of other files only a synthetic corpus is played

    Raises ValueError if there is no such folder, group, metric or key, or a file is damaged.
    """
    if target is not None and not math.isfinite(target):
        raise ValueError(f"target: a dev score is a finite number, not {target}")
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    runs = discover.find(paths)
    place = paths[0] if len(paths) == 1 else "report"
    sweep, figures = sweep_description.read(RunFolder(place)) if len(paths) == 1 else (SweepDescription(), ())
    if sweep.metric is not None and all(run.finished for run in runs):  # some metrics exist from the end of a run on
        known_metric(sweep.metric, runs)
    swept = [key for key in sweep.keys if key not in groups.REPEATS and any(key in run.settings for run in runs)]
    found = groups.group(runs, group_by or swept, only=bool(group_by))
    reference = groups.matching(sweep.reference, found) if sweep.reference is not None else ()
    return Report(
        place,
        sweep,
        found,
        known_metric(metric, runs) if metric is not None else _metric(runs),
        figures,
        groups.named_group(baseline, found) if baseline is not None else None,
        reference[0] if len(reference) == 1 else None,
        discover.trials_without_a_run(paths),
        target,
        tuple(Path(one).expanduser() for one in audio or filter(None, os.environ.get(AUDIO, "").split(os.pathsep))),
    )


def write(
    paths: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    metric: str | None = None,
    group_by: Sequence[str] = (),
    target: float | None = None,
    audio: Sequence[str | Path] = (),
) -> str:
    """`read` and `save` in one call; returns the path or URI of report.html."""
    found = read(paths, baseline=baseline, metric=metric, group_by=group_by, target=target, audio=audio)
    return found.save(out)


def _is_below(one: RunFolder, other: RunFolder) -> bool:
    """Whether one folder is the other one, or lies in it."""
    if one.root is not None and other.root is not None:
        return one.root.resolve().is_relative_to(other.root.resolve())
    inner, outer = (folder.place.partition("?")[0].rstrip("/") for folder in (one, other))
    return f"{inner}/".startswith(f"{outer}/")


def _metric(runs: Sequence[Run]) -> str:
    """The default metric: the test set's WER, accuracy or BLEU, else any score of the best round, else the loss.

    If a run's labels come from a search with a language model, the language model is part of the method. The default is
    then the WER of this search, which the papers of these methods compare.
    """
    scored = list(dict.fromkeys(name for run in runs for name in run.best if name != "round"))
    labelled = any(
        run.settings.get("algorithm.kind") in LABELLED and run.settings.get("task.decode.lm_weight") for run in runs
    )
    first = ("test/wer_lm", "dev/wer_lm") if labelled else ()
    choices = [name for name in (*first, *FIRST_CHOICES, *scored) if name in scored]
    tested = [run for run in runs if any("test/" in name for name in run.best)]  # the others have not ended
    held = Counter(name for run in tested or runs for name in run.best)
    return max(choices, key=held.__getitem__, default="train/loss")  # the first of those that most runs have
