"""Runs that differ in their seeds alone are one group: which settings tell the groups apart, and what a group is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from fedray.report import bootstrap
from fedray.report.bootstrap import Change, Counts, Interval
from fedray.report.recorded import Run, rising

SEEDS = ("seed", "data.seed")
BARE = ("name", "method")  # keys whose values speak for themselves, as kinds do
ABSENT = "absent"  # the value of a key that another kind's section has
LIST_SHOWN = 3  # entries of a list in a label


@dataclass(frozen=True, eq=False)
class Group:
    """Runs by pair key (what else tells them apart: their seeds), which pairs them with another group's."""

    label: str
    settings: Mapping[str, Any]  # dotted key -> value, of the keys that tell groups apart
    members: Mapping[tuple[str, ...], Run]

    @property
    def runs(self) -> list[Run]:
        return list(self.members.values())

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.finished]

    def values(self, metric: str) -> list[float]:
        """One a run that has it; of the finished runs, if there are any, since what is unfinished has another number of rounds."""
        return [value for run in self.finished or self.runs if (value := run.value(metric)) is not None]

    def score(self, metric: str, model: str = "best") -> float | None:
        """Mean over the runs, of the best round's model or the seed model."""
        if model == "best":
            values = self.values(metric)
        else:
            values = [float(run.seed_model[metric]) for run in self.finished if metric in run.seed_model]
        return mean(values) if values else None

    def change(self, metric: str) -> Change | None:
        """Best against the run's own seed model, by paired bootstrap over speakers; None where there are no predictions to draw from.

        A speaker is drawn for all runs alike, by name.
        """
        return _change([(run, "seed", run, "best") for run in self.finished], metric)

    def against(self, baseline: Group, metric: str) -> Change | None:
        """Best against best of another group, of the runs that have a counterpart (the same seeds) there."""
        pairs = [(baseline.members[key], run) for key, run in self.members.items() if key in baseline.members]
        return _change([(other, "best", run, "best") for other, run in pairs if other.finished and run.finished], metric)

    def interval(self, metric: str, model: str = "best") -> Interval | None:
        """The score with its interval."""
        counts = [run.predictions.counts(model, metric) for run in self.finished if run.predictions is not None]
        known = [found for found in counts if found is not None]
        return bootstrap.rate(known) if known and len(known) == len(counts) else None

    def recovered(self, reference: Group, metric: str) -> Interval | None:
        """The share of the reference's gain over the seed model; None where that gains nothing or nothing was scored."""
        pairs = [(run, reference.members[key]) for key, run in self.members.items() if key in reference.members]
        trios = [
            (_counts(run, "seed", metric), _counts(run, "best", metric), _counts(other, "best", metric))
            for run, other in pairs
            if run.finished and other.finished
        ]
        known = [trio for trio in trios if None not in trio]
        return bootstrap.recovered(*zip(*known, strict=True)) if known else None


def group(runs: Sequence[Run], first: Sequence[str] = (), only: bool = False) -> list[Group]:
    """The groups, in the order of their values. `first` are keys to name first (those of a sweep), with `only` the only ones.

    Keys of `engine` tell groups apart only if they are among `first`: they change how fast a run is, not what comes out.
    ValueError: no run has a key that is asked for.
    """
    for key in first:
        if not any(key in run.settings for run in runs):
            raise ValueError(f"no run's configuration has the key {key}; keys are dotted, such as algorithm.alpha")
    differing = [key for key in _keys(runs) if len({_text(run, key) for run in runs}) > 1]
    free = [key for key in differing if key not in (*first, *SEEDS) and not key.startswith("engine.")]
    apart = [*first, *([] if only else free)]
    pooled = [key for key in differing if key not in apart]
    members: dict[tuple[str, ...], dict[tuple[str, ...], Run]] = {}
    for run in runs:
        pairs = members.setdefault(tuple(_text(run, key) for key in apart), {})
        pair = tuple(_text(run, key) for key in pooled)
        pairs[pair if pair not in pairs else (*pair, run.name)] = run  # the same settings twice
    examples = [next(iter(found.values())) for found in members.values()]
    named = _telling(examples, apart, first)
    labels = _labels(examples, named)
    settings = [{key: run.settings[key] for key in apart if key in run.settings} for run in examples]
    groups = [Group(*parts) for parts in zip(labels, settings, members.values(), strict=True)]
    words = {key: list(dict.fromkeys(shown(found.settings.get(key)) for found in groups)) for key in named}
    return sorted(groups, key=lambda found: [_order(found.settings.get(key), words[key]) for key in named])


def named_group(name: str, groups: Sequence[Group]) -> Group:
    """The group of that label, or the only one whose label has the words in it; "first" is the first. ValueError with the labels."""
    close = matching(name, groups)
    if len(close) != 1:
        several = "is no group" if not close else "are several groups"
        raise ValueError(f"{name!r} {several}; there are: {'; '.join(found.label for found in groups)}")
    return close[0]


def matching(name: str, groups: Sequence[Group]) -> Sequence[Group]:
    """The group of that label, else all whose labels have it in them; "first" is the first."""
    if name == "first":
        return groups[:1]
    exact = [found for found in groups if found.label == name]
    return exact or [found for found in groups if name.lower() in found.label.lower()]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Each dotted key by as many of its last parts as tell it from the others; algorithm.kind is algorithm."""
    cut = {key: key.removesuffix(".kind") for key in keys}
    names = {}
    for key, whole in cut.items():
        parts = whole.split(".")
        names[key] = next(
            (tail for size in range(1, len(parts)) if _alone(tail := ".".join(parts[-size:]), key, cut)),
            whole,
        )
    return names


def shown(value: Any) -> str:
    """A value of a configuration in a label."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        more = ["…"] if len(value) > LIST_SHOWN else []
        return " ".join([shown(entry) for entry in value[:LIST_SHOWN]] + more)
    return str(value)


def _keys(runs: Sequence[Run]) -> list[str]:
    """All keys; the name first, then kinds, which decide what other keys there are, then the algorithm's, which a study is mostly about."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    return sorted(keys, key=lambda key: (key != "name", not key.endswith(".kind"), not key.startswith("algorithm.")))


def _text(run: Run, key: str) -> str:
    return repr(run.settings.get(key, ABSENT))


def _telling(runs: Sequence[Run], apart: Sequence[str], always: Collection[str]) -> list[str]:
    """As few of the keys as tell the runs apart: each one must part what those before it leave together. Those of a sweep stay."""
    kept: list[str] = []
    parts = 1
    for key in apart:
        now = len({tuple(_text(run, name) for name in (*kept, key)) for run in runs})
        if now > parts or key in always:
            kept.append(key)
            parts = now
    return kept


def _labels(runs: Sequence[Run], keys: Sequence[str]) -> list[str]:
    if not keys:
        return [str(run.config.get("name", run.name)) for run in runs]
    names = short_names(keys)

    def word(run: Run, key: str) -> str:
        value = shown(run.settings[key])
        return value if key in BARE or key.endswith(".kind") else f"{names[key]}={value}"

    labels = [", ".join(word(run, key) for key in keys if key in run.settings) or run.name for run in runs]
    return [label if labels.count(label) == 1 else f"{label} ({run.name})" for label, run in zip(labels, runs, strict=True)]


def _alone(tail: str, key: str, cut: Mapping[str, str]) -> bool:
    return not any(other != key and (whole == tail or whole.endswith(f".{tail}")) for other, whole in cut.items())


def _order(value: Any, words: Sequence[str]) -> tuple[int, float]:
    """Numbers by size, then words as they come."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value)) if number else (1, words.index(shown(value)))


def _counts(run: Run, model: str, metric: str) -> Counts | None:
    return run.predictions.counts(model, metric) if run.predictions is not None else None


def _change(pairs: Sequence[tuple[Run, str, Run, str]], metric: str) -> Change | None:
    """Of (run and model before, run and model after); None where nothing was scored, or not the same by both."""
    found = [(_counts(one, before, metric), _counts(other, after, metric)) for one, before, other, after in pairs]
    known = [(before, after) for before, after in found if before is not None and after is not None and bootstrap.paired(before, after)]
    if not known or len(known) < len(found):
        return None
    befores, afters = zip(*known, strict=True)
    return bootstrap.change(befores, afters, "points" if rising(metric) else None)
