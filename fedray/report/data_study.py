"""`fedray data CONFIG --study OTHER`: compares how clients differ in amount and sound of speech in two federations."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedray import experiment
from fedray.data.analysis import acoustics, differences
from fedray.data.analysis.differences import Embed
from fedray.engine.driver import session
from fedray.models import speaker
from fedray.report.data_study_page import DataStudy, Federation, save
from fedray.storage.claims import claim
from fedray.storage.local import LocalStorage


@dataclass(frozen=True)
class StudySettings:
    """How much speech of two federations a study measures, and with which embeddings."""

    clients: int = 100  # maximum per federation, drawn with the seed of the data
    utterances: int = 10  # maximum per client
    embeddings: str | None = None  # file with weights of a SpeechBrain ECAPA-TDNN; None: statistics of log-mels

    def __post_init__(self) -> None:
        if self.clients < 2 or self.utterances < 2:
            raise ValueError("--clients and --utterances must be at least 2: a study compares clients and utterances")


Side = tuple[str | os.PathLike[str], Iterable[str]]  # a configuration and its overrides


def study(one: Side, other: Side, out: Path, settings: StudySettings) -> Path:
    """Measure the training speech of both federations and write a report to `out`; returns the path of report.html.

    Raises ValueError if a run would refuse the configuration or the data, or if the extra `study` is not installed.
    """
    if missing := [name for name in ("librosa", "sklearn") if find_spec(name) is None]:
        raise ValueError(f"a data study needs {' and '.join(missing)}: pip install 'fedray[study]'")
    claim(LocalStorage(out), "a study of data")
    embed: Embed = acoustics.mel_statistics
    name = "statistics of log-mels"
    if settings.embeddings is not None:
        weights = str(Path(settings.embeddings).resolve())
        speaker.check(weights)
        embed, name = partial(speaker.embed, weights=weights), "speaker embeddings (ECAPA-TDNN)"
    first, second = (federation(side, settings, embed) for side in (one, other))
    if second.name == first.name:
        second = replace(second, name=f"{second.name} (other)")
    save(DataStudy(first, second, name, seed=0), out)
    return out / "report.html"


def federation(side: Side, settings: StudySettings, embed: Embed) -> Federation:
    """Measure a sample of the training utterances of a configuration's clients."""
    config, source = experiment.load(*side)
    data = config.data
    parts, clients = experiment.read_federation(config, source)
    training = parts["clients"]
    drawn = differences.sample(clients, settings.clients, settings.utterances, data.seed)
    sounds = differences.measure(training, drawn, embed, session.parallel, config.name)
    sample = f"{len(sounds.clients):,} utterances of {sounds.population:,} of its {len(clients):,} clients"
    lost = f"; {len(sounds.left_out):,} utterances could not be measured" if sounds.left_out else ""
    place = f" in {data.root}" if data.root else ""
    words = f"corpus {data.corpus}{place}; {sample}, divided by {data.clients.by}{lost}."
    utterances = np.array([len(rows) for rows in clients.values()])
    return Federation.of(config.name, words, utterances, sounds, data.seed)
