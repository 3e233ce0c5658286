"""Short runs that must learn: on patterns, and on real speech if there is some."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedray.config import source as sources
from fedray.config.schema import build, build_section
from fedray.core.parallel import serial
from fedray.data.corpora import CORPORA
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import SpeechData, federate
from tests.gpu.federation import Federation, sections
from tests.gpu.record import Item, Missed, Values, Where
from tests.gpu.toys import Size, federation

TITLE = "Runs that learn"
ABOUT = (
    "Scores on dev before and after some rounds, seed model and pseudo-labels included, all on the device. A row fails "
    "where the training loss does not fall, or the score is not clearly better than chance."
)
OPENS_DEVICE = True
SECONDS = 120

KEYWORDS: dict[str, Any] = {
    "task": {"kind": "classification"},
    "model": {"kind": "crnn", "size": "lite"},
    "algorithm": {
        "kind": "fedavg",
        "client": {"lr": 0.3, "batch": 8, "epochs": 2, "clip": 5},
        "pretrain": {"steps": 0},
    },
}
STUDENT: dict[str, Any] = {
    "task": {"kind": "recognition", "decode": {"beam": 4}},
    "model": {"kind": "conformer", "dropout": 0.05},
    "algorithm": {
        "kind": "fednst",
        "alpha": 0.3,
        "client": {"lr": 0.2, "batch": 6, "clip": 5},
        "server": {"lr": 0.1, "batch": 6, "clip": 5},
        "pretrain": {"steps": 150, "lr": 3e-3, "warmup": 20, "batch": 8},
    },
}
LEAST_ACCURACY, MOST_ERRORS = 25.0, 40.0  # percent; by chance, accuracy is 17 and the CER above 80
REAL = {"fsdd": {"sample_rate": 8000}}


def items(where: Where) -> Iterator[Item]:
    rounds, few = (2, True) if where.tiny else (10, False)
    words = Size(clients=4 if few else 10, utterances=12 if few else 40, words=6, equal=True, noise=1.5)
    yield "fedavg, keywords of patterns", lambda: _learn(KEYWORDS, federation(words), rounds, "accuracy", where)
    letters = Size(clients=2 if few else 6, utterances=8 if few else 60, letters=(6, 12), noise=1.0)
    student = STUDENT | ({"algorithm": STUDENT["algorithm"] | {"pretrain": {"steps": 20, "warmup": 5}}} if few else {})
    yield "fednst, letters of patterns", lambda: _learn(student, federation(letters), min(rounds, 5), "cer", where)
    for name, features in REAL.items():
        yield f"fedavg, {name}", lambda name=name, features=features: _real(name, features, rounds, where)


def _learn(values: dict[str, Any], data: SpeechData, rounds: int, score: str, where: Where) -> Values:
    since = time.perf_counter()
    played = Federation(sections(values | {"rounds": rounds}), data, where.device)
    found: Values = {"before the rounds, s": time.perf_counter() - since, f"{score} before": played.score()[score]}
    losses = []
    since = time.perf_counter()
    for _ in range(rounds):
        losses.append(played.round()["loss"])
    found |= {"a round, s": (time.perf_counter() - since) / rounds, f"{score} after": played.score(final=True)[score]}
    found |= {"first loss": losses[0], "last loss": losses[-1]}
    reached = found[f"{score} after"]
    better = reached > LEAST_ACCURACY if score == "accuracy" else reached < MOST_ERRORS
    if not where.tiny and not (losses[-1] < losses[0] and better):
        raise Missed("it has not learnt", found)
    return found


def _real(name: str, features: dict[str, Any], rounds: int, where: Where) -> Values:
    home = os.environ.get("FEDRAY_SPEECH")
    if not home or not (Path(home) / name).is_dir():
        return {"left out": f"FEDRAY_SPEECH names no folder with {name}/"}
    given = {"corpus": name, "root": str(Path(home) / name), "dev_share": 0.2}
    settings = build(DataSettings, sources.from_mapping(given))
    source = sources.from_mapping({"data": given})
    reader = build_section(CORPORA[name], source, "data.options", settings.options)
    with tempfile.TemporaryDirectory(prefix="fedray-gpu-") as cache:
        splits = reader.read(Path(given["root"]), settings.seed, Path(cache), serial)
        data, _ = federate(splits, settings, LogMelSettings(**features), Path(cache), serial)
        return _learn(KEYWORDS | {"features": features}, data, rounds, "accuracy", where)
