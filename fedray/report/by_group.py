"""The table of scores by group of speakers (`data.groups`): each group, the worst, their mean and their spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, pstdev

from fedray.report import bootstrap
from fedray.report.errors import LABELS, of_labels
from fedray.report.groups import Group
from fedray.report.recorded import Run
from fedray.report.words import number, rising

WORDS = (
    "Of the best round, means over the runs. The worst group has a 95 % interval over its speakers. Mean and spread, "
    f"the standard deviation, are over groups, each of which counts the same. More than {LABELS} groups are not listed."
)


def rows(groups: Sequence[Group], metric: str) -> list[dict[str, str]]:
    """A row for each group of runs with at least two groups of speakers, all with the same columns.

    More groups than `LABELS` have no columns: they would be too many to read.
    """
    scored = [(group, scores) for group in groups if (scores := of_labels(_runs(group), metric, "best", math.inf))]
    names = sorted({name for _, scores in scored for name in scores})
    return [_row(group, scores, names if len(names) <= LABELS else (), metric) for group, scores in scored]


def _runs(group: Group) -> list[Run]:
    """The finished runs that have scores of groups of speakers."""
    return [run for run in group.finished if run.predictions is not None and run.predictions.categories == "group"]


def _row(group: Group, scores: Mapping[str, float], shown: Sequence[str], metric: str) -> dict[str, str]:
    """A row with the scores of the groups `shown`; "" where these runs lack one."""
    worst = (min if rising(metric) else max)(scores, key=lambda name: scores[name])
    found = [run.predictions for run in _runs(group) if run.predictions is not None]
    counts = [one.of_group(worst).counts("best", metric) for one in found]
    interval = bootstrap.rate([one for one in counts if one])
    cells = {"": group.label} | {name: number(scores.get(name), metric) for name in shown}
    mean_, spread = (number(each(scores.values()), metric) for each in (mean, pstdev))
    return cells | {"worst": f"{worst}: {interval}", "mean of groups": mean_, "spread": spread}
