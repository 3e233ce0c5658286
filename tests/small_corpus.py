"""A corpus of white noise for tests: a folder with wav files, and train.tsv, dev.tsv, ... for the reader `tsv`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.engine.driver import session

RATE = 16000
Row = tuple[str, str, str]  # utterance (its file is <utterance>.wav), speaker, text
SECONDS = 0.4


def write(folder: Path, **splits: list[Row]) -> Path:
    """Write one table per split. Line 1 is the header: row i is line i + 2."""
    generator = np.random.default_rng(0)
    for split, rows in splits.items():
        lines = ["path\tspeaker\ttext\tseconds"]
        for name, speaker, text in rows:
            soundfile.write(folder / f"{name}.wav", 0.1 * generator.standard_normal(int(SECONDS * RATE)), RATE)
            lines.append(f"{name}.wav\t{speaker}\t{text}\t{SECONDS}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def config(folder: Path, *splits: str, **sections: Any) -> dict[str, Any]:
    """A configuration for the corpus, with a tiny model and an untrained seed model."""
    options = {split: [f"{split}.tsv"] for split in splits} | {"text_column": "text"}
    values: dict[str, Any] = {
        "data": {"corpus": "tsv", "root": str(folder), "options": options},
        "model": {"kind": "conformer", "d_model": 8, "layers": 1, "heads": 1, "ffn": 8, "kernel": 3},
        "algorithm": {"kind": "fedavg", "pretrain": {"steps": 0}},
        "cohort": {"size": 1},
    }
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section
    return values


def patient_run(folder: Path, **settings: float) -> dict[str, Any]:
    """A configuration of two clients a round, whose corpus is written to `folder`. `settings`: of tests.patient."""
    splits = {"train": ("ann", "bob", "cid"), "dev": ("dee",), "test": ("eva",)}
    rows = {split: [(f"{name}-{i}", name, "ab") for name in names for i in range(2)] for split, names in splits.items()}
    algorithm, engine = {"kind": "patient", **settings}, {"lanes": 2, "actors": 1}
    values = config(write(folder, **rows), *splits, algorithm=algorithm, cohort={"size": 2}, engine=engine)
    return values | {"imports": ["tests.patient"]}


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run parallel work in this process, with an empty cache."""
    monkeypatch.setattr(session, "parallel", serial)
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path_factory.mktemp("cache")))
