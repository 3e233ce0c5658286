"""`fedray data CONFIG --study OTHER`: how much the clients of two configurations differ in what their recordings sound like."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from fedray import experiment, programs
from fedray.data import acoustics, heterogeneity
from fedray.data.federated import divide
from fedray.data.heterogeneity import Embed
from fedray.data.labelled import shared_rows
from fedray.data.partition import partition
from fedray.engine import session
from fedray.models import speaker
from fedray.report.heterogeneity import Federation, Study, save


@dataclass(frozen=True)
class StudySettings:
    clients: int = 100  # of each federation, at most; drawn at random with the data's seed
    utterances: int = 10  # of each client, at most
    embeddings: str | None = None  # weights of a SpeechBrain ECAPA-TDNN; None: statistics of log-mels

    def __post_init__(self) -> None:
        if self.clients < 2 or self.utterances < 2:
            raise ValueError("a study compares clients and their utterances: --clients and --utterances must be at least 2")


Side = tuple[str | os.PathLike[str], Iterable[str]]  # a configuration and its overrides


def study(one: Side, other: Side, out: Path, settings: StudySettings) -> Path:
    """Measure the training speech of both federations and write the report below `out`; returns where report.html is.

    Raises ValueError for configurations and data that no run could use, and without the extra `study`.
    """
    if missing := [name for name in ("librosa", "sklearn") if find_spec(name) is None]:
        raise ValueError(f"a data study needs {' and '.join(missing)}: pip install 'fedray[study]'")
    embed: Embed = acoustics.mel_statistics
    told = "statistics of log-mels"
    if settings.embeddings is not None:
        weights = str(Path(settings.embeddings).resolve())
        speaker.check(weights)
        embed, told = partial(speaker.embed, weights=weights), "speaker embeddings (ECAPA-TDNN)"
    first, second = (federation(side, settings, embed) for side in (one, other))
    if second.name == first.name:
        second = replace(second, name=f"{second.name} (other)")
    save(Study(first, second, told, seed=0), out)
    return out / "report.html"


def federation(side: Side, settings: StudySettings, embed: Embed) -> Federation:
    config, source = experiment.load(*side)
    data = config.data
    _, mine, _ = divide(programs.read_corpus(config, source), data)
    clients = partition(mine, data.clients, data.seed, shared_rows(mine, data.labelled, data.seed))
    drawn = heterogeneity.sample(clients, settings.clients, settings.utterances, data.seed)
    sounds = heterogeneity.measure(mine, drawn, embed, session.parallel, config.name)
    heard = f"{len(sounds.clients):,} utterances of {sounds.population:,} of its {len(clients):,} clients, divided by {data.clients.by}"
    lost = f"; {len(sounds.left_out):,} utterances could not be measured" if sounds.left_out else ""
    place = f" in {data.root}" if data.root else ""
    return Federation.of(config.name, f"corpus {data.corpus}{place}; {heard}{lost}.", sounds, data.seed)
