"""MLflow and Weights & Biases record a run in full and a resumed run as one run, and neither harms a run."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from fedray.config.merging import dotted
from fedray.engine.telemetry import trackers, tracking
from fedray.engine.telemetry.trackers import Card, MLflow, WandB
from fedray.engine.telemetry.tracking import Tracking, flat
from fedray.runs.folder import RunFolder
from tests.engine import in_process, toys
from tests.engine.runs import bits, rows

CARD = Card("toy", {"algorithm.kind": "toy", "rounds": 4, "cohort.of": [1, 2], "a|b": None}, {"seed": "7"})
# MLflow itself warns about SQLAlchemy.
pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.filterwarnings("ignore")]


def play(folder: Path, tracker: Any, rounds: int = 4) -> dict[str, Any]:
    mine = toys.assignment(folder, rounds=rounds, actors=2)
    texts = {"config.yaml": f"rounds: {rounds}\n"}
    return in_process.run(replace(mine, tracker=tracker.checked(folder.parent), card=CARD, texts=texts))


def scalars(folder: Path) -> dict[int, dict[str, float]]:
    """The values that a tracker receives for each round."""
    table = RunFolder(folder).rows("metrics.jsonl")
    return {row.pop("round"): tracking.finite(row) for row in table}


class TestMLflow:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")

    def only(self, server: Any) -> Any:
        (run,) = server.search_runs([server.get_experiment_by_name("fedray").experiment_id])
        return run

    def history(self, server: Any, run: str, key: str) -> list[tuple[int, float]]:
        return sorted((metric.step, metric.value) for metric in server.get_metric_history(run, key))

    @pytest.mark.nightly
    def test_a_run_is_there_with_all_it_has_and_the_bits_are_the_same(
        self, straight: Path, tmp_path: Path, server: Any
    ) -> None:
        results = play(tmp_path / "run", MLflow(uri="sqlite:///mlflow.db"))
        assert rows(tmp_path / "run") == rows(straight) and bits(tmp_path / "run", 4) == bits(straight, 4)
        run = self.only(server)
        assert (run.info.run_name, run.info.status) == ("toy", "FINISHED")
        assert run.data.params == {"algorithm.kind": "toy", "rounds": "4", "cohort.of": "[1, 2]", "a_b": "None"}
        assert run.data.tags["seed"] == "7"
        sent = scalars(tmp_path / "run")
        for key in sent[1]:
            found = [(step, value) for step, value in self.history(server, run.info.run_id, key) if step]
            assert found == [(step, sent[step][key]) for step in sent if key in sent[step]], key
        assert run.data.metrics["best/test/distance"] == results["best"]["test/distance"]
        kept = {file.path for file in server.list_artifacts(run.info.run_id)}
        assert kept == {"config.yaml", "results.json"}
        assert (tmp_path / "mlartifacts").is_dir(), "files lie beside the database"

    @pytest.mark.long
    def test_a_resumed_run_is_one_run(self, tmp_path: Path, server: Any) -> None:
        play(tmp_path / "run", MLflow(uri="sqlite:///mlflow.db"), rounds=2)
        first = json.loads((tmp_path / "run" / "tracker.json").read_text())
        play(tmp_path / "run", MLflow(uri="sqlite:///mlflow.db"))
        assert json.loads((tmp_path / "run" / "tracker.json").read_text()) == first
        run = self.only(server)
        assert run.info.run_id == first["id"] and run.info.status == "FINISHED"
        steps = [step for step, _ in self.history(server, first["id"], "dev/distance")]
        assert steps == [0, 1, 2, 3, 4]

    @pytest.mark.long
    def test_a_tracker_that_fails_is_counted_and_its_rows_follow(
        self, tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        mine = Tracking(MLflow().checked(tmp_path), CARD, RunFolder(tmp_path / "run"), said.append)
        (tmp_path / "run").mkdir()
        mine.begin()
        assert mine.id() is not None
        mine.log({"loss": 3.0}, 1)
        mine.id()
        real = type(server).log_batch
        with monkeypatch.context() as broken:
            broken.setattr(type(server), "log_batch", lambda *_, **__: 1 / 0)
            for step in (2, 3):
                mine.log({"loss": 1.0 / step}, step)
            mine.id()
        assert type(server).log_batch is real
        assert len(said) == 1 and said[0].startswith(
            "tracker mlflow: round 2 could not be written, the run continues: Zero"
        )
        mine.log({"loss": 0.25}, 4)
        mine.close("finished")
        assert said[1:] == ["tracker mlflow failed 2 times; no round is missing"]
        assert [step for step, _ in self.history(server, self.only(server).info.run_id, "loss")] == [1, 2, 3, 4]

    @pytest.mark.long
    def test_rows_that_never_arrive_are_named(self, tmp_path: Path) -> None:
        said: list[str] = []
        nowhere = MLflow(uri=f"sqlite:///{tmp_path}/no/folder/mlflow.db")
        (tmp_path / "no").write_text("a file, where a folder would have to be")
        mine = Tracking(nowhere, CARD, RunFolder(tmp_path / "run"), said.append)
        mine.begin()
        for step in (1, 2):
            mine.log({"loss": 1.0}, step)
        mine.close("failed")
        assert said[0].startswith("tracker mlflow: the beginning could not be written, the run continues: ")
        assert said[1:] == ["tracker mlflow failed 4 times; rounds 1, 2 are missing there (metrics.jsonl has them)"]

    def test_a_tracker_that_does_not_answer_is_left_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tracking, "CLOSE_SECONDS", 0.2)
        monkeypatch.setattr(MLflow, "open", lambda *_: time.sleep(3))
        said: list[str] = []
        mine = Tracking(MLflow().checked(tmp_path), CARD, RunFolder(tmp_path), said.append)
        mine.begin()
        mine.close("finished")
        assert said == ["tracker mlflow has not answered for 0.2 s: the run ends without it"]

    def test_settings_that_cannot_be_used_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert MLflow(uri="sqlite:///here.db").checked(tmp_path).uri == f"sqlite:///{tmp_path}/here.db"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
        assert MLflow().checked(tmp_path).uri == "http://tracker:5000"
        assert MLflow(uri="databricks").checked(tmp_path).uri == "databricks"
        with pytest.raises(ValueError, match="holds a password"):
            MLflow(uri="http://me:secret@tracker").checked(tmp_path)
        with pytest.raises(ValueError, match="is a folder, which MLflow 3 does not support"):
            MLflow(uri="mlruns").checked(tmp_path)
        monkeypatch.setitem(sys.modules, "mlflow", None)
        with pytest.raises(ValueError, match=r'tracker.kind mlflow needs mlflow: pip install "fedray\[mlflow\]"'):
            MLflow().checked(tmp_path)


class TestWandB:
    def records(self, folder: Path) -> Iterator[Any]:
        """The records of all parts of an offline run. Each part is a log in blocks of 32 KiB, after 7 bytes."""
        from wandb.proto.wandb_internal_pb2 import Record

        for path in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")):
            data, at, text = path.read_bytes(), 7, b""
            while at + 7 <= len(data):
                if 32768 - at % 32768 < 7:
                    at += 32768 - at % 32768
                size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
                text += data[at + 7 : at + 7 + size]
                at += 7 + size
                if kind in (1, 4):  # a whole record, or the last piece of one
                    yield Record.FromString(text)
                    text = b""

    @pytest.mark.nightly
    def test_an_offline_run_that_was_resumed(self, straight: Path, tmp_path: Path) -> None:
        play(tmp_path / "run", WandB(), rounds=2)
        first = json.loads((tmp_path / "run" / "tracker.json").read_text())
        results = play(tmp_path / "run", WandB())
        assert json.loads((tmp_path / "run" / "tracker.json").read_text()) == first
        assert rows(tmp_path / "run") == rows(straight) and bits(tmp_path / "run", 4) == bits(straight, 4)
        found = list(self.records(tmp_path / "run"))
        begun = [record.run for record in found if record.WhichOneof("record_type") == "run"]
        assert {run.run_id for run in begun} == {first["id"]} and {run.display_name for run in begun} == {"toy"}
        assert all(list(run.tags) == ["seed=7"] for run in begun)
        config = {item.key: json.loads(item.value_json) for item in begun[0].config.update}
        assert config["algorithm.kind"] == "toy" and config["cohort.of"] == [1, 2]
        history = [record.history for record in found if record.WhichOneof("record_type") == "history"]
        sent = scalars(tmp_path / "run")
        seen: dict[int, dict[str, float]] = {}
        for row in history:
            values = {(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in row.item}
            seen[values["_step"]] = {key: value for key, value in values.items() if not key.startswith("_")}
        assert {step: seen[step] for step in sent} == sent
        summary = {
            item.key or ".".join(item.nested_key): json.loads(item.value_json)
            for record in found
            for item in record.summary.update
        }
        assert summary["best/test/distance"] == results["best"]["test/distance"] and summary["status"] == "finished"
        files = {path.name for path in (tmp_path / "run" / "wandb").glob("offline-run-*/files/*")}
        assert {"config.yaml", "results.json"} <= files

    def test_settings_that_cannot_be_used_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ValueError, match="mode must be offline or online"):
            WandB(mode="dryrun")
        monkeypatch.setitem(sys.modules, "wandb", None)
        with pytest.raises(ValueError, match=r'tracker.kind wandb needs wandb: pip install "fedray\[wandb\]"'):
            WandB().checked(tmp_path)


def test_a_row_that_is_refused_keeps_no_results(tmp_path: Path) -> None:
    ended: list[Any] = []

    class Refusing:
        id = "1"

        def log(self, values: dict[str, float], step: int) -> None:
            raise ValueError("a number that it does not take")

        def close(self, status: str, results: dict[str, float], files: Path) -> None:
            ended.extend([status, results, sorted(path.name for path in files.iterdir())])

    said: list[str] = []
    tracking = Tracking(MLflow(), Card("toy"), RunFolder(tmp_path), said.append)
    tracking._tracker = SimpleNamespace(open=lambda *_: Refusing())  # type: ignore[assignment]
    (tmp_path / "config.yaml").write_text("name: toy\n")
    tracking.begin()
    tracking.log({"train/loss": 1.0}, 1)
    tracking.close("finished", {"best": {"test/wer": 7.0}})
    assert ended == ["finished", {"best/test/wer": 7.0}, ["config.yaml"]]
    assert said[-1] == "tracker mlflow failed 2 times; rounds 1 are missing there (metrics.jsonl has them)"


def test_names_are_flat() -> None:
    assert dotted({"a": {"b": 1, "c": {}}, "d": [2]}) == {"a.b": 1, "a.c": {}, "d": [2]}
    results = {"name": "x", "rounds": 2, "best": {"test/wer": 1.0, "dev/wer": float("nan")}}
    assert flat(results) == {"results/rounds": 2, "best/test/wer": 1.0}


@pytest.mark.parametrize("kind", ["mlflow", "wandb"])
def test_a_server_that_does_not_answer_is_named_at_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("WANDB_BASE_URL", address)
        tracker = MLflow(uri=f"{address}/api") if kind == "mlflow" else WandB(mode="online")
        assert trackers.silent(tracker) is None
    for quiet in (WandB(), MLflow(uri="sqlite:////there/mlflow.db"), MLflow(uri="databricks"), trackers.Nothing()):
        assert trackers.silent(quiet) is None
    Tracking(tracker, CARD, RunFolder(tmp_path), told.put).knock()
    assert told.get(timeout=30) == (
        f"tracker {kind}: {address} does not answer (Connection refused): the run continues, and tries again after "
        "each round"
    )
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    assert trackers.silent(tracker) is None, "a proxy knows the way"
