"""End-to-end runs: what they write, what a second run finds in the cache, and that kill -9 changes no bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from filelock import FileLock

import fedray
from fedray import cli
from fedray.runs.folder import RunFolder
from tests import speech
from tests.engine.runs import bits, cut_short, rows

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None) -> fedray.Result:
    return fedray.run(speech.settings(corpus), out=tmp_path_factory.mktemp("straight") / "run")


def test_what_a_run_leaves_behind(straight: fedray.Result) -> None:
    folder = straight.folder
    files = (
        "config.yaml",
        "run.json",
        "metrics.jsonl",
        "results.json",
        "failures.jsonl",
        "clients.parquet",
        "predictions.tsv",
    )
    assert not [name for name in files if not (folder / name).exists()]
    table = RunFolder(folder).rows("metrics.jsonl")
    keys = (
        "round train/loss dev/wer clients/ok clients/failed traffic/up_bytes traffic/down_bytes lr/client time/round_s"
    )
    assert set(keys.split()) <= set(table[0]) and len(table) == 3
    results = json.loads((folder / "results.json").read_text())
    assert results == straight.results
    needed = {"dev/wer", "test/wer", "test/wer_lm"}
    assert needed <= set(results["seed"]) and needed | {"round"} <= set(results["best"])
    assert {"traffic/total_bytes", "time/total_s"} <= set(results)
    shown = json.loads((folder / "hypotheses.json").read_text())
    assert (shown["initial"]["round"], shown["newest"]["round"]) == (0, 3) and shown["newest"]["rows"]
    assert shown["newest"]["scores"]["dev/wer"] == table[-1]["dev/wer"]
    model = {path.name for path in (folder / "model").iterdir()}
    assert {"model.pt", "hyperparams.yaml", "tokens.txt", "example.py"} <= model


@pytest.mark.long
def test_the_saved_model_transcribes_without_fedray(straight: fedray.Result, corpus: Path, tmp_path: Path) -> None:
    found = straight.predictions()
    scored = found[found.model == "best"].iloc[0]
    wav = corpus / scored.utterance
    (tmp_path / "fedray.py").write_text("raise ImportError('fedray is not here')\n")
    command = [sys.executable, "-W", "ignore", str(straight.folder / "model" / "example.py"), str(wav)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == scored.hypothesis


def test_two_runs_and_any_number_of_actors_give_the_same_bits(
    straight: fedray.Result, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    """The second run finds features, seed model and labels in the cache, and writes nothing there."""

    def cached() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"}

    before = cached()
    assert {"features", "init", "prepared"} <= {path.relative_to(cache).parts[0] for path in before}
    engine = {"lanes": 2, "actors": 2, "cpus_per_client": 0.5}
    again = fedray.run(speech.settings(corpus, engine=engine), out=tmp_path / "run")
    assert cached() == before
    assert rows(again.folder) == rows(straight.folder)
    assert bits(again.folder, 3) == bits(straight.folder, 3)


@pytest.mark.long
def test_two_actors_of_ray_give_the_same_bits(
    straight: fedray.Result, corpus: Path, tmp_path: Path, on_ray: None
) -> None:
    engine = {"lanes": 2, "actors": 2, "cpus_per_client": 0.5}
    again = fedray.run(speech.settings(corpus, engine=engine), out=tmp_path / "run")
    assert rows(again.folder) == rows(straight.folder)
    assert bits(again.folder, 3) == bits(straight.folder, 3)


@pytest.mark.long
def test_kill_everything_then_resume(straight: fedray.Result, corpus: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(speech.settings(corpus)))
    folder = tmp_path / "run"
    environment = {**os.environ, "RAY_ADDRESS": ""}
    command = [sys.executable, "-m", "fedray.cli", "run", str(config), "--out", str(folder)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(RunFolder(folder).rows("metrics.jsonl") if folder.exists() else []) < 1:
        assert process.poll() is None and time.monotonic() < deadline, "the run did not get to its first round"
        time.sleep(0.05)
    family = [process, *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        if psutil.pid_exists(member.pid):
            os.kill(member.pid, signal.SIGKILL)
    process.wait()
    with FileLock(folder / ".lock", timeout=60):
        pass  # a killed driver keeps the lock until the kernel has freed its memory
    assert not (folder / "results.json").exists(), "it was over before it was killed: the test tests nothing"
    resumed = fedray.resume(folder)
    assert rows(resumed.folder) == rows(straight.folder)
    assert bits(resumed.folder, 3) == bits(straight.folder, 3)
    scores = {k: v for k, v in resumed.results.items() if not k.startswith("time/")}
    assert scores == {k: v for k, v in straight.results.items() if not k.startswith("time/")}


@pytest.mark.nightly
def test_central_training_goes_on_bit_for_bit(corpus: Path, tmp_path: Path) -> None:
    """The optimiser's moments and the position in the epoch are part of the client's state."""
    base = speech.settings(corpus, cohort={"size": 1})
    base["data"] = {**base["data"], "clients": {"by": "pooled"}}
    base["algorithm"] = {
        "kind": "sl",
        "utterances": 10,
        "adamw": {"warmup": 2, "batch": 4},
        "pretrain": base["algorithm"]["pretrain"],
    }
    straight = fedray.run(base, out=tmp_path / "straight")
    cut_short(shutil.copytree(straight.folder, tmp_path / "cut"), 3)
    resumed = fedray.resume(tmp_path / "cut")
    assert rows(resumed.folder) == rows(straight.folder) and bits(resumed.folder, 3) == bits(straight.folder, 3)
    assert [row["clients/ok"] for row in rows(straight.folder)] == [1, 1, 1]


def test_the_results_of_a_finished_run_survive_a_refused_resume(straight: fedray.Result, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(straight.folder, run)
    written = (run / "results.json").stat().st_mtime_ns
    again = fedray.resume(run)
    assert again.results == straight.results and (run / "results.json").stat().st_mtime_ns == written
    (newest,) = sorted(run.glob("checkpoints/*/server.pt"))[-1:]
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"server\.pt: is missing or has changed since it was written"):
        fedray.resume(run, ["rounds=99"], accept_changes=True)
    assert (run / "results.json").stat().st_mtime_ns == written
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ValueError, match="has finished rounds but no checkpoint, so it would begin again: restore"):
        fedray.resume(run)
    assert (run / "results.json").stat().st_mtime_ns == written


def test_resume_refuses_another_run(straight: fedray.Result, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"algorithm.alpha cannot be changed on resume.*these can: rounds, data.root, engine.actors"
    ):
        fedray.resume(straight.folder, ["algorithm.alpha=0.1"])
    with pytest.raises(ValueError, match=r"^command line: rounds=1, but .* has \d+ already: ask for \d+ or more$"):
        fedray.resume(straight.folder, ["rounds=1"])
    with pytest.raises(ValueError, match="not a run folder"):
        fedray.resume(tmp_path)
    with pytest.raises(ValueError, match="holds a run already"):
        fedray.run({**yaml.safe_load((straight.folder / "config.yaml").read_text())}, out=straight.folder)


TINY = """
from dataclasses import dataclass
from torch import nn
from fedray.models import MODELS

@dataclass(frozen=True)
class TinySettings:
    width: int = 16
    decoder_layers: int = 0
    init: str | None = None

class Tiny(nn.Module):
    Settings = TinySettings
    def __init__(self, settings, bins, vocabulary):
        super().__init__()
        self.rnn, self.out = nn.GRU(bins, settings.width, batch_first=True), nn.Linear(settings.width, vocabulary)
    def encode(self, features, lengths):
        return self.rnn(features)[0], lengths
    def ctc(self, hidden):
        return self.out(hidden).log_softmax(-1)

MODELS["tiny"] = Tiny
"""


@pytest.mark.long
def test_a_model_from_a_module_of_ones_own(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`imports` names the module; the actors could not import it on their own."""
    (tmp_path / "my_tiny_model.py").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    model = {"kind": "tiny", "width": 8}
    result = fedray.run(speech.settings(corpus, rounds=1, imports=["my_tiny_model"], model=model), out=tmp_path / "run")
    assert (result.folder / "model" / "model.pt").exists() and (result.folder / "model" / "tokens.txt").exists()


@pytest.mark.long
def test_a_joint_model_and_every_server_optimizer(corpus: Path, tmp_path: Path) -> None:
    """A round runs with CTC and attention, joint beam search, sub-words and FedAdam."""
    base = speech.settings(corpus, rounds=1, server_optimizer={"kind": "adam", "lr": 0.001})
    task = {
        **base["task"],
        "tokens": "bpe",
        "vocabulary": 12,
        "ctc_weight": 0.5,
        "decode": {"search": "attention", "beam": 2},
    }
    result = fedray.run({**base, "task": task, "model": {**base["model"], "decoder_layers": 1}}, out=tmp_path / "run")
    assert result.results["best"]["test/wer_lm"] >= 0 and (result.folder / "model" / "tokeniser.model").exists()


@pytest.mark.long
def test_a_run_starts_from_weights_of_ones_own(straight: fedray.Result, corpus: Path, tmp_path: Path) -> None:
    """With the exported model as `model.init`, the new run's seed model scores like the old run's best model."""
    base = speech.settings(corpus, rounds=1)
    base["model"] = {**base["model"], "init": str(straight.folder / "model" / "model.pt")}
    base |= {
        "algorithm": {"kind": "fedavg", "pretrain": {"steps": 0}},
        "cohort": {"size": 1},
        "engine": {"lanes": 1, "actors": 1},
    }
    result = fedray.run(base, out=tmp_path / "run")
    assert result.results["seed"]["test/wer"] == straight.results["best"]["test/wer"]
    with pytest.raises(ValueError, match=r"model.init: there is no file .*nothing.pt"):
        fedray.run({**base, "model": {"init": "nothing.pt"}}, out=tmp_path / "other")


@pytest.mark.parametrize(("arguments", "words"), [
    (["algorithm.alhpa=0.3"], "unknown key algorithm.alhpa; did you mean algorithm.alpha?"),
    (["rounds=many"], "rounds must be a whole number, not 'many'"),
    (["cohort.size=100"], "cohort.size is 100, but the population has only"),
    (["engine.gpus_per_client=0.5"], "engine.gpus_per_client asks for 0.5 GPUs an actor, but Ray sees none"),
])  # fmt: skip
def test_errors_are_one_message_and_status_2(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(speech.settings(corpus)))
    assert cli.main(["run", str(config), *arguments, "--out", str(tmp_path / "run")]) == 2
    error: Any = capsys.readouterr().err
    assert words in error and "Traceback" not in error
    assert not (tmp_path / "run").exists()
