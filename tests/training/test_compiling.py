"""Loops that are compiled ahead of a run: all that training and scoring need, and only once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedray.core.settings import Choice
from fedray.engine.driver import session
from fedray.experiment import launch, load
from fedray.models.conformer import ConformerSettings
from fedray.models.whisper import WhisperSettings
from fedray.training import compiling

# The second half uses other sizes, on a model that trains as clients do.
COMPILE_AND_TRAIN = """
import sys
from pathlib import Path
import torch
from fedray.core.parameters import FlatModel
from fedray.core.settings import Choice
from fedray.models import MODELS
from fedray.models.conformer import ConformerSettings
from fedray.training import compiling
model = Choice("conformer", ConformerSettings(d_model=32, layers=2, dropout=0.1))
compiling.compile_loops(model, 40)
kept = lambda: {path.name for path in Path(sys.argv[1]).rglob("*.nb?")}
before = kept()
compiling.FRAMES, compiling.TOKENS = (310, 200, 150), [[1, 2], [3, 4], [5, 6]]
flat = FlatModel(MODELS["conformer"](model.settings, 80, compiling.OUTPUTS))
for training in (True, False):
    flat.model.train(training)
    with torch.set_grad_enabled(training):
        loss = compiling._loss(flat.model, torch.randn(3, 310, 80), torch.tensor(compiling.FRAMES))
    if training:
        flat.backward(loss)
print(len(before), sorted(kept() - before))
"""


@pytest.mark.nightly
def test_nothing_is_left_to_compile(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE_AND_TRAIN, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    number, _, later = done.stdout.partition(" ")
    assert int(number) > 20
    assert later.strip() == "[]"


def test_a_run_compiles_where_the_cache_has_no_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    asked = []
    monkeypatch.setattr(session, "beside", asked.append)
    config, _ = load("fednst/embedded")
    launch.compile_beside(config)
    assert len(asked) == 1
    done = compiling.marker(config.model)
    assert done is not None
    done.parent.mkdir()
    done.touch()
    launch.compile_beside(config)
    assert len(asked) == 1


def test_models_without_loops_have_nothing_to_compile() -> None:
    assert compiling.marker(Choice("whisper", WhisperSettings(folder="whisper-tiny"))) is None
    assert compiling.marker(Choice("conformer", ConformerSettings())) is not None
