"""The best round by dev, and runs that end because the dev score stops improving."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.metrics import Metrics
from fedray.core.types import NOTHING, Change, Client, Evaluation, Received, RunError, ServerState, Update
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


class OnOwn(toys.ToyData):
    """Clients hold data out: the split "own"."""

    def splits(self) -> list[str]:
        return ["dev", "own"]


class Two(Scripted):
    """Dev is best after round 4, F1 after round 3."""

    def evaluate(self, data: np.ndarray, received: Received, final: bool) -> Evaluation:
        f1 = (0, 1, 2, 3, 2, 1)[received.round]
        return Evaluation(super().evaluate(data, received, final).metrics + Metrics(macro_f1=(f1, 1)), [])


@pytest.mark.parametrize("best", ["dev/macro_f1", "own/macro_f1"])
def test_another_score_may_choose_the_round(tmp_path: Path, best: str) -> None:
    results = toys.play(tmp_path, rounds=5, algorithm=Two, data=OnOwn(12), evaluation={"best": best})
    assert results["best"]["round"] == 3 and results["chosen_by"] == best
    (row,) = [row for row in RunFolder(tmp_path).rows("metrics.jsonl") if row["round"] == 3]
    assert ("own/macro_f1" in row) == (best == "own/macro_f1") and row["dev/macro_f1"] == 3


def test_a_score_that_no_round_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="evaluation.best=dev/f1 is no score of a round: choose from dev/distance"):
        toys.play(tmp_path, rounds=1, evaluation={"best": "dev/f1"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"best": "test/accuracy"}, "such as dev/macro_f1, .* not 'test/accuracy': test sets are scored once"),
        ({"best": "personal/own_macro_f1"}, "best=personal/own_macro_f1 needs personal_every"),
    ],
)
def test_what_cannot_choose_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EvaluationSettings(**given)


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
    with pytest.raises(ValueError, match=r"patience must be at least evaluation.personal_every \(10\): personal/own_"):
        EvaluationSettings(best="personal/own_accuracy", personal_every=10, patience=5)


class Silent(toys.Toy):
    """Clients send nothing, and no round changes the model. Final scores are counted in a file."""

    sends_updates = False

    def client_update(self, client: Client, received: Received) -> Update:
        return replace(super().client_update(client, received), delta=NOTHING)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return state

    def evaluate(self, data: np.ndarray, received: Received, final: bool) -> Evaluation:
        if final:
            with (Path(self.settings.folder) / "finals").open("a") as file:
                file.write("x")
        return super().evaluate(data, received, final)


def test_a_model_that_no_round_changes_is_scored_once(tmp_path: Path) -> None:
    (tmp_path / "counted").mkdir()
    settings = toys.ToySettings(folder=str(tmp_path / "counted"))
    results = toys.play(tmp_path / "run", rounds=1, algorithm=Silent, settings=settings)
    assert (tmp_path / "counted" / "finals").read_text() == "xxxxxx", "three shards of each split"
    assert results["seed"]["test/distance"] == results["best"]["test/distance"]
    models = {line.split("\t")[0] for line in RunFolder(tmp_path / "run").read_text("predictions.tsv").splitlines()}
    assert {"seed", "best"} <= models
