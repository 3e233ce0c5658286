"""The workloads as fedray sees them: feature stores, federations and configurations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine import workloads
from benchmarks.engine.workloads import CLASSES, POOL, Keywords, LargeConformer, Recognition, Workload
from fedray.data.features.dataset import Utterances
from fedray.data.features.store import FeatureStore
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Manifest

LABELS = [f"{i:02d}" for i in range(CLASSES)]
# Width, hidden and bidirectional of fedray's models; a user's network stands for every other shape.
OURS = {(64, 128, True): "base", (32, 64, False): "lite", (256, 512, True): "wide"}
FIRST = 0x4E00  # token 1 as a character: the next tokens follow in the order of code points, as fedray numbers them


def write(folder: Path, workload: Workload) -> Utterances:
    """The workload's pool as a feature store below `folder` with its manifest, written once."""
    if isinstance(workload, Recognition):
        folder = folder / workload.model
        features, tokens = workload.utterances()
        texts = ["".join(chr(FIRST + token - 1) for token in spoken) for spoken in tokens]
        return store(folder, features, {"seconds": workloads.seconds(), "text": texts})
    clips, classes = workloads.pool()
    return store(
        folder / "keywords", clips.astype(np.float16), {"seconds": np.ones(POOL), "label": [LABELS[i] for i in classes]}
    )


def store(folder: Path, features: Sequence[np.ndarray] | np.ndarray, columns: dict[str, Any]) -> Utterances:
    """Features [frames, bins] of each utterance of the pool, with columns of its manifest, written once."""
    frames = folder / "frames.f16"
    if not frames.exists():
        folder.mkdir(parents=True)
        np.save(folder / "offsets.npy", np.cumsum([0, *map(len, features)], dtype=np.int64))
        bins = int(features[0].shape[1])
        (folder / "store.json").write_text(json.dumps({"bins": bins, "broken": {}}), encoding="utf-8")
        np.concatenate(features).tofile(frames)
    given = {"utterance": [f"clip-{i:04d}" for i in range(POOL)], "path": [str(frames.resolve())] * POOL}
    manifest = Manifest.from_columns(given | {"speaker": ["nobody"] * POOL} | columns, str(folder))
    return Utterances(manifest, FeatureStore(folder), np.arange(POOL))


def federation(pool: Utterances, workload: Workload, scored: int = 0) -> SpeechData:
    """The workload's clients; the first `scored` utterances of the pool are the development set."""
    rows = {f"client-{client:04d}": workload.rows(client) for client in range(workload.clients)}
    return SpeechData(pool, rows, {"dev": pool.take(np.arange(scored))} if scored else {}, None)


def configuration(workload: Workload, rounds: int, actors: int) -> dict[str, Any]:
    """The workload as the contents of a YAML file."""
    client = {name: getattr(workload, name) for name in ("lr", "batch", "epochs", "clip")}
    return {
        "name": "engine",
        "rounds": rounds,
        "algorithm": {"kind": "fedavg", "client": client, "pretrain": {"steps": 0}},
        "cohort": {"size": workload.cohort},
        "engine": {"actors": actors},
    } | (_recognition(workload) if isinstance(workload, Recognition) else _keywords(workload, client))


def _recognition(workload: Recognition) -> dict[str, Any]:
    models: dict[str, dict[str, Any]] = {
        "conformer": {"kind": "conformer", "attention": "RelPosMHAXL", "dropout": 0.05},
        "crdnn": {"kind": "crdnn", "channels": [8, 16], "time_pooling": 4},
    }
    if isinstance(workload, LargeConformer):
        models["conformer"] |= {"d_model": workload.width, "ffn": 4 * workload.width, "layers": workload.layers}
    return {
        "features": {"kind": "logmel", "bins": workload.bins, "hop_ms": 1000 / workload.frames_a_second},
        "task": {"kind": "recognition", "tokens": "characters", "augment": {"time_masks": 0, "frequency_masks": 0}},
        "model": models[workload.model],
    }


def _keywords(whole: Keywords, client: dict[str, Any]) -> dict[str, Any]:
    workload = whole.shared()
    shape = (workload.width, workload.hidden, workload.bidirectional)
    own = {"kind": "own", "width": workload.width, "hidden": workload.hidden, "bidirectional": workload.bidirectional}
    personal = OURS.get((whole.width, whole.hidden, whole.bidirectional))
    return {
        "task": {"kind": "classification", "classes": LABELS},
        "model": {"kind": "crnn", "size": OURS[shape]} if shape in OURS and not whole.own else own,
    } | ({"algorithm": {"kind": "fedmlac", "sizes": [personal], "client": client}} if whole.mutual else {})
