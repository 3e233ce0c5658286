"""End-to-end runs of a Whisper with random weights: FedLoRA tunes it, and FedMem decodes with the tuned model.

One test transcribes and one translates. In both, transformers loads the tuned model.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import fedray
from tests import speech
from tests.algorithms.test_whisper_algorithms import ADAPTERS, settings
from tests.training import test_translation

transformers = pytest.importorskip("transformers")
from tests.whisper import SPECIAL, write_checkpoint  # noqa: E402 - it needs transformers

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.nightly]
TUNING = {"kind": "fedlora", "lora": ADAPTERS, "client": {"lr": 0.05, "warmup": 1, "epochs": 4}}
REMEMBERING = {"kind": "fedmem", "k": [1, 2], "share": [0.5], "temperature": [1.0], "memory": {"keys": "states"}}


def both(wanted: dict[str, Any], folder: Path) -> tuple[Path, list[dict[str, str]]]:
    """Play FedLoRA, then FedMem; return the folder of the FedLoRA run and the rows of FedMem's personal.tsv."""
    wanted |= {"rounds": 2, "cohort": {"fraction": 1.0}, "evaluation": {"personal_final": True}}
    tuning = {**wanted, "algorithm": {**TUNING, "pretrain": {"steps": 0}}}
    tuned = fedray.run(tuning, out=folder / "tuned").folder
    results = json.loads((tuned / "results.json").read_text())
    assert results["traffic/total_bytes"] > 0
    remembering = {
        **wanted,
        "rounds": 1,
        "algorithm": {**REMEMBERING, "pretrain": {"steps": 0}},
        "model": wanted["model"] | {"folder": str(tuned / "model")},
    }
    done = fedray.run(remembering, out=folder / "remembered").folder
    rows = list(csv.DictReader((done / "personal.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t"))
    assert {row["split"] for row in rows} == {"dev", "test"}
    loaded = transformers.WhisperForConditionalGeneration.from_pretrained(tuned / "model")
    start = transformers.WhisperForConditionalGeneration.from_pretrained(wanted["model"]["folder"])
    weights = dict(start.named_parameters())  # the encoder's positions are cut to `model.seconds`
    pairs = {name: (weight, weights[name]) for name, weight in loaded.named_parameters() if "positions" not in name}
    moved = [name for name, (after, before) in pairs.items() if (after != before).any()]
    assert moved and all("self_attn" in name or "fc" in name for name in moved)
    return tuned, rows


def test_it_transcribes(tmp_path: Path) -> None:
    folder = speech.write_corpus(tmp_path / "tones").parent
    write_checkpoint(folder / "whisper")
    _, rows = both(settings(folder), tmp_path)
    assert all(float(row["wer"]) >= 0 for row in rows)


def test_it_translates(tmp_path: Path) -> None:
    folder = speech.write_corpus(tmp_path / "tones").parent
    write_checkpoint(folder / "whisper", special=(*SPECIAL, "<|translate|>"))
    wanted = test_translation.settings(folder) | {
        "features": {"kind": "whisper", "bins": 80, "normalise": "none"},
        "task": {"kind": "translation", "tokens": "pretrained", "bleu": "zh", "decode": {"beam": 2}},
        "model": {"kind": "whisper", "folder": str(folder / "whisper"), "seconds": 1.5, "prompt": "translate"},
    }
    tuned, rows = both(wanted, tmp_path)
    assert all(0 <= float(row["bleu_beam"]) <= 100 for row in rows)
    predicted = (tuned / "predictions.tsv").read_text(encoding="utf-8").splitlines()
    found = list(csv.DictReader(predicted, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert found and all(row["reference"] and "hypothesis_beam" in row for row in found)
