"""LibriSpeech (Panayotov et al., 2015; openslr.org/12), and corpora in the same layout, such as mini LibriSpeech."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.core.texts import opened
from fedray.data.corpora.assembly import corpus_root, length_or_reason, unique_ids
from fedray.data.corpora.official.layout import names_in
from fedray.data.corpora.skipping import settled
from fedray.data.manifest import Manifest

Rows = list[tuple[str, str, float | str, str, str]]  # utterance, path, seconds, reader, text


@dataclass(frozen=True)
class LibriSpeech:
    """The speaker is the reader. Each test subset after the first is a split that keeps its name."""

    # subsets that train; each is a folder such as train-clean-100
    train: list[str] = field(default_factory=lambda: ["train-clean-100"])
    dev: list[str] = field(default_factory=lambda: ["dev-clean"])  # subsets that choose the best round
    # subsets that test; the first is the split `test`, others keep their names
    test: list[str] = field(default_factory=lambda: ["test-clean"])
    lower_case: bool = False  # converts the text to lower case; false: LibriSpeech's upper case

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits: split -> manifest. Lengths come from file headers, read in parallel, reader by reader.

        Raises ValueError for a missing subset, for audio without transcript (with the audio file), and for a transcript
        without audio (with file and line).
        """
        root = corpus_root(root, "LibriSpeech/, or its contents (SPEAKERS.TXT, train-clean-100/, ...)")
        home = root / "LibriSpeech" if (root / "LibriSpeech").is_dir() else root
        readers = read_speakers(home / "SPEAKERS.TXT")
        splits: dict[str, Manifest] = {}
        for split, subsets in {"train": self.train, "dev": self.dev, "test": self.test[:1]}.items():
            if subsets:
                splits[split] = Manifest.concat([self._subset(home, subset, readers, parallel) for subset in subsets])
        for subset in self.test[1:]:
            splits[subset] = self._subset(home, subset, readers, parallel)
        unique_ids(splits)
        return splits

    def _subset(self, home: Path, subset: str, readers: set[str], parallel: Parallel) -> Manifest:
        folder = home / subset
        if not folder.is_dir():
            there = ", ".join(sorted(entry.name for entry in home.iterdir() if entry.is_dir())) or "no folders"
            remedy = f"unpack {subset}.tar.gz there, or choose other subsets in data.options (found: {there})"
            raise ValueError(f"{folder} is missing: {remedy}")
        folders = (name for name in names_in(folder) if (folder / name).is_dir())
        names = sorted(folders, key=lambda name: (len(name), name))
        if not names:
            raise ValueError(f"{folder} holds no readers: unpack {subset}.tar.gz again")
        for name in names:
            if name not in readers:
                table = home / "SPEAKERS.TXT"
                raise ValueError(f"{folder / name}: the reader {name} is not in {table}: remove the folder")
        tasks = parallel(_read_reader, [str(folder / name) for name in names], f"Reading {subset}")
        rows = [row for rows_of_reader in tasks for row in rows_of_reader]
        if not rows:
            raise ValueError(f"{folder} holds no transcripts: unpack {subset}.tar.gz again")
        utterances, paths, lengths, speakers, texts = zip(*rows, strict=True)
        seconds = [settled(*each, "Unpack the archive again") for each in zip(paths, lengths, strict=True)]
        words = [text.lower() for text in texts] if self.lower_case else texts
        columns = {"utterance": utterances, "path": paths, "seconds": seconds, "speaker": speakers, "text": words}
        return Manifest.from_columns(columns, str(folder))


def read_speakers(path: Path) -> set[str]:
    """The ids of the readers in SPEAKERS.TXT.

    A name can contain the separator, as in "60 | M | train-clean-100 | 20.18 | |CBW|Simon".
    """
    if not path.is_file():
        remedy = "unpack it from any archive of LibriSpeech, and set data.root to LibriSpeech/ or to its parent"
        raise ValueError(f"{path} is missing: {remedy}")
    readers = set()
    with opened(path) as file:
        for line, text in enumerate(file, start=1):
            if text.startswith(";") or not text.strip():
                continue
            try:
                reader, _, _, minutes, _ = (part.strip() for part in text.split("|", 4))
                float(minutes)
                readers.add(reader)
            except ValueError as problem:
                raise ValueError(
                    f"{path}:{line}: the line must read 'ID | SEX | SUBSET | MINUTES | NAME': restore the file"
                ) from problem
    return readers


def _read_reader(folder: str) -> Rows:
    """All utterances of a reader, by chapter and number."""
    reader = os.path.basename(folder)
    rows: Rows = []
    for chapter in sorted(names_in(folder), key=lambda name: (len(name), name)):
        home = os.path.join(folder, chapter)
        if not os.path.isdir(home):
            continue
        stem = f"{reader}-{chapter}"
        transcripts = os.path.join(home, f"{stem}.trans.txt")
        if not os.path.isfile(transcripts):
            raise ValueError(f"{transcripts} is missing: unpack the archive again")
        audio = {name.removesuffix(".flac") for name in names_in(home) if name.endswith(".flac")}
        with opened(Path(transcripts)) as file:
            for line, text in enumerate(file, start=1):
                utterance, _, words = text.strip().partition(" ")
                if not utterance:
                    continue
                if not words or not utterance.startswith(f"{stem}-"):
                    raise ValueError(
                        f"{transcripts}:{line}: the line must read '{stem}-<number> WORDS': unpack the archive again"
                    )
                path = os.path.join(home, f"{utterance}.flac")
                if utterance not in audio:
                    problem = f"{path} is missing, or an earlier line names it"
                    raise ValueError(f"{transcripts}:{line}: {problem}: unpack the archive again")
                audio.remove(utterance)
                rows.append((utterance, path, length_or_reason(path), reader, words))
        if audio:
            path = os.path.join(home, f"{min(audio)}.flac")
            raise ValueError(f"{path} has no transcript in {transcripts}: unpack the archive again")
    return rows
