"""The table of scores by group of speakers (`data.groups`): each group, the worst, their mean and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, pstdev

from fedray.report import bootstrap
from fedray.report.errors import of_labels
from fedray.report.groups import Group
from fedray.report.words import number, rising

WORDS = (
    "Of the best round, means over the runs. The worst group has a 95 % interval over its speakers. Mean and spread, "
    "the standard deviation, are over groups, each of which counts the same."
)


def rows(groups: Sequence[Group], metric: str) -> list[dict[str, str]]:
    """A row for each group of runs with at least two groups of speakers."""
    return [row for group in groups if (row := _row(group, metric))]


def _row(group: Group, metric: str) -> dict[str, str]:
    runs = [run for run in group.finished if run.predictions is not None and run.predictions.categories == "group"]
    scores = of_labels(runs, metric, "best")
    if not scores:
        return {}
    worst = (min if rising(metric) else max)(scores, key=lambda name: scores[name])
    counts = [run.predictions.of_group(worst).counts("best", metric) for run in runs if run.predictions is not None]
    interval = bootstrap.rate([found for found in counts if found])
    cells = {"": group.label} | {name: number(score, metric) for name, score in scores.items()}
    mean_, spread = (number(each(scores.values()), metric) for each in (mean, pstdev))
    return cells | {"worst": f"{worst}: {interval}", "mean of groups": mean_, "spread": spread}
