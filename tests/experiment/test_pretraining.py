"""`fedray pretrain` on keywords of tones, without Ray: interrupted and resumed, refused, and used as `model.init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import yaml

from fedray import cli
from fedray.experiment import pretraining
from fedray.experiment.pretraining import pretrain
from fedray.sweep.prepare import pretrained
from fedray.training.contrastive import Contrastive
from tests import keywords, speech
from tests.algorithms import by_hand

pytestmark = pytest.mark.usefixtures("no_ray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keywords")
    keywords.write_corpus(folder)
    return folder


def settings(folder: Path, **contrastive: Any) -> dict[str, Any]:
    run = keywords.settings(folder)
    small = {"epochs": 3, "batch": 16, "window": 0.18, "units": 8}
    return {"name": "tones", "data": run["data"], "features": run["features"], "contrastive": {**small, **contrastive}}


@pytest.mark.long
def test_an_interrupted_pre_training_resumes_with_the_same_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, int, str]] = []
    whole = pretrain(settings(folder), out=tmp_path / "whole", progress=lambda *said: heard.append(said))
    assert heard == [(done, 9, "pre-training") for done in range(1, 10)], "48 clips in batches of 16, three times"
    monkeypatch.setattr(pretraining, "SAVE_SECONDS", 0.0)
    said: list[str] = []
    epoch = Contrastive.epoch

    def killed(self: Contrastive, progress: Any) -> float:
        if self.done == 2:
            raise KeyboardInterrupt
        return epoch(self, progress)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Contrastive, "epoch", killed)
        pretrain(settings(folder), out=tmp_path / "cut")
    again = pretrain(settings(folder), out=tmp_path / "cut", say=said.append)
    assert said[0].endswith("cut: resuming after epoch 2") and (again.epochs, again.loss) == (3, whole.loss)
    weights = [torch.load(found.weights, weights_only=True) for found in (whole, again)]
    assert weights[0].keys() == weights[1].keys() and all(
        torch.equal(weights[0][name], weights[1][name]) for name in weights[0]
    )
    losses = [json.loads(line) for line in (tmp_path / "cut" / "losses.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in losses] == [1, 2, 3] and losses[-1]["loss"] == whole.loss
    more = pretrain(settings(folder, epochs=4), out=tmp_path / "cut")
    assert more.epochs == 4
    with pytest.raises(
        ValueError, match=r"holds another pre-training \(contrastive.lr 0.001, now 0.1\): choose another folder"
    ):
        pretrain(settings(folder, lr=0.1), out=tmp_path / "cut")


def test_a_run_starts_from_its_weights(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = pretrain(settings(folder, epochs=1), out=tmp_path)
    model = {"kind": "audio_cnn", "init": str(found.weights)}
    algorithm, _, state = by_hand.build(keywords.settings(folder, model=model))
    taught, start = torch.load(found.weights, weights_only=True), algorithm.task.flat("cpu").layout.cut(state.params)
    assert start.keys() - taught.keys() == {"out.weight", "out.bias"}
    assert all(torch.equal(start[name], value) for name, value in taught.items())
    assert "lacks out.bias, out.weight: these start from random weights" in capsys.readouterr().err


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(settings(folder)))
    out = str(tmp_path / "out")
    assert cli.main(["pretrain", str(config), "contrastive.epochs=1", "--out", out]) == 0
    assert f"Start from its weights with: model.init={out}/weights.pt" in capsys.readouterr().out
    assert cli.main(["pretrain", str(config), "contrastive.units=9", "--out", out]) == 2
    assert "contrastive.units 8, now 9" in capsys.readouterr().err
    assert cli.main(["pretrain", str(config), "contrastive.unit=9", "--out", out]) == 2
    assert "unknown key contrastive.unit" in capsys.readouterr().err


def test_what_has_no_effect_is_refused(folder: Path, tmp_path: Path) -> None:
    given = settings(folder)
    for key, override in (
        ("data.clients", "data.clients.by=iid"),
        ("data.labelled", "data.labelled.share=0.1"),
        ("data.corruption", "data.corruption.label_errors=0.1"),
        ("data.own_share", "data.own_share=0.25"),
        ("model.init", "model.init=x.pt"),
    ):
        with pytest.raises(ValueError, match=f"{key} has no effect: .*; remove it"):
            pretrain(given, [override], out=tmp_path)
    with pytest.raises(ValueError, match="cannot train CRNN: set model.kind=audio_cnn"):
        pretrain(given, ["model.kind=crnn"], out=tmp_path)
    with pytest.raises(ValueError, match="contrastive.window: no clip is longer than 1.0 s"):
        pretrain(given, ["contrastive.window=1.0"], out=tmp_path)


def test_broken_audio_is_named(tmp_path: Path) -> None:
    keywords.write_corpus(tmp_path / "corpus", speakers=4)
    soundfile.write(tmp_path / "corpus" / "wav" / "s00-3.wav", np.full(2400, np.nan), speech.RATE, subtype="FLOAT")
    given = settings(tmp_path / "corpus", epochs=1)
    said: list[str] = []
    with pytest.raises(ValueError, match="s00-3"):
        pretrain(given, out=tmp_path / "out")
    pretrain(given, ["data.skip_broken=true"], out=tmp_path / "out", say=said.append)
    assert said[0].startswith("1 clips are left out") and "s00-3" in (tmp_path / "out" / "broken.tsv").read_text()


def test_a_sweep_finishes_the_pre_training_that_is_there(folder: Path, tmp_path: Path) -> None:
    place, other = tmp_path / "pretrained", tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(settings(folder, lr=0.1)))
    pretrain(settings(folder, epochs=1), out=place)
    weights = pretrained(other, place, ["contrastive.epochs=2"])
    assert weights == place / "weights.pt" and len((place / "losses.jsonl").read_text().splitlines()) == 1
    assert yaml.safe_load((place / "config.yaml").read_text())["contrastive"]["lr"] == 0.001
    new = pretrained(other, tmp_path / "new", ["contrastive.epochs=2"])
    assert len((new.parent / "losses.jsonl").read_text().splitlines()) == 2


def test_a_damaged_checkpoint_is_named_and_a_uri_refused(folder: Path, tmp_path: Path) -> None:
    pretrain(settings(folder, epochs=1), out=tmp_path)
    whole = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"state.pt: is damaged, or not what fedray writes there: restore the file"):
        pretrain(settings(folder, epochs=2), out=tmp_path)
    with pytest.raises(ValueError, match="s3://b/x is not a folder on this machine"):
        pretrain(settings(folder, epochs=1), out="s3://b/x")
