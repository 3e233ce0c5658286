"""A sweep in MLflow: its trials are runs nested under the run of the sweep, which holds the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fedray.sweep import main
from tests import speech
from tests.sweep.tones import SWEEP


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")  # MLflow's own warnings about SQLAlchemy
def test_trials_are_nested_under_their_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    (tmp_path / "corpus").mkdir()
    speech.write_corpus(tmp_path / "corpus", speakers=9)
    settings = speech.settings(Path("corpus"), engine={"lanes": 2}, tracker={"kind": "mlflow", "experiment": "tests"})
    (tmp_path / "tones.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///here.db")  # the trials' processes do not see this
    assert main(SWEEP, ["engine.actors=1", "rounds=2"]) == 0

    server = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/here.db")
    runs = server.search_runs([server.get_experiment_by_name("tests").experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"}
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert parent.info.run_id == json.loads((tmp_path / "runs" / "tones" / "tracker.json").read_text())["id"]
    assert {file.path for file in server.list_artifacts(parent.info.run_id)} == {"report.html", "sweep.json"}
    trials = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in trials} == {parent.info.run_id}
    assert {run.data.tags["sweep"] for run in trials} == {"tones"}
    assert {run.data.params["algorithm.client.lr"] for run in trials} == {"0.05", "0.2"}
    assert all("best/test/wer" in run.data.metrics for run in trials)
