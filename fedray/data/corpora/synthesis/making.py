"""Make a corpus: record all speakers, and list their utterances in a manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.core.parallel import Parallel
from fedray.data.corpora.synthesis import lexicon
from fedray.data.corpora.synthesis.recipe import Recipe
from fedray.data.corpora.synthesis.recording import record
from fedray.data.corpora.synthesis.rooms import SAMPLE_RATE
from fedray.data.corpora.synthesis.sessions import TRAINING, labels, sessions
from fedray.storage.cache import file_hash

TEXTS = pa.string()
SCHEMA = pa.schema(
    [("split", TEXTS), ("utterance", TEXTS), ("path", TEXTS), ("offset", pa.float64()), ("seconds", pa.float64())]
    + [("speaker", TEXTS), ("text", TEXTS), ("label", TEXTS)]
)
# The modules that decide the audio and the texts of every kind; emotions and events have more.
MODULES = ("making", "sessions", "speakers", "sentences", "lexicon", "recording", "rooms", "espeak")
YEAR_2000, SPAN = 946_684_800, 500_000_000  # seconds: the times of recordings, from 2000 to 2015
FURTHER = {"emotions": ("emotions",), "events": ("events", "sounds")}


def make(folder: Path, recipe: Recipe, seed: int, parallel: Parallel) -> None:
    """Record every speaker into `folder`, and write `manifest.parquet` there."""
    planned = list(sessions(recipe, seed))
    heard = {text for split, session in planned if split in TRAINING for text in session.texts}
    rows = []
    lengths = parallel(partial(record, folder=folder), [session for _, session in planned], "synthesising speakers")
    for (split, session), samples in zip(planned, lengths, strict=True):
        start = 0
        found = zip(session.texts, labels(recipe, split, session, heard), samples, strict=True)
        for position, (text, label, count) in enumerate(found):
            rows.append(
                {
                    "split": split,
                    "utterance": f"{session.id}-{position:03d}",
                    "path": session.path,
                    "offset": start / SAMPLE_RATE,
                    "seconds": count / SAMPLE_RATE,
                    "speaker": session.id,
                    "text": text,
                    "label": label,
                }
            )
            start += count
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "manifest.parquet")
    for name in {session.path for _, session in planned}:
        _stamp(folder / name)


def _stamp(path: Path) -> None:
    """Let a file's contents decide its modification time: a corpus that is made again has the same fingerprint."""
    since_2000 = int(file_hash(path)[:15], 16) % (SPAN * 10**9)
    os.utime(path, ns=(YEAR_2000 * 10**9 + since_2000,) * 2)


def code(recipe: Recipe) -> str:
    """A hash of the code and lexicons that make a corpus. A change to any of them makes the corpus again."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sources(recipe):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources(recipe: Recipe) -> Iterator[Path]:
    """The files that decide a corpus."""
    here = Path(__file__).parent
    yield from (here / f"{name}.py" for name in (*MODULES, *FURTHER.get(recipe.kind, ())))
    if recipe.kind == "events":
        return
    yield from (lexicon.commands_file(language) for language in sorted(recipe.languages))
    # The server may read the words of all domains.
    yield from map(lexicon.domain_file, lexicon.DOMAINS if recipe.server_words else sorted(recipe.domains))
