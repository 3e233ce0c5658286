"""Loggers for Tune: result.json, progress.csv, and TensorBoard's table of swept keys and scores.

A resumed trial reports the rounds after its checkpoint again. Rounds are deterministic, so the rows are equal, and the
loggers write each row once. Three things identify a row: its run folder, its round, and whether it ends the trial. A
trial that takes over another's checkpoint has a second run folder, and a trial that ends early reports its last round a
second time, with the run's scores.
"""

from __future__ import annotations

import csv
import json
from abc import abstractmethod
from pathlib import Path

from ray.tune.experiment import Trial
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from fedray.engine.cluster.ray_private import RestoredLog, keep_columns, open_table

Row = tuple[str, int, bool]  # run folder, round, whether the trial ends with it: then the row has the run's scores


class _Once(RestoredLog, LoggerCallback):
    """Recognises rows that the file already has."""

    file: str

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[Trial, set[Row]] = {}

    def _is_new(self, trial: Trial, result: dict[str, object]) -> bool:
        if trial not in self._written:
            path = Path(trial.local_path, self.file)
            self._written[trial] = self._rows(path) if path.exists() else set()
        row = (str(result["run"]), int(str(result["round"])), bool(result.get("done")))
        new = row not in self._written[trial]
        self._written[trial].add(row)
        return new

    @abstractmethod
    def _rows(self, path: Path) -> set[Row]:
        """The rows that the file has."""


class Json(_Once, JsonLoggerCallback):
    """Tune's result.json, with each round once."""

    file = "result.json"

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, object]) -> None:
        """Write the row, unless the file has it."""
        if self._is_new(trial, result):
            super().log_trial_result(iteration, trial, result)

    def _rows(self, path: Path) -> set[Row]:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {(row["run"], row["round"], bool(row.get("done"))) for row in rows}


class Csv(_Once, CSVLoggerCallback):
    """Tune's progress.csv, with each round once."""

    file = "progress.csv"

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, object]) -> None:
        """Write the row, unless the file has it."""
        if open_table(self, trial):
            self._keep_header(trial)
        if self._is_new(trial, result):
            super().log_trial_result(iteration, trial, result)

    def _keep_header(self, trial: Trial) -> None:
        """Keep the columns of a file that is continued: those of the next row may differ."""
        with Path(trial.local_path, self.file).open(encoding="utf-8", newline="") as file:
            if header := next(csv.reader(file), None):
                keep_columns(self, trial, header)

    def _rows(self, path: Path) -> set[Row]:
        with path.open(encoding="utf-8", newline="") as file:
            return {(row["run"], int(row["round"]), row.get("done") == "True") for row in csv.DictReader(file)}


class Board(TBXLoggerCallback):
    """Writes swept keys and final scores of each finished trial to TensorBoard's HPARAMS table.

    The curves of a trial are in its run folder already; Tune's default logger would write them a second time.
    """

    def log_trial_start(self, trial: Trial) -> None:
        """Writes nothing."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, object]) -> None:
        """Writes nothing."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Write the trial's swept keys and scores for TensorBoard's HPARAMS."""
        numbers = {key: value for key, value in trial.last_result.items() if isinstance(value, int | float)}
        scores = {key: value for key, value in numbers.items() if key.startswith(("seed/", "best/"))}
        scores |= {f"last/{key}": value for key, value in numbers.items() if key.startswith("dev/")}
        if failed or not scores:
            return
        values = trial.evaluated_params.items()
        swept = {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in values}
        with SummaryWriter(trial.local_path) as writer:
            for summary in hparams(swept, dict(sorted(scores.items()))):  # best/ sorts before last/ and seed/
                writer.file_writer.add_summary(summary)
            for key, value in scores.items():
                writer.add_scalar(key, value, numbers["round"])
