"""`fedray pretrain`: contrastive pre-training of a configuration's model, in one process, without clients and without Ray.

A folder of it holds weights.pt (what `model.init` starts from), losses.jsonl (one row an epoch), config.yaml (every default written out),
broken.tsv where audio was left out, and state.pt: the same command in the same folder goes on from there, bit for bit on one machine with
as many threads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from filelock import FileLock, Timeout

from fedray import experiment, programs
from fedray.core.cache import cache_root, write_atomically
from fedray.core.config import ConfigError, Source, kind_of, kinds, plain
from fedray.core.parallel import serial
from fedray.data.dataset import Utterances
from fedray.data.features import FeatureSettings
from fedray.data.federated import DataSettings, federate
from fedray.data.partition import PartitionSettings
from fedray.models import MODELS
from fedray.training.contrastive import Contrastive, ContrastiveSettings

SAVE_SECONDS = 10.0  # between two checkpoints: an epoch may be much shorter
CLASSES = 2  # of the last layer, which is not trained and not written
POOLED = PartitionSettings(by="pooled")
FREE = ("name", "contrastive.epochs", "imports")  # what may differ where a folder is gone on with


@dataclass(frozen=True)
class PretrainingConfig:
    """A configuration file of `fedray pretrain`. `features` and `model` must be those of the runs that start from it."""

    name: str = "pretraining"
    seed: int = 0
    imports: list[str] = field(default_factory=list)
    data: DataSettings = field(default_factory=DataSettings)  # all its training data, the clients' and the server's
    features: FeatureSettings = field(default_factory=lambda: FeatureSettings(bins=64))
    model: Any = kinds(MODELS, "audio_cnn")
    contrastive: ContrastiveSettings = field(default_factory=ContrastiveSettings)

    def __post_init__(self) -> None:
        data = self.data
        if data.clients == POOLED:
            data = replace(data, clients=PartitionSettings())
        for part in ("clients", "labelled", "corruption"):
            if getattr(data, part) != getattr(DataSettings(), part):
                raise ValueError(f"data.{part} has no effect: pre-training takes all clips as they are, whoever has them; remove it")
        if getattr(self.model, "init", None) is not None:
            raise ValueError("model.init has no effect: pre-training starts from random weights; remove it")


@dataclass(frozen=True)
class Pretrained:
    weights: Path
    epochs: int
    loss: float  # of the last epoch


def pretrain(
    config: str | Path | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    out: str | Path | None = None,
    progress: Callable[[int, int, str], None] = lambda done, of, what: None,
    say: Callable[[str], None] = lambda text: None,
) -> Pretrained:
    """Pre-train to the end, from where `out` (default: runs/<name>) has come. ValueError where that holds another pre-training."""
    checked, source = experiment.load(config, overrides, into=PretrainingConfig)
    folder = Path(out or Path("runs") / checked.name)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            return _pretrain(checked, source, folder, progress, say)
    except Timeout as error:
        raise ValueError(f"{folder}: another process is at work there") from error


def _pretrain(
    config: PretrainingConfig, source: Source, folder: Path, progress: Callable[[int, int, str], None], say: Callable[[str], None]
) -> Pretrained:
    data, broken = clips(config, source)
    if broken:
        write_atomically(folder / "broken.tsv", lambda path: path.write_text("".join(f"{u}\t{why}\n" for u, why in broken.items())))
        say(f"{len(broken):,} clips are left out: see {folder / 'broken.tsv'}")
    settings = config.contrastive
    make = MODELS[kind_of(config.model, MODELS)]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    running = Contrastive(
        lambda: make(config.model, config.features.bins, CLASSES),
        data,
        config.features.frames(settings.window),
        settings,
        config.seed,
        device,
    )
    described = {"config": plain(config), "data": [data.manifest.fingerprint(), data.features.name]}
    if (folder / "state.pt").exists():
        saved = torch.load(folder / "state.pt", map_location=device, weights_only=True)
        _check_same(saved["described"], described, folder)
        running.load(saved["state"])
        say(f"{folder}: going on behind epoch {running.done}")
    write_atomically(folder / "config.yaml", lambda path: path.write_text(yaml.safe_dump(plain(config), sort_keys=False), encoding="utf-8"))
    saved_at, of = time.monotonic(), settings.epochs * running.steps
    while running.done < settings.epochs:
        before = running.done * running.steps
        loss = running.epoch(lambda done, before=before: progress(before + done, of, "pre-training"))
        if time.monotonic() - saved_at >= SAVE_SECONDS or running.done == settings.epochs:
            save(running, described, folder)
            saved_at = time.monotonic()
            say(f"epoch {running.done}: loss {loss:.4f}")
    return Pretrained(folder / "weights.pt", running.done, running.losses[-1])


def clips(config: PretrainingConfig, source: Source) -> tuple[Utterances, dict[str, str]]:
    """All training data of the corpus, and the broken audio that `data.skip_broken` left out (utterance -> why)."""
    settings = replace(config.data, clients=POOLED)
    splits = programs.read_corpus(replace(config, data=settings), source, serial)
    data, broken = federate(splits, settings, config.features, cache_root() / "features", serial)
    return data.load("all"), broken


def save(running: Contrastive, described: Mapping[str, Any], folder: Path) -> None:
    """Each file is complete or as it was; the state last, which the others follow from."""
    rows = "".join(json.dumps({"epoch": epoch + 1, "loss": loss}) + "\n" for epoch, loss in enumerate(running.losses))
    write_atomically(folder / "losses.jsonl", lambda path: path.write_text(rows, encoding="utf-8"))
    write_atomically(folder / "weights.pt", lambda path: torch.save(running.weights(), path))
    state = {"described": dict(described), "state": running.state()}
    write_atomically(folder / "state.pt", lambda path: torch.save(state, path))


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    then, today = (dict(_flat(described["config"])) for described in (before, now))
    changed = [key for key in sorted(then.keys() | today.keys()) if then.get(key) != today.get(key) and key not in FREE]
    if changed:
        what = ", ".join(f"{key} {then.get(key)}, now {today.get(key)}" for key in changed)
        raise ConfigError(f"{folder} holds another pre-training ({what}): choose another folder with --out")
    if list(before["data"]) != list(now["data"]):
        raise ValueError(f"{folder}: the clips are not those it began with (changed files): choose another folder with --out")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
