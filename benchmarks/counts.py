"""Counts of units (speakers, utterances) for scores and intervals, their form in JSON, and pairs of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedray.report.bootstrap import Counts
from fedray.report.predictions import Predictions
from fedray.runs.folder import RunFolder


def predictions(out: Path, model: str, split: str = "test") -> list[dict[str, Any]]:
    """The rows of predictions.tsv for a model (seed | best) on a split."""
    return Predictions.read(RunFolder(out)).rows(model, split).to_pylist()


def by_utterance(rows: Sequence[Mapping[str, Any]], column: str = "errors") -> dict[str, tuple[int, int]]:
    """Utterance -> (words, errors); `column` is errors (greedy), errors_lm or errors_lexicon."""
    return {row["utterance"]: (row["words"], row[column]) for row in rows}


def by_speaker(rows: Sequence[Mapping[str, Any]], column: str = "errors") -> dict[str, tuple[int, int]]:
    """Speaker -> (words, errors); `column` as in `by_utterance`."""
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


def common(*arms: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The runs of each arm with the seeds that all arms have."""
    seeds = set.intersection(*({run["seed"] for run in runs} for runs in arms))
    return [[run for run in runs if run["seed"] in seeds] for runs in arms]


def from_one_start(
    worse: Sequence[dict[str, Any]], better: Sequence[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of runs of one seed that start from the same model: on another processor a seed trains another model."""
    return [pair for pair in zip(*common(worse, better), strict=True) if pair[0]["before"] == pair[1]["before"]]
