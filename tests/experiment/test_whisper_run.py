"""A Whisper made at random through the front door: FedLoRA tunes it, FedMem decodes with what FedLoRA has left."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import fedray
from tests import speech
from tests.algorithms.test_whisper_algorithms import ADAPTERS, settings

pytest.importorskip("transformers")
from tests.whisper import write_checkpoint

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.nightly]


def test_both_methods(tmp_path: Path) -> None:
    folder = speech.write_corpus(tmp_path / "tones").parent
    write_checkpoint(folder / "whisper")
    wanted = settings(
        folder, kind="fedlora", lora=ADAPTERS, client={"lr": 0.05, "warmup": 1, "epochs": 4}, pretrain={"steps": 0}
    )
    tuned = fedray.run({**wanted, "rounds": 2, "cohort": {"fraction": 1.0}}, out=tmp_path / "tuned").folder
    results = json.loads((tuned / "results.json").read_text())
    assert results["traffic/total_bytes"] > 0
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in (tuned / "model").iterdir()}
    wanted = settings(folder, kind="fedmem", k=[1, 2], share=[0.5], temperature=[1.0], memory={"keys": "states"})
    wanted["model"] = wanted["model"] | {"folder": str(tuned / "model")}
    done = fedray.run(
        wanted | {"cohort": {"fraction": 1.0}, "evaluation": {"personal_final": True}}, out=tmp_path / "remembered"
    ).folder
    rows = list(csv.DictReader((done / "personal.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t"))
    assert {row["split"] for row in rows} == {"dev", "test"} and all(float(row["wer"]) >= 0 for row in rows)
