"""The data of a report: groups of runs, the compared metric, its changes and their intervals."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from fedray.core.metrics import ALONE
from fedray.core.texts import printable
from fedray.report import effort, targets
from fedray.report.bootstrap import Change, Interval
from fedray.report.figures import Figure
from fedray.report.groups import Group
from fedray.report.recorded import Run
from fedray.report.sweep_description import SweepDescription
from fedray.report.targets import Target
from fedray.report.words import NAMES, of_clients, rising, title
from fedray.runs.scores import INITIAL, first_model

FEW = 20  # speakers or clients; with fewer, percentile intervals are too narrow: see `bootstrap.Change`


@dataclass(frozen=True, eq=False)
class Comparison:
    """Groups of runs compared by `metric`. A change goes from a run's seed model to its best round."""

    place: str | Path  # where a report is saved by default
    sweep: SweepDescription
    groups: Sequence[Group]
    metric: str
    figures: Sequence[Figure]  # those of the sweep
    baseline: Group | None = None
    reference: Group | None = None
    without_a_run: Sequence[str] = ()  # trials that ended before their run began
    asked: float | None = None  # the dev score that runs should reach; None: the best one that all reach
    audio: Sequence[Path] = ()  # folders whose audio the page may contain

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def title(self) -> str:
        names = list(dict.fromkeys(str(run.config.get("name", run.name)) for run in self.runs))
        return printable(self.sweep.name or (names[0] if len(names) == 1 else Path(self.place).name or "report"))

    @property
    def first_model(self) -> str:
        """What the model before the first round is called: "seed model" if a run trained or loaded it."""
        names = {first_model(run.config) for run in self.runs}
        return INITIAL if names == {INITIAL} else "seed model"

    @property
    def units(self) -> str:
        """What the bootstrap draws: "speakers", or "clients" for a personal score."""
        return "clients" if self.metric.startswith("personal/") else "speakers"

    def start(self, metric: str) -> str:
        """The model whose score the metric starts from; `Run.seed_model` holds the score itself."""
        return "shared model alone" if metric.startswith("personal/") else self.first_model

    @property
    def caption(self) -> str:
        """The meaning of the table's cells, what makes rows hard to compare, and the runs that are not finished."""
        random = " (random weights)" * (self.first_model == INITIAL)
        judges = dict.fromkeys(judge for run in self.runs if (judge := run.judge))
        chosen = " or ".join("on dev" if judge == "dev/" else f"by {title(judge)}" for judge in judges)
        which = f"best round (chosen {chosen})" if judges else "last round (without dev none is the best)"
        words = [f"Scores are {self.first_model}{random} → {which}, means over the runs of a row."]
        if any(group.deviation(self.metric) is not None for group in self.groups):
            words.append("± is the standard deviation over these runs.")
        if rounds := ", or ".join(dict.fromkeys(of for run in self.runs if (of := run.rounds_of(self.metric)))):
            words.append(f"The {title(self.metric)} is {rounds}.")
        if any(metric.endswith(ALONE) for run in self.runs for metric in run.best):
            words.append("Personal scores are shared model alone → with the client's memory, means over clients.")
        elif of_clients(self.metric):
            words.append("Personal scores are of the models after the last round, means over clients.")
        told = dict.fromkeys(pair for run in self.runs for pair in run.signatures.items())
        words += [f"{NAMES.get(name, name)}: {signature}." for name, signature in told]
        if known := [change for change in (*self.changes.values(), *self.against.values()) if change is not None]:
            units = self.units
            interval = f"with its 95 % interval: paired bootstrap over {units}, runs held fixed"
            words.append(f"Change of the {title(self.metric)} {interval}.")
            if (fewest := min(change.units for change in known)) < FEW:
                words.append(f"With only {fewest} {units}, the interval is too narrow.")
        if short := [run.name for run in self.runs if run.still_improving(self.metric)]:
            cohorts = any(run.of_cohorts(self.metric) for run in self.runs)
            score = "personal score of a cohort" if cohorts else "dev score"
            words.append(f"Still improving, with the best {score} in the last tenth of the rounds: {_some(short)}.")
        words += effort.unequal(self.groups)
        if again := [run.name for group in self.groups for run in group.repeated]:
            words.append(f"Same settings and seed as another run of their row, but counted too: {_some(again)}.")
        if unfinished := [run.name for run in self.runs if not run.finished]:
            words.append(f"Not finished: {_some(unfinished)}.")
        if self.without_a_run:
            words.append(f"Ended before a run began: {_some(self.without_a_run)}.")
        if self.sweep.reference is not None and self.reference is None:
            words.append(f"The reference, {self.sweep.reference}, is not among the runs.")
        return " ".join(words)

    @functools.cached_property
    def target(self) -> Target | None:
        """The dev score up to which the report counts what runs spend."""
        return targets.find(self.groups, self.metric, self.asked)

    @functools.cached_property
    def changes(self) -> dict[Group, Change | None]:
        """The change of each group from the seed model to the best round."""
        return {group: group.change(self.metric) for group in self.groups}

    @functools.cached_property
    def against(self) -> dict[Group, Change | None]:
        """The change of each group's best round from that of the baseline; None for the baseline itself."""
        others = {group: group.against(self.baseline, self.metric) if self.baseline else None for group in self.groups}
        return others | ({self.baseline: None} if self.baseline else {})

    @functools.cached_property
    def recovered(self) -> dict[Group, Interval | None]:
        """The share of the reference's gain over the seed model that each group reaches."""
        return {
            group: group.recovered(self.reference, self.metric) if self.reference else None for group in self.groups
        }

    def seed_score(self, metric: str) -> float | None:
        """The seed model's score, mean over the seeds; None if the groups start from models with different scores."""
        scores: dict[tuple[str, ...], set[float]] = {}
        for group in self.groups:
            for key, run in group.members.items():
                if run.finished and metric in run.seed_model:
                    scores.setdefault(key, set()).add(float(run.seed_model[metric]))
        one = [found.pop() for found in scores.values() if len(found) == 1]
        return mean(one) if one and len(one) == len(scores) else None

    @property
    def ranked_by(self) -> str:
        """The metric that ranks groups: that of the sweep, if any run has it yet, else the compared one."""
        swept = self.sweep.metric
        known = swept is not None and any(group.score(swept) is not None for group in self.groups)
        return swept if swept is not None and known else self.metric

    def ranked(self) -> list[Group]:
        """The groups that have the metric `ranked_by`, best first."""
        metric = self.ranked_by
        large = self.sweep.mode == "max" if metric == self.sweep.metric else rising(metric)
        scored = [(score, group) for group in self.groups if (score := group.score(metric)) is not None]
        return [group for _, group in sorted(scored, key=lambda pair: -pair[0] if large else pair[0])]


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
