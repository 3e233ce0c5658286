"""A corpus of tone keywords: a clip repeats one letter of tests/speech.py.

A tiny network learns in seconds to tell the letters apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import soundfile

from fedray.core.seeds import numpy_generator
from tests import speech

WORDS = "abcd"


def write_corpus(folder: Path, speakers: int = 8, clips: int = 8, seed: int = 0) -> Path:
    """Write clips and manifest.tsv (path, speaker, label, split); the last two speakers are dev and test.

    Clips last 0.24 to 0.36 s.
    """
    lines = ["path\tspeaker\tlabel\tsplit"]
    (folder / "wav").mkdir(parents=True, exist_ok=True)
    for s in range(speakers):
        speaker, split = f"s{s:02d}", {speakers - 2: "dev", speakers - 1: "test"}.get(s, "train")
        generator = numpy_generator(seed, "keywords", speaker)
        detuned, noise = generator.uniform(0.95, 1.05), generator.uniform(0.001, 0.02)
        for c in range(clips):
            word = WORDS[c % len(WORDS)]
            clean = speech.wave(word * int(generator.integers(2, 4)), detuned)
            path = folder / "wav" / f"{speaker}-{c}.wav"
            soundfile.write(path, clean + noise * generator.standard_normal(len(clean)), speech.RATE, subtype="PCM_16")
            lines.append(f"wav/{path.name}\t{speaker}\t{word}\t{split}")
    manifest = folder / "manifest.tsv"
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return manifest


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """A configuration for the corpus that runs in seconds; `changes` replace whole sections."""
    columns = {
        "label_column": "label",
        "speaker_column": "speaker",
        "path_column": "path",
        "split_column": "split",
        "seconds_column": None,
    }
    options = {"train": ["manifest.tsv"], **columns}
    base: dict[str, Any] = {
        "name": "keywords",
        "rounds": 3,
        "data": {"corpus": "tsv", "root": str(folder), "options": options},
        "features": {"sample_rate": speech.RATE, "bins": 20, "normalise": "none"},
        "task": {"kind": "classification"},
        "model": {"kind": "crnn", "size": "tiny"},
        "algorithm": {"kind": "fedavg", "client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}},
        "cohort": {"size": 3},
        "engine": {"lanes": 2, "actors": 1, "cpus_per_client": 0.5},
        "evaluation": {"shards": 2},
    }
    return {**base, **changes}
