"""`fedray pretrain`: contrastive pre-training of a configuration's model, in one process, without clients or Ray.

Its folder holds weights.pt (for `model.init`), losses.jsonl (one row an epoch), config.yaml (every default written
out), broken.tsv where audio was left out, and state.pt. The same command in the same folder resumes from state.pt, bit
for bit on one machine with the same number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from fedray.config.merging import dotted
from fedray.config.schema import plain
from fedray.config.source import ConfigError, Source
from fedray.config.written import as_yaml, recorded
from fedray.core.parallel import serial
from fedray.core.settings import Choice, choice, kinds
from fedray.core.texts import json_text
from fedray.data.features.dataset import Utterances
from fedray.data.features.kinds import FEATURES
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.partition import PartitionSettings
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import federate
from fedray.engine.actors.gpu import deterministic
from fedray.experiment.builders import read_corpus
from fedray.experiment.checks import checked_root, corpus_reader
from fedray.experiment.config import Given, check_name, load_as
from fedray.models import MODELS
from fedray.models.weights import read_saved
from fedray.storage.cache import cache_root
from fedray.storage.claims import claim
from fedray.storage.files import write_whole
from fedray.storage.local import LocalStorage, on_disk
from fedray.storage.serialize import save_tensors
from fedray.training.contrastive import Contrastive, ContrastiveSettings

Progress = Callable[[int, int, str], None]
Say = Callable[[str], None]

SAVE_SECONDS = 10.0  # between checkpoints: an epoch may be much shorter
CLASSES = 2  # of the last layer, which is neither trained nor written
POOLED = PartitionSettings(by="pooled")
BROKEN = "is damaged, or not what fedray writes there: restore the file, or remove it to begin anew"  # of state.pt
FREE = ("name", "contrastive.epochs", "imports")  # what may change when a folder is resumed


@dataclass(frozen=True)
class PretrainingConfig:
    """A configuration file of `fedray pretrain`.

    `features` and `model` must be those of the runs that start from its weights.
    """

    name: str = "pretraining"  # name of the run, a part of its folder's name
    seed: int = 0  # seed of all random draws except those of the corpus
    imports: list[str] = field(default_factory=list)  # the user's modules, imported first: they add to the registries
    data: DataSettings = field(default_factory=DataSettings)  # all training data, of clients and server
    # How a recording becomes the model's input. The default of `bins` is 64.
    features: FeatureSettings = kinds(FEATURES, "logmel", LogMelSettings(bins=64))
    model: Choice = choice(MODELS, "audio_cnn")  # the network whose encoder is trained
    contrastive: ContrastiveSettings = field(default_factory=ContrastiveSettings)

    def __post_init__(self) -> None:
        check_name(self.name)
        data = self.data
        if data.clients == POOLED:
            data = replace(data, clients=PartitionSettings())
        for part in ("clients", "labelled", "corruption", "own_share", "text"):
            if getattr(data, part) != getattr(DataSettings(), part):
                raise ValueError(
                    f"data.{part} has no effect: pre-training uses all clips, unchanged and undivided; remove it"
                )
        if getattr(self.model.settings, "init", None) is not None:
            raise ValueError("model.init has no effect: pre-training starts from random weights; remove it")


@dataclass(frozen=True)
class Pretrained:
    """The result of `pretrain`: the file of weights, the epochs done, the loss."""

    weights: Path
    epochs: int
    loss: float  # of the last epoch


def pretrain(
    config: Given,
    overrides: Iterable[str] = (),
    *,
    out: str | Path | None = None,
    progress: Progress = lambda done, of, what: None,
    say: Say = lambda text: None,
) -> Pretrained:
    """Pre-train to the end, resuming what `out` (default: runs/<name>) holds.

    `progress` gets steps done, all steps and a label; `say` gets lines of text. ValueError: the configuration or the
    data are not usable, or `out` holds another pre-training.
    """
    checked, source = load_as(PretrainingConfig, config, overrides)
    corpus_reader(checked.data, source)
    checked_root(checked.data, source)
    folder = on_disk(out or Path("runs") / checked.name)
    claim(LocalStorage(folder), "a pre-training")
    try:
        with FileLock(folder / ".lock", timeout=0):
            pretrained = _pretrain(checked, source, folder, progress, say)
            if torch.cuda.is_available():  # a sweep continues in this process, and its trials need the GPU's memory
                torch.cuda.empty_cache()
            return pretrained
    except Timeout as error:
        raise ValueError(
            f"{folder}: another process is pre-training here: wait for it, or choose another folder with --out"
        ) from error


def _pretrain(config: PretrainingConfig, source: Source, folder: Path, progress: Progress, say: Say) -> Pretrained:
    data, broken = clips(config, source)
    if broken:
        rows = "".join(f"{utterance}\t{why}\n" for utterance, why in broken.items())
        write_whole(folder / "broken.tsv", rows)
        say(f"{len(broken):,} clips are left out: see {folder / 'broken.tsv'}")
    settings = config.contrastive
    make = MODELS[config.model.kind]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        deterministic(gpu=True)
    running = Contrastive(
        lambda: make(config.model.settings, config.features.bins, CLASSES),
        data,
        config.features.frames(settings.window),
        settings,
        config.seed,
        device,
        config.features.silence,
    )
    described = {"config": recorded(plain(config), source), "data": [data.manifest.fingerprint(), data.features.name]}
    if (folder / "state.pt").exists():
        saved = read_saved(folder / "state.pt", "cpu", BROKEN)
        if not isinstance(saved, dict) or not {"described", "state"} <= saved.keys():
            raise ValueError(f"{folder / 'state.pt'}: {BROKEN}")
        _check_same(saved["described"], described, folder)
        running.load(saved["state"])
        say(f"{folder}: resuming after epoch {running.done}")
    write_whole(folder / "config.yaml", as_yaml(plain(config), source))
    saved_at, of = time.monotonic(), settings.epochs * running.steps
    while running.done < settings.epochs:
        before = running.done * running.steps

        def step(done: int, before: int = before) -> None:
            progress(before + done, of, "pre-training")

        loss = running.epoch(step)
        if time.monotonic() - saved_at >= SAVE_SECONDS or running.done == settings.epochs:
            save(running, described, folder)
            saved_at = time.monotonic()
            say(f"epoch {running.done}: loss {loss:.4f}")
    return Pretrained(folder / "weights.pt", running.done, running.losses[-1])


def clips(config: PretrainingConfig, source: Source) -> tuple[Utterances, dict[str, str]]:
    """All training data of the corpus, and the broken audio that `data.skip_broken` leaves out (utterance -> why)."""
    settings = replace(config.data, clients=POOLED)
    splits = read_corpus(settings, source, serial)
    data, broken = federate(splits, settings, config.features, cache_root() / "features", serial)
    return data.load("all"), broken


def save(running: Contrastive, described: Mapping[str, Any], folder: Path) -> None:
    """Write losses.jsonl, weights.pt and state.pt, each complete or not at all.

    state.pt comes last: the other two follow from it.
    """
    rows = "".join(json_text({"epoch": epoch + 1, "loss": loss}) + "\n" for epoch, loss in enumerate(running.losses))
    write_whole(folder / "losses.jsonl", rows)
    save_tensors(running.weights(), folder / "weights.pt")
    save_tensors({"described": dict(described), "state": running.state()}, folder / "state.pt")


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    then, today = (dotted(described["config"]) for described in (before, now))
    changed = [key for key in sorted(then.keys() | today.keys()) if then.get(key) != today.get(key) and key not in FREE]
    if changed:
        what = ", ".join(f"{key} {then.get(key)}, now {today.get(key)}" for key in changed)
        raise ConfigError(f"{folder} holds another pre-training ({what}): choose another folder with --out")
    if list(before["data"]) != list(now["data"]):
        raise ValueError(
            f"{folder}: the clips differ from those it began with (changed files): choose another folder with --out"
        )
