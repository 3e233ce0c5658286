"""The best round by dev, and runs that end because the dev score stops improving."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedray.core.metrics import Metrics
from fedray.core.types import Evaluation, Received
from fedray.engine.settings import EvaluationSettings
from fedray.runs.folder import RunFolder
from tests.engine import toys

pytestmark = pytest.mark.usefixtures("cluster")
AWAY = toys.ToySettings(lr=-0.5)  # further from the target in every round, so that the first is the best


class Scripted(toys.Toy):
    """Dev scores 5, 7, 7, 3, 3 after rounds 1 to 5."""

    def evaluate(self, data: np.ndarray, received: Received, final: bool) -> Evaluation:
        return Evaluation(Metrics(distance=((9, 5, 7, 7, 3, 3)[received.round], 1)), [])


class Rising(Scripted):
    best = ("dev/distance", "max")


@pytest.mark.parametrize(("algorithm", "best"), [(Scripted, 4), (Rising, 2)])
def test_of_equal_rounds_the_first_is_the_best(tmp_path: Path, algorithm: type[toys.Toy], best: int) -> None:
    results = toys.play(tmp_path, rounds=5, algorithm=algorithm)
    assert results["best"]["round"] == best


@pytest.mark.long
def test_a_run_ends_when_patience_does(tmp_path: Path) -> None:
    results = toys.play(tmp_path, rounds=6, settings=AWAY, evaluation={"patience": 2}, checkpoint_every=5)
    assert results["rounds"] == 3 and results["best"]["round"] == 1
    folder = RunFolder(tmp_path)
    assert [row["round"] for row in folder.rows("metrics.jsonl")] == [1, 2, 3]
    assert max(folder.saved_rounds()) == 3, "the last round is kept, whatever checkpoint_every says"
    again = toys.play(tmp_path, rounds=6, settings=AWAY, evaluation={"patience": 2}, checkpoint_every=5)
    assert again["rounds"] == 3 and again["best"] == json.loads((tmp_path / "results.json").read_text())["best"]


@pytest.mark.nightly
def test_with_more_patience_it_goes_on(tmp_path: Path) -> None:
    toys.play(tmp_path, rounds=5, settings=AWAY, evaluation={"patience": 2})
    assert toys.play(tmp_path, rounds=5, settings=AWAY, evaluation={"patience": 3})["rounds"] == 4
    straight = toys.play(tmp_path / "straight", rounds=5, settings=AWAY, evaluation={"patience": 3})
    assert (
        RunFolder(tmp_path).load(4).state.params.tobytes()
        == RunFolder(tmp_path / "straight").load(4).state.params.tobytes()
    )
    assert straight["rounds"] == 4


def test_patience_is_counted_in_scored_rounds() -> None:
    with pytest.raises(ValueError, match=r"patience must be at least evaluation.every \(4\)"):
        EvaluationSettings(every=4, patience=2)
