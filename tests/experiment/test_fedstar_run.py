"""End-to-end runs of FedSTAR from pre-trained weights, on clients of uneven size that have few labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.experiment.pretraining import pretrain
from fedray.runs.folder import RunFolder
from tests import keywords
from tests.engine.runs import same_on_more_actors_and_resumed

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.long]
ROUNDS = 3


def settings(clips: Path, weights: Path) -> dict[str, Any]:
    chosen = keywords.settings(
        clips,
        rounds=ROUNDS,
        task={"kind": "classification", "window": 0.2},
        model={"kind": "audio_cnn", "init": str(weights)},
        algorithm={
            "kind": "fedstar",
            "threshold": {"first": 0.26, "last": 0.3},
            "client": {"optimizer": "adam", "lr": 0.01, "batch": 4},
        },
        cohort={"fraction": 0.75},
    )
    chosen["data"] |= {"clients": {"by": "uneven", "count": 4}, "labelled": {"share": 0.25, "at_least": 1}}
    return chosen


@pytest.fixture(scope="module")
def weights(clips: Path) -> Path:
    same = {key: value for key, value in keywords.settings(clips).items() if key in ("data", "features")}
    contrastive = {"epochs": 2, "batch": 16, "window": 0.2, "units": 8}
    return pretrain(
        {**same, "model": {"kind": "audio_cnn"}, "contrastive": contrastive}, out=clips / "pretrained"
    ).weights


@pytest.fixture(scope="module")
def straight(clips: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(settings(clips, weights), out=tmp_path_factory.mktemp("straight") / "run")


def test_each_round_says_what_was_kept_and_how_much_of_it_was_right(straight: fedray.Result) -> None:
    played = RunFolder(straight.folder).rows("metrics.jsonl")
    assert len(played) == ROUNDS and all(row["clients/cohort"] == 3 for row in played)
    assert all(0 < row["train/labels_kept"] <= 100 and 0 <= row["train/label_accuracy"] <= 100 for row in played)
    assert 0.26 == played[0]["threshold"] < played[1]["threshold"] < played[2]["threshold"] < 0.3


@pytest.mark.nightly
def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: fedray.Result, clips: Path, weights: Path, tmp_path: Path
) -> None:
    """A run of full length is cut after round 2, since the threshold's schedule depends on the number of rounds."""
    same_on_more_actors_and_resumed(settings(clips, weights), straight.folder, tmp_path / "two")
