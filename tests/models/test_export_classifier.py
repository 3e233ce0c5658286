"""The script saved with a classifier gives the task's answers without fedray."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

from fedray import experiment
from tests import keywords
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)
from tests.speech import RATE


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize(
    ("window", "hop"),
    [(None, None), (0.2, None), (1.0, None), (0.2, 0.05)],
    ids=["whole clips", "two windows a clip", "zeros on both sides", "a window every 50 ms"],
)
@pytest.mark.parametrize("kind", ["crnn", "audio_cnn"])
def test_the_script_says_what_the_task_says(
    kind: str,
    window: float | None,
    hop: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keywords.write_corpus(tmp_path, speakers=3)
    features = {"sample_rate": RATE, "bins": 20, "normalise": "waveform" if kind == "audio_cnn" else "none"}
    changes = {
        "features": features,
        "model": {"kind": kind},
        "task": {"kind": "classification", "window": window, "hop": hop},
        "cohort": {"size": 1},
    }
    config, source = experiment.load(keywords.settings(tmp_path, **changes))
    data, _ = experiment.build_data(config, source)
    task = experiment.build_algorithm(config, data).task
    torch.manual_seed(5)
    flat = task.flat("cpu")
    for values in flat.model.parameters():
        torch.nn.init.normal_(values, 0.0, 0.3)
    with torch.no_grad():  # so that no class is the answer to all clips
        flat.model.out.bias -= torch.from_numpy(task.logits(flat.read(), data.evaluation("test"), "cpu").mean(0))
    params = flat.read()
    task.export(params, tmp_path / "model")
    said = {
        row["utterance"]: row["hypothesis"]
        for row in task.evaluate(params, data.evaluation("test"), {}, "cpu", True).predictions
    }
    assert len(set(said.values())) > 1, "one answer for all clips: the test tests nothing"
    monkeypatch.setitem(sys.modules, "fedray", None)  # importing it fails
    for utterance, answer in said.items():
        monkeypatch.setattr(sys, "argv", ["example.py", str(tmp_path / utterance)])
        runpy.run_path(str(tmp_path / "model" / "example.py"))
        assert capsys.readouterr().out.strip() == answer
