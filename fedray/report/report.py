"""A report: runs in groups, what changed and how surely, and files to read it in."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedray.core.metrics import ALONE
from fedray.engine.folder import RunFolder
from fedray.report import groups as grouping
from fedray.report import page, recorded, sweep, tables
from fedray.report.bootstrap import Change, Interval
from fedray.report.figures import Figure
from fedray.report.groups import Group
from fedray.report.recorded import Run, known_metric, rising
from fedray.report.words import title

FIRST_CHOICES = ("own/test/accuracy", "own/test/wer", "own/test/wer_lm", "test/wer", "test/accuracy", "dev/wer", "dev/accuracy")


@dataclass(frozen=True, eq=False)
class Report:
    """What `read` makes. `metric` is the one that is compared; changes are of the best round against the run's own seed model."""

    place: str | Path  # where it is saved by default
    asked: sweep.Asked
    groups: Sequence[Group]
    metric: str
    figures: Sequence[Figure]  # that the sweep asks for
    baseline: Group | None = None
    reference: Group | None = None
    without_a_run: Sequence[str] = ()  # trials that ended before their run began

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def title(self) -> str:
        names = list(dict.fromkeys(str(run.config.get("name", run.name)) for run in self.runs))
        return self.asked.name or (names[0] if len(names) == 1 else Path(self.place).name or "report")

    @property
    def caption(self) -> str:
        """What the cells mean, and what is missing."""
        words = ["Scores are seed model → best round (by dev), means over the runs of a row."]
        if any(metric.endswith(ALONE) for run in self.runs for metric in run.best):
            words.append("Of clients' own models: what all share, alone → with what is the client's own.")
        if any(self.changes.values()):
            words.append(f"Change of the {title(self.metric)} with its 95 % interval: paired bootstrap over speakers, runs held fixed.")
        if unfinished := [run.name for run in self.runs if not run.finished]:
            words.append(f"Not finished: {_some(unfinished)}.")
        if self.without_a_run:
            words.append(f"Ended before a run began: {_some(self.without_a_run)}.")
        if self.asked.reference is not None and self.reference is None:
            words.append(f"The reference, {self.asked.reference}, is not among the runs.")
        return " ".join(words)

    @functools.cached_property
    def changes(self) -> dict[Group, Change | None]:
        return {group: group.change(self.metric) for group in self.groups}

    @functools.cached_property
    def against(self) -> dict[Group, Change | None]:
        """Best against the best of the baseline."""
        others = {group: group.against(self.baseline, self.metric) if self.baseline else None for group in self.groups}
        return others | ({self.baseline: None} if self.baseline else {})

    @functools.cached_property
    def recovered(self) -> dict[Group, Interval | None]:
        """The share of the reference's gain."""
        return {group: group.recovered(self.reference, self.metric) if self.reference else None for group in self.groups}

    def ranked(self) -> list[Group]:
        """Groups that have the metric, the best first: by the sweep's own metric, which is chosen by, else by the report's."""
        metric = self.asked.metric or self.metric
        large = self.asked.mode == "max" if self.asked.metric else rising(metric)
        scored = [(score, group) for group in self.groups if (score := group.score(metric)) is not None]
        return [group for _, group in sorted(scored, key=lambda pair: -pair[0] if large else pair[0])]

    def table(self, console: Console | None = None) -> Table:
        """For a terminal: print it with rich. `console`: that it shall fit."""
        return tables.rich_table(self, console or Console())

    def save(self, out: str | Path | None = None) -> str:
        """Write report.html, report.md, report.csv and figures/ to `out`, a path or a URI (default: `place`); where report.html is."""
        return page.save(self, RunFolder(out if out is not None else self.place))


def read(
    paths: str | Path | Sequence[str | Path],
    *,
    baseline: str | None = None,
    metric: str | None = None,
    group_by: Sequence[str] = (),
) -> Report:
    """The report of run folders, or of folders that hold some (studies, Tune's experiments, a sweep's with its sweep.json).

    `baseline`: a group's label, or "first"; `metric`: what is compared, a key of results.json or metrics.jsonl; `group_by`: the only keys
    that tell groups apart (default: all that differ but the seeds). ValueError: there is no such thing, or a file is damaged.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    runs = recorded.find(paths)
    place = paths[0] if len(paths) == 1 else "report"
    asked, figures = sweep.read(RunFolder(place)) if len(paths) == 1 else (sweep.Asked(), ())
    if asked.metric is not None and any(run.metrics for run in runs):
        known_metric(asked.metric, runs)
    swept = [key for key in asked.keys if key not in grouping.SEEDS and any(key in run.settings for run in runs)]
    groups = grouping.group(runs, group_by or swept, only=bool(group_by))
    reference = grouping.matching(asked.reference, groups) if asked.reference is not None else ()
    return Report(
        place,
        asked,
        groups,
        known_metric(metric, runs) if metric is not None else _metric(runs),
        figures,
        grouping.named_group(baseline, groups) if baseline is not None else None,
        reference[0] if len(reference) == 1 else None,
        recorded.trials_without_a_run(paths),
    )


def write(
    paths: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    metric: str | None = None,
    group_by: Sequence[str] = (),
) -> str:
    """Read and save in one; where report.html is."""
    return read(paths, baseline=baseline, metric=metric, group_by=group_by).save(out)


def _metric(runs: Sequence[Run]) -> str:
    """What is compared when nobody says: the test set's WER or accuracy, else any score of the best round, else the loss."""
    scored = list(dict.fromkeys(name for run in runs for name in run.best if name != "round"))
    return next((name for name in (*FIRST_CHOICES, *scored) if name in scored), "train/loss")


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
