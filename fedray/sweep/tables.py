"""What Tune keeps of the trials: result.json and progress.csv with every row once, and TensorBoard's table of swept keys and scores.

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
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

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


class Board(TBXLoggerCallback):
    """A line of TensorBoard's HPARAMS for each trial that ended: the swept keys, and the scores it ended with.

    Its curves are in the events of its run folder: Tune's own logger would write them again, all in one group.
    """

    def log_trial_start(self, trial: Trial) -> None:
        """Nothing yet."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Nothing: see above."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        numbers = {key: value for key, value in trial.last_result.items() if isinstance(value, int | float)}
        scores = {key: value for key, value in numbers.items() if key.startswith(("seed/", "best/"))}
        scores |= {f"last/{key}": value for key, value in numbers.items() if key.startswith("dev/")}
        if failed or not scores:
            return
        swept = {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in trial.evaluated_params.items()}
        with SummaryWriter(trial.local_path) as writer:
            for summary in hparams(swept, dict(sorted(scores.items()))):  # the best first
                writer.file_writer.add_summary(summary)
            for key, value in scores.items():
                writer.add_scalar(key, value, numbers["round"])
