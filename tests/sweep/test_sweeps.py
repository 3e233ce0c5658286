"""End-to-end sweeps on a corpus of tones: trials equal the runs of `fedray run`, and kill -9 loses no row."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from ray import tune

import fedray
from fedray.sweep import main
from tests import speech
from tests.engine.runs import bits, rows
from tests.sweep.tones import SWEEP

pytestmark = pytest.mark.usefixtures("cluster")
ENGINE = ["engine.actors=1"]


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder. It holds tones.yaml, whose paths are relative to it."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "corpus").mkdir()
    speech.write_corpus(folder / "corpus", speakers=9)
    settings = speech.settings(Path("corpus"), engine={"lanes": 2})
    (folder / "tones.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(folder)
    yield folder


def table(trial: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (trial / "result.json").read_text().splitlines()]


def trials(experiment: Path) -> list[Path]:
    return sorted(path.parent for path in experiment.glob("*/params.json"))


@pytest.mark.long
def test_a_folder_with_a_sweep_is_not_overwritten(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "there").mkdir()
    (place / "there" / "sweep.json").write_text("{}")
    assert main(SWEEP, ["--out", "there"]) == 2
    assert "holds a sweep already: continue it with --resume" in capsys.readouterr().err
    assert main(SWEEP, ["--out", "nowhere", "--resume"]) == 2
    assert "holds no sweep to continue" in capsys.readouterr().err


@pytest.mark.nightly
def test_asha_waits_for_a_score(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds without a score neither end the sweep nor a trial. What is stopped early counts as ended."""
    sweep = replace(SWEEP, space={"algorithm.client.lr": tune.grid_search([1e-6, 0.2])}, metric="dev/cer")
    given = [*ENGINE, "rounds=6", "evaluation.every=2", "--scheduler", "asha", "--max-concurrent", "1"]
    assert main(sweep, given) == 0
    first, second = (table(trial) for trial in trials(place / "runs" / "tones"))
    assert len(first) == 6 and len(second) == 2
    assert "best dev/cer: lr=1e-06 with " in capsys.readouterr().out


def test_what_can_never_be_reserved_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SWEEP, ["engine.actors=8", "engine.cpus_per_client=1"]) == 2
    assert "engine.actors=8 with engine.cpus_per_client=1 needs 8 cores" in capsys.readouterr().err


@pytest.mark.nightly
def test_population_based_training_goes_on_from_the_better_half(place: Path) -> None:
    """The trial that learns nothing takes over the other's checkpoints, in new run folders."""
    space = {"algorithm.client.lr": tune.grid_search([1e-6, 0.2])}
    sweep = replace(SWEEP, space=space, metric="train/loss")
    assert main(sweep, [*ENGINE, "rounds=4", "--scheduler", "pbt", "--search", "grid"]) == 0
    runs = [
        sorted(path.name for path in trial.glob("run*") if path.is_dir()) for trial in trials(place / "runs" / "tones")
    ]
    assert any(len(names) > 1 for names in runs)
    for trial, names in zip(trials(place / "runs" / "tones"), runs, strict=True):
        newest = trial / names[-1]
        assert [row["round"] for row in rows(newest)] == list(range(1, 5))
        assert (newest / "results.json").exists()
        reported = [(row["run"], row["round"]) for row in table(trial)]
        assert len(set(reported)) == len(reported) and reported[-1] == (names[-1], 4)


@pytest.mark.nightly
def test_a_population_may_be_larger_than_the_cluster(place: Path) -> None:
    """Trials that PBT pauses leave their place to others: all train in turn."""
    space = {"algorithm.client.lr": tune.loguniform(1e-3, 0.3)}
    given = [*ENGINE, "rounds=5", "--scheduler", "pbt", "--num-samples", "3", "--max-concurrent", "1"]
    assert main(replace(SWEEP, space=space, metric="train/loss"), given) == 0
    found = trials(place / "runs" / "tones")
    assert len(found) == 3 and all(table(trial)[-1]["round"] == 5 for trial in found)
    began = [min(path.stat().st_mtime for path in trial.glob("run/config.yaml")) for trial in found]
    ended = [max(path.stat().st_mtime for path in trial.glob("run*/results.json")) for trial in found]
    assert max(began) < min(ended)


@pytest.mark.nightly
def test_ctrl_c_is_told_and_resumed(place: Path) -> None:
    command = [sys.executable, str(Path(__file__).parent / "tones.py"), "--max-concurrent", "1"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    sweep = subprocess.Popen([*command, "rounds=40"], env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 200
    while not list((place / "runs" / "tones").glob("00000*/run/metrics.jsonl")):
        assert time.monotonic() < until and sweep.poll() is None
        time.sleep(0.1)
    sweep.send_signal(signal.SIGINT)
    _, said = sweep.communicate(timeout=200)
    assert sweep.returncode == 130 and "Tuner.restore" not in said
    assert "tones: interrupted, 2 of 2 trials did not end: the same command with --resume continues" in said
    again = subprocess.run([*command, "--resume"], env=environment, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr[-3000:]
    assert [len(table(trial)) for trial in trials(place / "runs" / "tones")] == [40, 40]


@pytest.mark.nightly
def test_kill_everything_then_resume(place: Path) -> None:
    """Finished trials stay, others resume, no row appears twice, and a trial equals a run of `fedray run`."""
    command = [sys.executable, str(Path(__file__).parent / "tones.py"), "--max-concurrent", "1"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    experiment = place / "runs" / "tones"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    sweep = subprocess.Popen([*command, "rounds=12"], env=environment, **quiet)
    first = experiment / "00000_lr=0.05"
    until = time.monotonic() + 200
    while not ((first / "run" / "results.json").exists() and list(experiment.glob("00001*/run/metrics.jsonl"))):
        assert time.monotonic() < until and sweep.poll() is None
        time.sleep(0.1)
    for process in [psutil.Process(sweep.pid), *psutil.Process(sweep.pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    sweep.wait()
    finished = (first / "run" / "results.json").stat().st_mtime_ns
    again = subprocess.run([*command, "--resume"], env=environment, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr[-3000:]
    assert (first / "run" / "results.json").stat().st_mtime_ns == finished
    assert [trial.name for trial in trials(experiment)] == ["00000_lr=0.05", "00001_lr=0.2"]
    for trial in trials(experiment):
        assert (
            [row["round"] for row in table(trial)]
            == [row["round"] for row in rows(trial / "run")]
            == list(range(1, 13))
        )
        assert (
            table(trial)[-1]["best/test/wer"]
            == json.loads((trial / "run" / "results.json").read_text())["best"]["test/wer"]
        )
    assert (experiment / "report.html").exists() and not (experiment / ".prepare").exists()
    alone = fedray.run("tones.yaml", ["algorithm.client.lr=0.2", "rounds=12"], out="alone")
    assert bits(alone.folder, 12) == bits(experiment / "00001_lr=0.2" / "run", 12)
    assert rows(alone.folder) == rows(experiment / "00001_lr=0.2" / "run")
