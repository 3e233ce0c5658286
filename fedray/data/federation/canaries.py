"""Canaries are made-up clients who say random words too fast: a model can only learn them by heart.

As in Wang, Thakkar, Mathews. Unintended Memorization in Large ASR Models, and How to Mitigate It. ICASSP 2024 (arXiv
2310.11739), words in random order are spoken by a synthesiser and sped up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedray.core import seeds
from fedray.core.parallel import Parallel
from fedray.core.privacy.audits import PREFIX, Canaries
from fedray.data.corpora.synthesis import espeak, lexicon, making
from fedray.data.corpora.synthesis.recipe import Recipe
from fedray.data.corpora.synthesis.recording import Session, record
from fedray.data.corpora.synthesis.rooms import SAMPLE_RATE
from fedray.data.corpora.synthesis.speakers import clean, draw
from fedray.data.manifest import Manifest
from fedray.storage.cache import cached, key

WORDS = (4, 8)  # in an utterance, both ends included


def add_canaries(clients: Manifest, settings: Canaries, seed: int, cache: Path, parallel: Parallel) -> Manifest:
    """Add the data of all canaries to the clients', each utterance `repeat` times. A canary is a speaker.

    Their audio is made below `cache` on first use. Canaries say random words of the clients' transcripts, in an English
    voice. If the clients have no transcripts, canaries say random English words and have no transcripts either. Labels
    and translations are drawn from the clients'. The names of canaries seed all draws. Raises ValueError if espeak-ng
    is not installed, or a client has the name of a canary.
    """
    speakers = pc.unique(clients.table["speaker"])
    if len(taken := speakers.filter(pc.starts_with(speakers, PREFIX))):
        raise ValueError(f"the speaker {taken[0].as_py()!r} has the name of a canary: rename it, or remove audit")
    known = {word for text in _distinct(clients, "text") for word in text.split()}
    words = sorted(known or lexicon.commands("en").vocabulary())
    values = {name: _distinct(clients, name) for name in ("label", "translation")}
    made = {"clients": settings.clients, "utterances": settings.utterances, "speed": settings.speed}
    parts = {"settings": made, "seed": seed, "espeak": espeak.version(), "code": _code(), "words": words}
    build = partial(_record_all, words=words, settings=settings, seed=seed, parallel=parallel)
    folder = cached(Path(cache) / f"canaries-{key(parts)}", build)
    rows = pq.read_table(folder / "manifest.parquet").to_pylist()
    for row in rows:
        row["path"] = str(folder.absolute() / row["path"])
        row["text"] = row["text"] if known else None
        generator = seeds.numpy_generator(seed, "canary", row["utterance"], "values")
        row |= {name: str(generator.choice(found)) for name, found in values.items() if found}
    # A canary's different utterances come before their repetitions: an audit judges it by these.
    repeated = [row | {"utterance": f"{row['utterance']}-{turn}"} for turn in range(settings.repeat) for row in rows]
    return Manifest.concat([clients, Manifest.from_rows(repeated, source=str(folder))])


def _record_all(folder: Path, words: Sequence[str], settings: Canaries, seed: int, parallel: Parallel) -> None:
    """Record every canary into `folder`, and write `manifest.parquet` there."""
    sessions = [_session(name, words, settings, seed) for name in settings.names]
    lengths = parallel(partial(record, folder=folder), sessions, "synthesising canaries")
    rows: list[dict[str, Any]] = []
    for session, samples in zip(sessions, lengths, strict=True):
        starts = np.cumsum([0, *samples[:-1]]).tolist()
        for position, (text, start, length) in enumerate(zip(session.texts, starts, samples, strict=True)):
            place = {"path": session.path, "offset": start / SAMPLE_RATE, "seconds": length / SAMPLE_RATE}
            rows.append({"utterance": f"{session.id}-{position:03d}", "speaker": session.id, "text": text} | place)
    pq.write_table(pa.Table.from_pylist(rows), folder / "manifest.parquet")


def _session(name: str, words: Sequence[str], settings: Canaries, seed: int) -> Session:
    generator = seeds.numpy_generator(seed, "canary", name, "texts")
    lengths = generator.integers(WORDS[0], WORDS[1] + 1, settings.utterances).tolist()
    texts = tuple(" ".join(generator.choice(words, length).tolist()) for length in lengths)
    speaker = draw(name, "en", clean(), seed)
    # `warp` shortens the vocal tract by playing the recording faster.
    return Session(replace(speaker, warp=speaker.warp * settings.speed), texts, False, f"{name}.flac")


def _distinct(clients: Manifest, column: str) -> list[str]:
    """The different values of a column, sorted, without null and without empty ones."""
    return sorted(value for value in pc.unique(clients.table[column]).to_pylist() if value)


def _code() -> str:
    """A hash of the code that makes canaries. A change to it makes them again."""
    return key({"synthesis": making.code(Recipe()), "canaries": Path(__file__).read_text(encoding="utf-8")})
