"""Scores by group of speakers, from the rows of predictions.tsv."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class GroupScores:
    """Adds up rows with a group: word error rates and accuracies in percent, for each model, split and group."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, dict[str, tuple[float, int]]]] = {}  # model -> metric -> group -> errors, words

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row. Rows without errors, such as translations, have no score by group."""
        name = "wer" if "words" in row else "accuracy"
        for column, errors in row.items():
            if column.startswith("errors"):
                metric = f"{row['split']}/{column.replace('errors', name, 1)}"
                of_metric = self._sums.setdefault(row["model"], {}).setdefault(metric, {})
                before = of_metric.get(row["group"], (0.0, 0))
                of_metric[row["group"]] = (before[0] + errors, before[1] + row.get("words", 1))

    def results(self) -> dict[str, dict[str, dict[str, float]]]:
        """Model -> metric -> group -> score, of groups with words."""
        return {
            model: {
                metric: {
                    group: 100 * errors / count if "wer" in metric else 100 - 100 * errors / count
                    for group, (errors, count) in sorted(groups.items())
                    if count
                }
                for metric, groups in metrics.items()
            }
            for model, metrics in self._sums.items()
        }
