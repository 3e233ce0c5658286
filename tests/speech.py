"""A spoken language of tones: each letter is a pitch, so that a tiny recogniser learns it in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from fedray.core.parallel import serial
from fedray.core.seeds import numpy_generator
from fedray.data.corpora.formats.tsv import Tsv
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import SpeechData, federate
from fedray.data.manifest import Manifest

RATE = 8000
HANZI = str.maketrans("abcd", "天地人和", " ")  # a translation: a character for each letter, no spaces
PITCHES = {"a": 500.0, "b": 1000.0, "c": 1500.0, "d": 2000.0, " ": 0.0}


def wave(text: str, detuned: float) -> np.ndarray:
    """The tones of a text, 0.12 s per letter."""
    time = np.arange(int(0.12 * RATE)) / RATE
    return np.concatenate([0.3 * np.sin(2 * np.pi * detuned * PITCHES[c] * time) for c in text])


def write_corpus(folder: Path, speakers: int = 8, utterances: int = 4, seed: int = 0) -> Path:
    """Write clips and manifest.tsv (path, speaker, text, split, translation); the last two speakers are dev and test.

    A speaker is a detuning and a noise level.
    """
    lines = ["path\tspeaker\ttext\tsplit\ttranslation"]
    for s in range(speakers):
        speaker, split = f"s{s:02d}", {speakers - 2: "dev", speakers - 1: "test"}.get(s, "train")
        generator = numpy_generator(seed, "tones", speaker)
        detuned, noise = generator.uniform(0.95, 1.05), generator.uniform(0.001, 0.02)
        for u in range(utterances):
            text = " ".join("".join(generator.choice(list("abcd"), 2)) for _ in range(2))
            path = folder / "wav" / f"{speaker}-{u}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            clean = wave(text, detuned)
            soundfile.write(path, clean + noise * generator.standard_normal(len(clean)), RATE, subtype="PCM_16")
            lines.append(f"wav/{path.name}\t{speaker}\t{text}\t{split}\t{text.translate(HANZI)}")
    manifest = folder / "manifest.tsv"
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return manifest


def splits(folder: Path, speakers: int, utterances: int) -> dict[str, Manifest]:
    """Write a corpus to the folder, and return the splits that its reader makes."""
    write_corpus(folder, speakers, utterances)
    table = Tsv(train=["manifest.tsv"], text_column="text", split_column="split", seconds_column=None)
    return table.read(folder, 0, folder, serial)


def federation(splits: Mapping[str, Manifest], settings: DataSettings, cache: Path) -> SpeechData:
    """The splits of a corpus at `RATE` as a federation, with features in `cache`."""
    return federate(splits, settings, LogMelSettings(sample_rate=RATE, bins=20), cache, serial)[0]


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """A configuration for the corpus that runs in seconds; `changes` replace whole sections."""
    columns = {
        "text_column": "text",
        "speaker_column": "speaker",
        "path_column": "path",
        "split_column": "split",
        "seconds_column": None,
    }
    base: Mapping[str, Any] = {
        "name": "tones",
        "rounds": 3,
        "data": {
            "corpus": "tsv",
            "root": str(folder),
            "options": {"train": ["manifest.tsv"], **columns},
            "server": {"share": 0.34},
        },
        "features": {"sample_rate": RATE, "bins": 20},
        "task": {"augment": {"time_width": 4, "frequency_width": 2}, "decode": {"beam": 4}},
        "model": {"d_model": 32, "ffn": 64, "layers": 1, "kernel": 7},
        "algorithm": {
            "kind": "fednst",
            "client": {"lr": 0.2, "batch": 2},
            "server": {"lr": 0.2, "batch": 2},
            "pretrain": {"steps": 30, "warmup": 5, "batch": 4},
            "schedule": {"kind": "exponential", "decay_steps": 5},
        },
        "cohort": {"size": 3},
        "engine": {"lanes": 2, "actors": 1, "cpus_per_client": 0.5},
        "evaluation": {"shards": 2},
    }
    return {**base, **changes}
