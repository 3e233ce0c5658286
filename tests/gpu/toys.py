"""Federations in memory, without a corpus or files: a language of patterns that models of any size learn.

Each letter is a pattern of mel bins that lasts `FRAMES_A_LETTER` frames; noise is added to every frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedray.data.features.dataset import Utterances
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Manifest

LETTERS = "abcdefghijklmnopqrstuvwxyz "
FRAMES_A_LETTER = 12  # 0.12 s: three frames of an encoder that keeps every fourth frame


class Patterns:
    """Features in memory, with the interface of a FeatureStore."""

    name, stored = "patterns", "float16"

    def __init__(self, rows: list[npt.NDArray[np.float16]], bins: int) -> None:
        self.rows, self.bins = rows, bins
        self.frames = np.array([len(row) for row in rows], np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> npt.NDArray[np.float16]:
        return self.rows[row]


@dataclass(frozen=True)
class Size:
    """How large a toy federation is."""

    clients: int = 4
    utterances: int = 6  # of each client, of the server and of dev
    letters: tuple[int, int] = (4, 8)  # of an utterance: from, to
    bins: int = 40
    words: int = 4  # classes; an utterance's class is the letter that it begins with
    alphabet: int = 6  # how many of `LETTERS` occur
    labelled: float | None = None  # share of a client's utterances that count as labelled; None: the data do not say
    noise: float = 0.5
    fewer: int = 0  # each client has this many utterances fewer than the one before
    equal: bool = False  # whether all utterances have the same length


def federation(size: Size, seed: int = 0) -> SpeechData:
    """A federation of clients, a server and dev, all with transcripts and labels."""
    generator = np.random.default_rng(seed)
    patterns = generator.standard_normal((len(LETTERS), size.bins)).astype(np.float32)
    parts = {"clients": size.clients, "server": 1, "dev": 1}
    made = {name: _utterances(size, name, speakers, patterns, generator) for name, speakers in parts.items()}
    rows = {f"c{c}": np.arange(size.utterances - c * size.fewer) + c * size.utterances for c in range(size.clients)}
    return SpeechData(made["clients"], rows, {"dev": made["dev"]}, made["server"])


def _utterances(
    size: Size, part: str, speakers: int, patterns: npt.NDArray[np.float32], generator: np.random.Generator
) -> Utterances:
    rows: list[npt.NDArray[np.float16]] = []
    texts, labels = [], []
    for number in range(speakers * size.utterances):
        label = number % size.words
        count = size.letters[1] if size.equal else int(generator.integers(size.letters[0], size.letters[1] + 1))
        letters = np.concatenate([[label], generator.integers(size.alphabet, size=count - 1)])
        clean = np.repeat(patterns[letters], FRAMES_A_LETTER, axis=0)
        rows.append((clean + size.noise * generator.standard_normal(clean.shape)).astype(np.float16))
        texts.append("".join(LETTERS[letter] for letter in letters))
        labels.append(LETTERS[label])
    names = [f"{part}{number}" for number in range(len(rows))]
    columns = {
        "utterance": names,
        "path": [f"/{name}.wav" for name in names],
        "seconds": [len(row) / 100 for row in rows],
        "speaker": [f"{part}{number // size.utterances}" for number in range(len(rows))],
        "text": texts,
        "label": labels,
    }
    labelled = None
    if part == "clients" and size.labelled is not None:
        labelled = np.arange(len(rows)) % size.utterances < max(1, round(size.labelled * size.utterances))
    manifest = Manifest.from_columns(columns, "a toy federation")
    return Utterances(manifest, Patterns(rows, size.bins), np.arange(len(rows)), labelled)  # type: ignore[arg-type]
