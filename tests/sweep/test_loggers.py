"""What the loggers write about a sweep's trials: TensorBoard, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from fedray.sweep.loggers import Board, Csv, Json


@dataclass(frozen=True)
class Placed:
    """The part of a Tune trial that the loggers use."""

    local_path: str
    config: tuple[()] = ()
    checkpoint: None = None  # no checkpoint to restore

    def init_local_path(self) -> None:
        """Do nothing: the folder exists."""


def ended(folder: Path, result: dict[str, Any], failed: bool = False) -> list[Any]:
    """Log a trial that ends with this result, and return the values in its event files."""
    swept = {"algorithm.client.lr": 0.2, "engine.actors": "auto", "cohort.of": [1, 2]}
    trial, board = SimpleNamespace(local_path=str(folder), last_result=result, evaluated_params=swept), Board()
    board.log_trial_start(trial)  # type: ignore[arg-type]
    board.log_trial_result(1, trial, result)  # type: ignore[arg-type]
    board.log_trial_end(trial, failed)  # type: ignore[arg-type]
    return [
        value
        for path in folder.glob("events.out.tfevents.*")
        for event in events(path)
        for value in event.summary.value
    ]


def events(path: Path) -> Iterator[Event]:
    """The events of a file, whose records are (length, its checksum, data, checksum)."""
    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        yield Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_a_trial_that_ended_has_its_keys_and_scores_and_no_curves(tmp_path: Path) -> None:
    result = {
        "run": "run",
        "round": 4,
        "dev/wer": 30.0,
        "train/loss": 1.5,
        "seed/test/wer": 50.0,
        "best/test/wer": 31.0,
        "done": True,
        "config": {},
    }
    values = ended(tmp_path, result)
    scores = {value.tag: value.simple_value for value in values if not value.tag.startswith("_hparams_/")}
    assert scores == {"seed/test/wer": 50.0, "best/test/wer": 31.0, "last/dev/wer": 30.0}
    (start,) = [value for value in values if value.tag == "_hparams_/session_start_info"]
    keys = HParamsPluginData.FromString(start.metadata.plugin_data.content).session_start_info.hparams
    assert keys["algorithm.client.lr"].number_value == 0.2
    assert {keys["engine.actors"].string_value, keys["cohort.of"].string_value} == {"auto", "[1, 2]"}


def test_a_trial_that_failed_or_never_came_to_a_round_has_no_line(tmp_path: Path) -> None:
    assert ended(tmp_path, {"round": 4, "dev/wer": 30.0}, failed=True) == []
    assert ended(tmp_path, {}) == []


def test_a_table_that_goes_on_keeps_its_columns_and_ends_with_the_scores(tmp_path: Path) -> None:
    """A resumed trial's first row may lack columns of the file; the last round is repeated with the run's scores."""
    rows: list[dict[str, Any]] = [
        {"run": "run", "round": 1, "dev/wer": 30.0, "done": False},
        {"run": "run", "round": 2, "train/loss": 0.5, "done": False},
        {"run": "run", "round": 2, "dev/wer": 20.0, "best/test/wer": 21.0, "done": True},
    ]
    trial = Placed(str(tmp_path))
    for part in (rows[:1], rows):  # a resumed trial reports its first round again
        csv_file, json_file = Csv(), Json()
        for row in part:
            csv_file.log_trial_result(1, trial, row)  # type: ignore[arg-type]
            json_file.log_trial_start(trial)  # type: ignore[arg-type]
            json_file.log_trial_result(1, trial, row)  # type: ignore[arg-type]
        csv_file.log_trial_end(trial)  # type: ignore[arg-type]
        json_file.log_trial_end(trial)  # type: ignore[arg-type]
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    assert lines == ["run,round,dev/wer,done", "run,1,30.0,False", "run,2,,False", "run,2,20.0,True"]
    said = [json.loads(line) for line in (tmp_path / "result.json").read_text().splitlines()]
    assert [(row["round"], row.get("best/test/wer")) for row in said] == [(1, None), (2, None), (2, 21.0)]
