"""Canaries: made-up clients who say random words too fast, which a model can only learn by heart.

About half of them take part, and an audit asks how well their scores are told from those of the others. Wang, Thakkar,
Mathews. Unintended Memorization in Large ASR Models, and How to Mitigate It. ICASSP 2024 (arXiv 2310.11739): there as
well words in random order are spoken by a synthesiser and sped up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedray.core import seeds
from fedray.core.parallel import Parallel
from fedray.core.ranges import Count, Natural, Positive
from fedray.data.corpora.synthesis import espeak, lexicon, making
from fedray.data.corpora.synthesis.recipe import Recipe
from fedray.data.corpora.synthesis.recording import Session, record
from fedray.data.corpora.synthesis.rooms import SAMPLE_RATE
from fedray.data.corpora.synthesis.speakers import clean, draw
from fedray.data.federation.partition import PartitionSettings
from fedray.data.manifest import Manifest
from fedray.storage.cache import cached, key

PREFIX = "canary-"  # begins the names of canaries and of their utterances
WORDS = (4, 8)  # in an utterance, both ends included
FASTEST = 4.0  # times the usual speed


@dataclass(frozen=True)
class AuditSettings:
    """The section `audit` of a configuration: canaries that tell how much the released models give away."""

    clients: Natural = 0  # canaries, of whom a fair coin each decides who takes part; 0: no audit
    utterances: Count = 8  # of a canary
    repeat: Count = 4  # how often each utterance is among its canary's training data
    speed: Positive = 2.0  # how much faster than usual a canary speaks

    def __post_init__(self) -> None:
        if 0 < self.clients < 4:
            raise ValueError(f"clients must be at least 4, or 0 for no audit, not {self.clients}")
        if not 0.5 <= self.speed <= FASTEST:
            raise ValueError(f"speed must be from 0.5 to {FASTEST:g}, not {self.speed}")

    def check(self, partition: PartitionSettings) -> None:
        """ValueError: the partition would mix a canary's utterances with others, or leave some of them out."""
        if not self.clients:
            return
        if partition.by != "speaker":
            raise ValueError(f"audit needs data.clients.by=speaker, not {partition.by}: a canary is a client by itself")
        if partition.count is not None:
            raise ValueError("data.clients.count would leave some of the canaries out: remove it, or remove audit")
        size = self.utterances * self.repeat
        if partition.min_utterances > size or (partition.max_utterances or size) < size:
            raise ValueError(
                f"a canary has {self.utterances} x {self.repeat} utterances, which data.clients.min_utterances or "
                "data.clients.max_utterances leaves out: change them, or audit.utterances"
            )


@dataclass(frozen=True)
class Canaries:
    """Manifests of canaries. A canary is a speaker."""

    training: Manifest  # those who take part, each utterance `repeat` times
    inside: Manifest  # those who take part, each utterance once
    outside: Manifest  # those who do not

    def among(self, clients: Manifest) -> Manifest:
        """The clients' data with the canaries who take part. ValueError: a client has the name of a canary."""
        speakers = pc.unique(clients.table["speaker"])
        if len(taken := speakers.filter(pc.starts_with(speakers, PREFIX))):
            raise ValueError(f"the speaker {taken[0].as_py()!r} has the name of a canary: rename it, or remove audit")
        return Manifest.concat([clients, self.training])


def is_canary(client: str) -> bool:
    """Whether a client is a canary, by its name."""
    return client.startswith(PREFIX)


def make_canaries(clients: Manifest, settings: AuditSettings, seed: int, cache: Path, parallel: Parallel) -> Canaries:
    """The canaries of a federation. Their audio is made below `cache` on first use.

    They say random words of the clients' transcripts, in an English voice. Where the clients have no transcripts, they
    say random English words, and have none either. Labels and translations are random ones of the clients. The names of
    canaries seed all draws. ValueError: espeak-ng is not installed, or the coins leave fewer than two on a side.
    """
    known = {word for text in _distinct(clients, "text") for word in text.split()}
    words = sorted(known or lexicon.commands("en").vocabulary())
    values = {name: _distinct(clients, name) for name in ("label", "translation")}
    names = [f"{PREFIX}{index:04d}" for index in range(settings.clients)]
    takes_part = {name: seeds.numpy_generator(seed, "canary", name, "coin").random() < 0.5 for name in names}
    count = sum(takes_part.values())
    if min(count, len(names) - count) < 2:
        raise ValueError(
            f"of {len(names)} canaries {count} take part, and an audit needs two or more inside and outside: raise "
            "audit.clients"
        )
    parts = {"settings": asdict(settings), "seed": seed, "espeak": espeak.version(), "code": _code(), "words": words}
    build = partial(_record_all, names=names, words=words, settings=settings, seed=seed, parallel=parallel)
    folder = cached(Path(cache) / f"canaries-{key(parts)}", build)
    rows = pq.read_table(folder / "manifest.parquet").to_pylist()
    for row in rows:
        row["path"] = str(folder.absolute() / row["path"])
        row["text"] = row["text"] if known else None
        generator = seeds.numpy_generator(seed, "canary", row["utterance"], "values")
        row |= {name: str(generator.choice(found)) for name, found in values.items() if found}
    inside = [row for row in rows if takes_part[row["speaker"]]]
    outside = [row for row in rows if not takes_part[row["speaker"]]]
    repeated = [row | {"utterance": f"{row['utterance']}-{turn}"} for turn in range(settings.repeat) for row in inside]
    return Canaries(*(Manifest.from_rows(found, source=str(folder)) for found in (repeated, inside, outside)))


def _record_all(
    folder: Path, names: Sequence[str], words: Sequence[str], settings: AuditSettings, seed: int, parallel: Parallel
) -> None:
    """Record every canary into `folder`, and write `manifest.parquet` there."""
    sessions = [_session(name, words, settings, seed) for name in names]
    lengths = parallel(partial(record, folder=folder), sessions, "synthesising canaries")
    rows: list[dict[str, Any]] = []
    for session, samples in zip(sessions, lengths, strict=True):
        starts = np.cumsum([0, *samples[:-1]]).tolist()
        for position, (text, start, length) in enumerate(zip(session.texts, starts, samples, strict=True)):
            place = {"path": session.path, "offset": start / SAMPLE_RATE, "seconds": length / SAMPLE_RATE}
            rows.append({"utterance": f"{session.id}-{position:03d}", "speaker": session.id, "text": text} | place)
    pq.write_table(pa.Table.from_pylist(rows), folder / "manifest.parquet")


def _session(name: str, words: Sequence[str], settings: AuditSettings, seed: int) -> Session:
    generator = seeds.numpy_generator(seed, "canary", name, "texts")
    lengths = generator.integers(WORDS[0], WORDS[1] + 1, settings.utterances).tolist()
    texts = tuple(" ".join(generator.choice(words, length).tolist()) for length in lengths)
    speaker = draw(name, "en", clean(), seed)
    # A shorter vocal tract is a recording that is played faster.
    return Session(replace(speaker, warp=speaker.warp * settings.speed), texts, False, f"{name}.flac")


def _distinct(clients: Manifest, column: str) -> list[str]:
    """The different values of a column, sorted, without null and without empty ones."""
    return sorted(value for value in pc.unique(clients.table[column]).to_pylist() if value)


def _code() -> str:
    """A hash of the code that makes canaries: a change of it makes them anew."""
    return key({"synthesis": making.code(Recipe()), "canaries": Path(__file__).read_text(encoding="utf-8")})
