"""Groups of runs that differ in seeds and folds only: the settings that distinguish groups, and their labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedray.core.metrics import ALONE
from fedray.core.ranges import is_number
from fedray.core.texts import printable
from fedray.report import bootstrap
from fedray.report.bootstrap import Change, Counts, Interval
from fedray.report.recorded import Run
from fedray.report.words import of_clients, rising

# Keys whose values repeat a run: seeds, and the folds that official corpora are scored on in turn.
REPEATS = (
    "seed",
    "data.seed",
    *(f"data.options.{name}" for name in ("fold", "test_folds", "test_session", "test_speaker")),
)
BARE = ("name", "method")  # keys of which a label shows only the value, as of kinds
ABSENT = "absent"  # the value of a key that a run's configuration lacks
LIST_SHOWN = 3  # entries of a list that a label shows
RUNS_SHOWN = 8  # runs that an error names


@dataclass(frozen=True, eq=False)
class Group:
    """Runs with the same settings. The key of a member pairs it with the matching member of another group.

    The key holds the seeds and folds, and whatever else distinguishes runs of one group and one seed.
    """

    label: str
    settings: Mapping[str, Any]  # dotted key -> value, for the keys that distinguish groups
    members: Mapping[tuple[str, ...], Run]

    @property
    def runs(self) -> list[Run]:
        return list(self.members.values())

    @property
    def repeated(self) -> list[Run]:
        """Finished runs with the same settings and seeds as another run."""
        usual = min(map(len, self.members))
        return [run for key, run in self.members.items() if len(key) > usual and run.finished]

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.finished]

    def values(self, metric: str) -> list[float]:
        """The values of the runs that have the metric: of finished runs only, if there are any."""
        return [value for run in self.finished or self.runs if (value := run.value(metric)) is not None]

    def score(self, metric: str, model: str = "best") -> float | None:
        """The mean score over runs; `model` is "best" (the best round) or "seed" (the seed model)."""
        if model == "best":
            values = self.values(metric)
        else:
            values = [float(run.seed_model[metric]) for run in self.finished if metric in run.seed_model]
        return mean(values) if values else None

    def deviation(self, metric: str) -> float | None:
        """The standard deviation of the best round's score over runs; None for a single run."""
        values = self.values(metric)
        return stdev(values) if len(values) > 1 else None

    def change(self, metric: str) -> Change | None:
        """The change from seed model to best round, by paired bootstrap over speakers; None without predictions.

        Speakers of the same name in several runs are drawn together. For a personal score clients are drawn,
        and the change starts from the score of the shared model alone.
        """
        return _change([(run, "seed", run, "best") for run in self.finished], metric)

    def against(self, baseline: Group, metric: str) -> Change | None:
        """The change of the best round from that of another group, over the runs whose seeds both groups have."""
        pairs = [(baseline.members[key], run) for key, run in self.members.items() if key in baseline.members]
        finished = [(other, run) for other, run in pairs if other.finished and run.finished]
        return _change([(other, "best", run, "best") for other, run in finished], metric)

    def interval(self, metric: str) -> Interval | None:
        """The score with its interval; None unless all finished runs have predictions."""
        known = [found for run in self.finished if (found := _counts(run, "best", metric)) is not None]
        return bootstrap.rate(known) if known and len(known) == len(self.finished) else None

    def recovered(self, reference: Group, metric: str) -> Interval | None:
        """The share of the reference's gain over the seed model that this group reaches.

        None if there is no gain, nothing was scored, or a pair of runs did not score the same units.
        """
        pairs = [(run, reference.members[key]) for key, run in self.members.items() if key in reference.members]
        found: list[list[bootstrap.Counts]] = []
        for run, other in pairs:
            if run.finished and other.finished:
                scored = [_counts(one, model, metric) for one in (run, other) for model in ("seed", "best")]
                counts = [one for one in scored if one is not None]
                if len(counts) == len(scored):
                    if not all(bootstrap.paired(counts[0], one) for one in counts):
                        return None
                    found.append(counts)
        if not found:
            return None
        before, after, reference_before, reference_after = zip(*found, strict=True)
        return bootstrap.recovered(before, after, reference_before, reference_after)


def group(runs: Sequence[Run], first: Sequence[str] = (), only: bool = False) -> list[Group]:
    """The groups, sorted by the values of their settings.

    `first`: keys that labels name first (those of a sweep); with `only`, no other keys distinguish groups. Keys of
    `engine` and `tracker` distinguish groups only if they are in `first`: they do not change the result of a run.
    Raises ValueError if no run has a key of `first`.
    """
    for key in first:
        if not any(key in run.settings for run in runs):
            raise ValueError(f"no run's configuration has the key {key}; keys are dotted, such as algorithm.alpha")
    keys = [key for key in _keys(runs) if key in first or not key.startswith("tracker.")]
    differing = [key for key in keys if len({_text(run, key) for run in runs}) > 1]
    free = [key for key in differing if key not in (*first, *REPEATS) and not key.startswith("engine.")]
    apart = [*first, *([] if only else free)]
    pooled = [key for key in differing if key not in apart]
    together: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        together.setdefault(tuple(_text(run, key) for key in apart), []).append(run)
    paired_by = _pairing(together.values(), pooled)
    members: dict[tuple[str, ...], dict[tuple[str, ...], Run]] = {}
    for values, found in together.items():
        pairs = members.setdefault(values, {})
        for run in found:
            pair = tuple(_text(run, key) for key in paired_by)
            pairs[pair if pair not in pairs else (*pair, run.name)] = run  # a repeated run
    examples = [next(iter(found.values())) for found in members.values()]
    named = _needed(examples, apart, first)
    labels = [printable(label) for label in _labels(examples, named)]
    settings = [{key: run.settings[key] for key in apart if key in run.settings} for run in examples]
    groups = [Group(*parts) for parts in zip(labels, settings, members.values(), strict=True)]
    words = {key: list(dict.fromkeys(shown(found.settings.get(key)) for found in groups)) for key in named}
    return sorted(groups, key=lambda found: [_order(found.settings.get(key), words[key]) for key in named])


def named_group(name: str, groups: Sequence[Group]) -> Group:
    """The group with this label or with this run, or the only one whose label contains it; "first" is the first group.

    A run is given by the name or the path of its folder. Raises ValueError with all labels and the runs if no group or
    several groups match.
    """
    close = matching(name, groups)
    if len(close) != 1:
        several = "is not a group or a run" if not close else "matches several groups"
        runs = [run.name for found in groups for run in found.runs]
        more = f" and {len(runs) - RUNS_SHOWN} more" if len(runs) > RUNS_SHOWN else ""
        raise ValueError(
            f"{name!r} {several}; the groups are: {'; '.join(found.label for found in groups)}; "
            f"the runs are: {', '.join(runs[:RUNS_SHOWN])}{more}"
        )
    return close[0]


def matching(name: str, groups: Sequence[Group]) -> Sequence[Group]:
    """The group with this label, else those with this run, else those whose label contains it.

    "first" is the first group.
    """
    if name == "first":
        return groups[:1]
    exact = [found for found in groups if found.label == name]
    exact = exact or [found for found in groups if any(_is_called(run, name) for run in found.runs)]
    return exact or [found for found in groups if name.lower() in found.label.lower()]


def _is_called(run: Run, name: str) -> bool:
    """Whether this is the name in reports, the folder's name, or the path or URI of the run."""
    place = run.folder.place.rstrip("/")
    names = (run.name, place, place.rpartition("/")[2])
    return name.rstrip("/") in names or (
        run.folder.root is not None and Path(name).resolve() == run.folder.root.resolve()
    )


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Each dotted key by its shortest unambiguous ending; algorithm.kind becomes algorithm."""
    cut = {key: key.removesuffix(".kind") for key in keys}
    names = {}
    for key, whole in cut.items():
        parts = whole.split(".")
        names[key] = next(
            (tail for size in range(1, len(parts)) if _alone(tail := ".".join(parts[-size:]), key, cut)),
            whole,
        )
    return names


def shown(value: object) -> str:
    """A value of a configuration, as a label shows it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        more = ["…"] if len(value) > LIST_SHOWN else []
        return " ".join([shown(entry) for entry in value[:LIST_SHOWN]] + more)
    return str(value)


def _keys(runs: Sequence[Run]) -> list[str]:
    """All keys: the name first, then kinds (they decide which other keys exist), then those of the algorithm."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    return sorted(keys, key=lambda key: (key != "name", not key.endswith(".kind"), not key.startswith("algorithm.")))


def _text(run: Run, key: str) -> str:
    return repr(run.settings.get(key, ABSENT))


def _pairing(groups: Collection[Sequence[Run]], pooled: Sequence[str]) -> list[str]:
    """The keys that pair a run with one of another group: seeds, and keys in which runs of one group and seed differ.

    Keys that differ only between groups are left out: with them no run would have a pair.
    """
    seeds = [key for key in pooled if key in REPEATS]
    alike: dict[tuple[int, *tuple[str, ...]], list[Run]] = {}
    for number, runs in enumerate(groups):
        for run in runs:
            alike.setdefault((number, *(_text(run, key) for key in seeds)), []).append(run)

    def differs(key: str) -> bool:
        return any(len({_text(run, key) for run in one}) > 1 for one in alike.values())

    return [key for key in pooled if key in seeds or differs(key)]


def _needed(runs: Sequence[Run], apart: Sequence[str], always: Collection[str]) -> list[str]:
    """The keys that a label needs: those in `always`, and those that distinguish runs that earlier keys do not."""
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
    return [
        label if labels.count(label) == 1 else f"{label} ({run.name})" for label, run in zip(labels, runs, strict=True)
    ]


def _alone(tail: str, key: str, cut: Mapping[str, str]) -> bool:
    return not any(other != key and (whole == tail or whole.endswith(f".{tail}")) for other, whole in cut.items())


def _order(value: object, words: Sequence[str]) -> tuple[int, float]:
    """A sort key: numbers by size, then words in the order of `words`."""
    if is_number(value):
        return 0, float(value)
    return 1, words.index(shown(value))


def _counts(run: Run, model: str, metric: str) -> Counts | None:
    """The counts of each speaker; for a personal score those of each client, with equal weight for all clients."""
    if metric.startswith("personal/"):
        scores = run.of_clients(metric if model == "best" else metric + ALONE) if of_clients(metric) else {}
        return {client: (100, score) for client, score in scores.items()} or None
    return run.predictions.counts(model, metric) if run.predictions is not None else None


def _change(pairs: Sequence[tuple[Run, str, Run, str]], metric: str) -> Change | None:
    """The change over pairs (run, model before, run, model after); None if a pair did not score the same units."""
    found = [(_counts(one, before, metric), _counts(other, after, metric)) for one, before, other, after in pairs]
    both = [(before, after) for before, after in found if before is not None and after is not None]
    known = [(before, after) for before, after in both if bootstrap.paired(before, after)]
    if not known or len(known) < len(found):
        return None
    befores, afters = [before for before, _ in known], [after for _, after in known]
    return bootstrap.change(befores, afters, "points" if rising(metric) else None)
