"""Checkpoints and precomputed features that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.bad_input.case import DRY, RUN, Case
from tests.bad_input.corpus import append, both

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
CONFIG = {"model_type": "wav2vec2", **SMALL}
ENCODER = append("model: {kind: encoder, folder: checkpoint}")
MELS = append("features: {kind: precomputed, path: mels.npz, bins: 3}")


def holds(**files: object) -> Callable[[Path], object]:
    """Make a checkpoint of these files (`__` stands for a dot): bytes, or what a JSON file holds."""

    def make(folder: Path) -> None:
        (folder / "checkpoint").mkdir()
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / "checkpoint" / name.replace("__", ".")).write_bytes(data)

    return both(make, ENCODER)


def mels(**arrays: np.ndarray) -> Callable[[Path], object]:
    """Make mels.npz, and a configuration that reads it (`__` stands for a dot)."""
    named = {name.replace("__", "."): array for name, array in arrays.items()}
    return both(lambda folder: np.savez(folder / "mels.npz", **named), MELS)


CASES = (
    Case("checkpoint: no folder", "model.folder is missing", append("model: encoder"), DRY),
    Case("checkpoint: not there", "there is no folder DIR/checkpoint", ENCODER, DRY),
    Case("checkpoint: no config.json", "has no config.json", holds(), DRY),
    Case("checkpoint: config.json cut", ("config.json", "is not JSON"), holds(config__json=b'{"model'), DRY),
    Case("checkpoint: config.json a list", ("config.json", "is not an object"), holds(config__json=[1]), DRY),
    Case(
        "checkpoint: of text",
        ("config.json", "model_type 'bert' is not an encoder"),
        holds(config__json={"model_type": "bert"}),
        DRY,
    ),
    Case(
        "checkpoint: config.json with a word for a number",
        ("config.json", "transformers cannot read it"),
        holds(config__json={**CONFIG, "hidden_size": "wide"}),
        DRY,
    ),
    Case("checkpoint: no weights", "has no model.safetensors", holds(config__json=CONFIG), DRY),
    Case(
        "checkpoint: a pickle",
        "has weights in a pickle alone, which may execute anything",
        holds(config__json=CONFIG, pytorch_model__bin=b""),
        DRY,
    ),
    Case(
        "checkpoint: model.safetensors cut",
        ("model.safetensors", "is damaged or cut short"),
        holds(config__json=CONFIG, model__safetensors=b"\x10\0\0\0\0\0\0\0{}"),
        DRY,
    ),
    Case(
        "checkpoint: log-mels for waveforms",
        "model.kind encoder needs features.kind=waveform, not logmel",
        both(
            holds(config__json=CONFIG),
            append("model: {kind: encoder, folder: checkpoint}\nfeatures: {kind: logmel}"),
        ),
        DRY,
    ),
    Case(
        "features: precomputed, not there",
        ("features.path", "there is no file DIR/mels.npz"),
        MELS,
        DRY,
    ),
    Case(
        "features: precomputed, without an utterance",
        "mels.npz has no features of s0.wav",
        mels(a0__wav=np.zeros((20, 3)), b0__wav=np.zeros((20, 3))),
        RUN,
    ),
    Case(
        "features: precomputed, of another width",
        "mels.npz has features of s0.wav of the shape [40, 2], not [frames, 3]",
        mels(s0__wav=np.zeros((40, 2)), a0__wav=np.zeros((20, 3)), b0__wav=np.zeros((20, 3))),
        RUN,
    ),
)
