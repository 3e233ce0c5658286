"""Counts of units (speakers, utterances) for scores and intervals, their form in JSON, and pairs of runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedray.report.bootstrap import Counts
from fedray.report.predictions import Predictions
from fedray.runs.folder import RunFolder

MANY = 8  # units from which a text of `packed` shares its units with others


def predictions(out: Path, model: str, split: str = "test") -> list[dict[str, Any]]:
    """The rows of predictions.tsv for a model (seed | best) on a split."""
    return Predictions.read(RunFolder(out)).rows(model, split).to_pylist()


def by_utterance(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Utterance -> (words, errors of greedy search)."""
    return {row["utterance"]: (row["words"], row["errors"]) for row in rows}


def by_speaker(rows: Sequence[Mapping[str, Any]], column: str = "errors") -> dict[str, tuple[int, int]]:
    """Speaker -> (words, errors); `column` is errors (greedy), errors_lm or errors_lexicon."""
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        words, errors = counts.get(row["speaker"], (0, 0))
        counts[row["speaker"]] = (words + row["words"], errors + row[column])
    return counts


def right_by(unit: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Unit (a column: speaker or utterance) -> (clips, right answers) of a classifier."""
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        clips, right = counts.get(row[unit], (0, 0))
        counts[row[unit]] = (clips + 1, right + 1 - row["errors"])
    return counts


def packed(counts: Counts) -> str:
    """Totals and counts by speaker as one text, "count of total by speaker | ...", for the JSON file of a page."""
    return " | ".join(f"{' of '.join(map(str, reversed(numbers)))} by {unit}" for unit, numbers in counts.items())


def unpacked(text: str) -> Counts:
    """The counts that `packed` turned into text."""
    parts = (part.partition(" by ") for part in text.split(" | "))
    return {unit: tuple(map(int, reversed(numbers.split(" of ")))) for numbers, _, unit in parts}


def thinned(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a page without repetitions: texts of `packed` with the same units and totals share these.

    A text "13 of 21 by ann | 6 of 26 by bob" becomes "units 0: 13 6", and `units` lists the first "21 by ann | 26 by
    bob". `whole` undoes it.
    """
    places: dict[str, int] = {}

    def thin(text: str) -> str:
        parts = [part.partition(" of ") for part in text.split(" | ")]
        if len(parts) < MANY or not all(re.fullmatch(r"\d+", count) and " of " not in rest for count, _, rest in parts):
            return text
        place = places.setdefault(" | ".join(rest for *_, rest in parts), len(places))
        return f"units {place}: {' '.join(count for count, *_ in parts)}"

    found = _mapped(numbers, thin)
    return {**found, "units": list(places)} if places else dict(found)


def whole(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that `thinned` was given."""
    rest = {key: value for key, value in numbers.items() if key != "units"}

    def widen(text: str) -> str:
        if (found := re.fullmatch(r"units (\d+): ([\d ]+)", text)) is None:
            return text
        units = numbers["units"][int(found[1])].split(" | ")
        return " | ".join(f"{count} of {unit}" for count, unit in zip(found[2].split(), units, strict=True))

    return dict(_mapped(rest, widen)) if "units" in numbers else rest


def _mapped(tree: Any, change: Callable[[str], str]) -> Any:
    """A tree of lists and dicts with each text changed."""
    if isinstance(tree, Mapping):
        return {key: _mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_mapped(value, change) for value in tree]
    return change(tree) if isinstance(tree, str) else tree


def common(*arms: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The runs of each arm with the seeds that all arms have."""
    seeds = set.intersection(*({run["seed"] for run in runs} for runs in arms))
    return [[run for run in runs if run["seed"] in seeds] for runs in arms]


def from_one_start(
    worse: Sequence[dict[str, Any]], better: Sequence[dict[str, Any]], start: str = "before"
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of runs of one seed that start from the same model: on another processor a seed trains another model.

    `start`: the key of the initial model's counts.
    """
    return [pair for pair in zip(*common(worse, better), strict=True) if pair[0][start] == pair[1][start]]
