"""Tune's result.json and progress.csv with every row once.

A trial that goes on from its checkpoint reports rounds again that were written down after it. Rounds are pure, so the rows are the same,
and only new ones are written. A row is known by its run folder (a trial that takes over another's checkpoint has a further one) and round.
"""

from __future__ import annotations

import csv
import json
from abc import abstractmethod
from pathlib import Path
from typing import Any

from ray.air.constants import EXPR_PROGRESS_FILE, EXPR_RESULT_FILE
from ray.tune.experiment import Trial
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback

Row = tuple[str, int]


class _Once(LoggerCallback):
    file: str

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[Trial, set[Row]] = {}

    def _restore_from_remote(self, file_name: str, trial: Trial) -> None:
        """What was there before, without a row that was cut short; not over a file that is there, which is newer."""
        path = Path(trial.local_path, file_name)
        if path.exists():
            return
        super()._restore_from_remote(file_name, trial)
        if path.exists():
            text = path.read_text(encoding="utf-8")
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")

    def _is_new(self, trial: Trial, result: dict[str, Any]) -> bool:
        if trial not in self._written:
            path = Path(trial.local_path, self.file)
            self._written[trial] = self._rows(path) if path.exists() else set()
        row = (str(result["run"]), int(result["round"]))
        new = row not in self._written[trial]
        self._written[trial].add(row)
        return new

    @abstractmethod
    def _rows(self, path: Path) -> set[Row]:
        """That the file has."""


class Json(_Once, JsonLoggerCallback):
    file = EXPR_RESULT_FILE

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if self._is_new(trial, result):
            super().log_trial_result(iteration, trial, result)

    def _rows(self, path: Path) -> set[Row]:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {(row["run"], row["round"]) for row in rows}


class Csv(_Once, CSVLoggerCallback):
    file = EXPR_PROGRESS_FILE

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial not in self._trial_files:
            self._setup_trial(trial)
        if self._is_new(trial, result):
            super().log_trial_result(iteration, trial, result)

    def _rows(self, path: Path) -> set[Row]:
        with path.open(encoding="utf-8", newline="") as file:
            return {(row["run"], int(row["round"])) for row in csv.DictReader(file)}
