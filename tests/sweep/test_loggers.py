"""What TensorBoard finds of a sweep's trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from fedray.sweep.loggers import Board


def ended(folder: Path, result: dict[str, Any], failed: bool = False) -> list[Any]:
    """The values that a trial leaves in its folder."""
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
    """Records of (length, its checksum, data, checksum)."""
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
