"""Counts of units (speakers, utterances) from which pages compute scores and intervals, and their form in JSON."""

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
