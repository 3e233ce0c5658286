"""What runs spend until their dev score reaches a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, mean

import numpy as np

from fedray.report.effort import SAME, spent
from fedray.report.groups import Group
from fedray.report.recorded import Run
from fedray.report.words import in_percent, number, rising, title

SCORED = ("dev/wer", "dev/accuracy", "dev/bleu")
AMOUNTS = {  # axis -> the amount
    "round": "rounds",
    "hours": "virtual hours",
    "device_hours": "device hours",
    "energy": "energy (Wh)",
    "bytes": "traffic (GB)",
}


@dataclass(frozen=True)
class Target:
    """A dev score that runs should reach."""

    metric: str
    value: float
    chosen: bool  # by the user

    @property
    def words(self) -> str:
        return f"{title(self.metric)} {number(self.value, self.metric)}{' %' * in_percent(self.metric)}"

    def reached(self, run: Run) -> int | None:
        """The run's number of rows when it reaches the target, 0 for the seed model; None: it never does."""
        scores = _scores(run, self.metric)
        found = np.flatnonzero(scores >= self.value if rising(self.metric) else scores <= self.value)
        return int(found[0]) if len(found) else None

    def spent(self, run: Run, axis: str) -> float | None:
        """What the run has spent when it reaches the target; None if it never does, or its rows do not record it."""
        reached = self.reached(run)
        if reached is None or not _says(run, axis):
            return None
        value = float(spent(run, axis)[reached - 1]) if reached else 0.0
        return None if np.isnan(value) else value


def find(groups: Sequence[Group], metric: str, asked: float | None) -> Target | None:
    """The target: `asked`, else the best score that all runs reach.

    `metric`: that of the report; the target is its score on dev if there is one. Without `asked` returns None if no run
    has a dev score, or none has devices. ValueError: a target is asked for, but no run has a dev score.
    """
    runs = [run for group in groups for run in group.finished] or [run for group in groups for run in group.runs]
    has = {name for run in runs for row in run.rows for name, value in row.items() if value is not None}
    name = next((each for each in (f"dev/{metric.rpartition('/')[2]}", *SCORED) if each in has), None)
    if name is None and asked is not None:
        raise ValueError(f"target: no run has a dev score that could reach {asked:g}")
    if name is None or (asked is None and "virtual/hours" not in has):
        return None
    if asked is not None:
        return Target(name, asked, True)
    scores = [found for run in runs if not np.isnan(found := _scores(run, name)).all()]
    best = min(map(np.nanmax, scores)) if rising(name) else max(map(np.nanmin, scores))
    return Target(name, float(best), False)


def rows(groups: Sequence[Group], target: Target, baseline: Group | None) -> list[dict[str, str]]:
    """Column title -> cell, for each group."""
    axes = [axis for axis in AMOUNTS if any(_says(run, axis) for group in groups for run in group.runs)]
    return [_row(group, target, axes, baseline) for group in groups]


def note(groups: Sequence[Group], target: Target, baseline: Group | None) -> str:
    """The caption that explains the cells."""
    which = "which was asked for" if target.chosen else "the best score that all runs reach"
    words = [f"The target is the {target.words}, {which}. Means over the runs that reach it, and their range."]
    if baseline is not None:
        words.append(
            f"Ratios to {baseline.label}, below 1x where the row spends less, are geometric means over the pairs of "
            "runs with equal seeds that reach it, and their range."
        )
        updates = {group.label: count for group in groups if (count := _updates(group)) is not None}
        if updates and max(updates.values()) > SAME * min(updates.values()):
            least, most = min(updates, key=updates.__getitem__), max(updates, key=updates.__getitem__)
            words.append(
                f"Rounds are of different size: {number(updates[least])} updates a round ({least}) to "
                f"{number(updates[most])} ({most}). Their ratio does not compare equal work."
            )
    return " ".join(words)


def of_run(run: Run, target: Target) -> dict[str, float | None]:
    """What a run has spent when it reaches the target, as columns of the CSV."""
    axes = [axis for axis in AMOUNTS if _says(run, axis)]
    return {f"{AMOUNTS[axis]} to {target.metric} {target.value:g}": target.spent(run, axis) for axis in axes}


def _row(group: Group, target: Target, axes: Sequence[str], baseline: Group | None) -> dict[str, str]:
    reached = sum(target.reached(run) is not None for run in group.runs)
    cells = {"": group.label, "reached by": f"{reached} of {len(group.runs)} runs"}
    for axis in axes:
        values = [value for run in group.runs if (value := target.spent(run, axis)) is not None]
        says = any(_says(run, axis) for run in group.runs)
        cells[AMOUNTS[axis]] = _range(values, mean) if reached or not says else "not reached"
    if baseline is not None:
        for axis in axes:
            ratios = [] if group is baseline else _ratios(group, target, axis, baseline)
            amount, _, _ = AMOUNTS[axis].partition(" (")
            cells[f"{amount} / {baseline.label}"] = _range(ratios, geometric_mean, "x")
    return cells


def _ratios(group: Group, target: Target, axis: str, baseline: Group) -> list[float]:
    """What the group spends, divided by what the baseline spends, for each pair of runs that reach the target."""
    pairs = [(baseline.members[key], run) for key, run in group.members.items() if key in baseline.members]
    both = [(target.spent(other, axis), target.spent(run, axis)) for other, run in pairs]
    return [own / other for other, own in both if other and own]


def _updates(group: Group) -> float | None:
    """The mean number of updates that a round aggregates; None before the first round."""
    updates = [count for run in group.runs for count in run.column("clients/ok") if not np.isnan(count)]
    return mean(updates) if updates else None


def _range(values: Sequence[float], middle: Callable[[Sequence[float]], float], unit: str = "") -> str:
    """The mean and the range: `4.2 (3.9–4.6)`; a single value as it is; empty for none."""
    if not values:
        return ""
    low, high = f"{number(min(values))}{unit}", f"{number(max(values))}{unit}"
    return f"{number(middle(values))}{unit}" + (f" ({low}–{high})" if len(values) > 1 else "")


def _says(run: Run, axis: str) -> bool:
    return not np.isnan(spent(run, axis)).all()


def _scores(run: Run, metric: str) -> np.ndarray:
    """The scores of the seed model and after each row, float64 [1 + rows]; NaN where it was not measured."""
    return np.array([run.seed_model.get(metric, np.nan), *run.column(metric)])
