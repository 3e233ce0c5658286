"""The studies of updates: every arm is a valid configuration, and its table has means and the seeds' intervals."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.studies import inversion, update_leakage
from fedray import experiment
from tests import encoders

CHOSEN = argparse.Namespace(rounds=30, actors=1)


@pytest.mark.parametrize("arm", update_leakage.ARMS)
def test_every_arm_is_a_valid_configuration(arm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encoders.write_encoder(tmp_path / "whisper-tiny.en", "whisper")
    monkeypatch.setattr(study, "speech", lambda corpus: tmp_path / corpus)
    overrides = update_leakage.overrides(arm, 0, CHOSEN)
    config, _ = experiment.load(study.ROOT / update_leakage.CONFIG, overrides)
    experiment.check_setup(*experiment.load(study.ROOT / update_leakage.CONFIG, overrides))
    if "epsilon" in arm:  # then a recogniser's tokens come from the server
        assert config.model.kind == "crnn" or config.data.server.share or config.data.options["server_speakers"]
    if "speechocean" in arm:
        assert config.data.test_share, "SCORES has none of dev"
    assert "ROOT" not in str(config.audit)


def test_the_table_has_means_and_the_widest_interval() -> None:
    one = {"accuracy": 0.5, "chance": 0.25, "balanced_accuracy": 0.4, "auroc": 0.8, "auroc_low": 0.7, "auroc_high": 0.9}
    other = one | {"accuracy": 0.7, "auroc": 0.6, "auroc_low": 0.5, "auroc_high": 0.65}
    same = {"auroc": 0.9, "auroc_low": 0.8, "auroc_high": 1.0, "first": 0.3, "chance": 0.01}
    runs = [
        {
            "seed": seed,
            "score": {"test/accuracy": 70.0 + seed},
            "findings": {"1": {"label": each, "same client": same}, "5": {"label": one}},
        }
        for seed, each in enumerate((one, other))
    ]
    found = {"keywords, CRNN: none": runs}
    text = update_leakage.table(found, "keywords, CRNN")
    assert "| none | label | 0.70 [0.50, 0.90] | 60.0 ± 14.1 | 25.0 | 40.0 ± 0.0" in text
    assert "| none | same client | 0.90 [0.80, 1.00] | 30.0 ± 0.0 | 1.0 | " in text
    assert "| sums of 5 | label | 0.80 [0.70, 0.90] |" in text
    assert "| none | 70.5 ± 0.7 | 0, 1 |" in update_leakage.costs(found, "keywords, CRNN")
    assert update_leakage.table(found, "arabic-commands, CRNN") == ""


@pytest.mark.parametrize("arm", inversion.ARMS)
def test_every_inversion_is_a_valid_configuration(arm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encoders.write_encoder(tmp_path / "whisper-tiny.en", "whisper")
    monkeypatch.setattr(study, "speech", lambda corpus: tmp_path / corpus)
    monkeypatch.setattr(inversion, "sentences", lambda folder: folder)
    overrides = inversion.overrides(arm, 0, argparse.Namespace(rounds=10, actors=1, runs=tmp_path))
    config, source = experiment.load(study.ROOT / inversion.config(arm), overrides)
    experiment.check_setup(config, source)
    assert config.audit.utterances == (4 if "four" in arm else 1)


def test_an_inversion_has_a_row_and_a_dot(tmp_path: Path) -> None:
    first = {"likeness": 0.5, "likeness_low": 0.4, "likeness_high": 0.6, "others": 0.1, "first": 1.0, "chance": 0.1}
    first["match"] = 0.9
    runs = [
        {
            "seed": 0,
            "score": {"test/accuracy": 61.2},
            "first": first,
            "last": first | {"likeness": 0.3, "likeness_low": 0.2},
        }
    ]
    arm = "keywords, CRNN: one clip"
    row = inversion.row(arm, "last", runs)
    assert row["model"] == "last (test/accuracy 61)"
    assert (row["update"], row["likeness"], row["recognised (%)"]) == ("one clip", "0.30 [0.20, 0.60]", "100.0")
    inversion.draw({arm: runs}, tmp_path / "inversion.png")
    assert (tmp_path / "inversion.png").stat().st_size > 5_000
