"""The end of a run has two models in memory: the last one, and the one that it scores."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.types import Evaluation, ServerState
from fedray.engine.driver.ending import Ending
from fedray.engine.round.rounds import Rounds
from fedray.runs.folder import Progress, RunFolder


class Folder(RunFolder):
    """A run folder that counts how many of the models that it has loaded are still in memory."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.loaded: list[Any] = []
        self.left: list[int] = []

    def load(self, round: int) -> Progress:
        self.left.append(sum(one() is not None for one in self.loaded))
        params = np.full(3, round, np.float32)
        self.loaded.append(weakref.ref(params))
        return Progress(ServerState(params), round)


class Scoring:
    """Rounds that keep the model scored last, as their broadcast does."""

    options: Iterable[Any] = ()

    def __init__(self, program: Any, plan: Any) -> None:
        self.noted: list[str] = []
        self.program, self.plan, self.algorithm = program, plan, program.algorithm
        self.kept: ServerState | None = None

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self.noted.append(data.get("text", ""))

    def forget(self) -> None:
        self.kept = None

    def evaluate(self, state: ServerState, round: int, splits: list[str], final: bool) -> dict[str, Evaluation]:
        self.kept = state
        return {split: Evaluation(Metrics(loss=(float(state.params[0]), 1)), [{"id": split}]) for split in splits}


def end(folder: Folder, export: Any) -> tuple[dict[str, Any], list[str]]:
    """End a run of nine rounds whose fifth is the best; returns results.json and the run's messages."""
    algorithm = SimpleNamespace(overrides=lambda name: False, signatures={}, export=export, sends_updates=True)
    program = SimpleNamespace(algorithm=algorithm, data=SimpleNamespace(splits=lambda: ["dev", "test"]))
    plan = SimpleNamespace(evaluation=SimpleNamespace(personal_final=False, best=None))
    progress = Progress(ServerState(np.full(3, 9, np.float32)), 9, best={"round": 5, "value": 1.0})
    progress.totals = {name: 0 for name in ("failed", "killed", "up_bytes", "down_bytes", "seconds")}
    rounds = Scoring(program, plan)
    return Ending("toy", folder, cast(Rounds, rounds), cast(Any, None)).end(progress), rounds.noted


def test_a_model_is_freed_before_the_next_is_loaded(tmp_path: Path) -> None:
    exported: list[float] = []
    folder = Folder(tmp_path / "run")
    results, _ = end(folder, lambda state, path: exported.append(state.params[0]))
    assert folder.left == [0, 0, 0] and exported == [5.0]
    assert results["seed"] == {"round": 0, "loss": 0.0} and results["best"] == {"round": 5, "loss": 5.0}
    assert len((tmp_path / "run" / "predictions.tsv").read_text().splitlines()) == 1 + 2 * 2


def test_an_onnx_file_of_the_model_before_is_removed(tmp_path: Path) -> None:
    """A file of the user's stays."""
    model = tmp_path / "run" / "model"
    model.mkdir(parents=True)
    for name in ("model.onnx", "stream.py", "mine.txt"):
        (model / name).write_text("of the model before")

    def export(state: ServerState, path: Path) -> None:
        assert not (model / "model.onnx").exists()
        path.mkdir()
        (path / "model.pt").touch()

    _, noted = end(Folder(tmp_path / "run"), export)
    assert {path.name for path in model.iterdir()} == {"model.pt", "mine.txt"}
    assert any("model/model.onnx and model/stream.py held the model before, and are removed" in one for one in noted)
    _, noted = end(Folder(tmp_path / "run"), export)
    assert not any("removed" in one for one in noted)
