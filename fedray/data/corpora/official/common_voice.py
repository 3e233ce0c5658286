"""Mozilla Common Voice (Ardila et al., LREC 2020), in any of its languages: sentences that volunteers read at home."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.core.ranges import Amount, Count, Positive, Ranged
from fedray.data.corpora.assembly import corpus_root, unique_ids
from fedray.data.corpora.official.clip_tables import (
    NO_AUDIO,
    Reasons,
    find_language,
    manifest,
    read_rows,
    spoken,
    with_accents,
    with_seconds,
    with_suffix,
    without,
)
from fedray.data.corpora.official.layout import leave_out, names_in
from fedray.data.manifest import Manifest
from fedray.data.text.normalisation import Normaliser

COLUMNS = ("client_id", "path", "sentence")  # the columns that all versions have


@dataclass(frozen=True)
class CommonVoice(Ranged):
    """The speaker is the first 16 digits of client_id, the text the sentence.

    The tables have no quoting in any version. Lengths come from clip_durations.tsv (since version 17), or else from the
    mp3 files, read in parallel. The reader leaves out lines with missing fields, sentences without a letter, clips that
    are missing or unreadable, and clips outside the limits on words and seconds.

    For version 6.1, Gao et al. (2022) give the server half of the clips, from those of 4,212 French speakers who
    recorded most: data.server={utterances: 0.5, largest: true}.
    """

    # a folder such as fr, in data.root or in its folder cv-corpus-...; null: data.root holds one language
    language: str | None = None
    # tables, without .tsv; with [validated], use data.dev_share and data.test_share
    train: list[str] = field(default_factory=lambda: ["train"])
    dev: str | None = "dev"  # table of the development set; null: none
    test: str | None = "test"  # table of the test set; null: none
    punctuation: bool = False  # false: keep only words, by the rules of the language in docs/corpora.md
    lower_case: bool = True  # converts the text to lower case, by the rules of the language
    # words of the shortest sentence that is kept; characters in languages that write no spaces between words
    min_words: Count = 1
    min_seconds: Amount = 0.0  # shorter clips are left out
    max_seconds: Positive | None = None  # longer clips of `train` are left out (Gao et al.: 8); null: none
    # Keep speakers whose accent begins with one of these, ignoring case; the label is the beginning. For the English
    # tables of all versions: england, australia, india, canad. []: all speakers, without labels
    accents: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.train:
            raise ValueError("data.options.train names no table: give one or more, such as [train]")
        if self.max_seconds is not None and self.max_seconds <= self.min_seconds:
            raise ValueError(
                f"data.options.max_seconds must be above min_seconds ({self.min_seconds}), not {self.max_seconds}"
            )

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits that the settings name. Raises ValueError for missing or wrong folders and tables."""
        root = corpus_root(root, "the folders of the languages (fr/, ...), each with clips/ and tables")
        home = find_language(root, self.language)
        clips = pa.array(names_in(home / "clips"), pa.large_string())
        parts: dict[str, list[Manifest]] = {}
        tables = [*(("train", name) for name in self.train), ("dev", self.dev), ("test", self.test)]
        for split, name in tables:
            if name is not None:
                parts.setdefault(split, []).append(self._read(home, home / f"{name}.tsv", split, clips, parallel))
        splits = {split: Manifest.concat(manifests) for split, manifests in parts.items()}
        unique_ids(splits)
        return splits

    def _read(self, home: Path, path: Path, split: str, clips: pa.Array, parallel: Parallel) -> Manifest:
        table, reasons = self._rows(path, split)
        total = len(table) + sum(map(len, reasons.values()))
        table = with_suffix(table)
        normalise = Normaliser(spoken(home, self.language), self.lower_case, self.punctuation)
        table = table.append_column("text", normalise.column(table["sentence"]))
        for column in ("client_id", "path"):
            table = without(table, pc.equal(table[column], ""), f"without {column}", reasons)
        table = without(table, pc.invert(pc.is_in(table["path"], value_set=clips)), NO_AUDIO, reasons)
        table = without(table, pc.equal(table["text"], ""), "without a letter", reasons)
        in_characters = normalise.in_characters
        words = pc.utf8_length(table["text"]) if in_characters else pc.add(pc.count_substring(table["text"], " "), 1)
        table = without(table, pc.less(words, self.min_words), f"shorter than {self.min_words} words", reasons)
        if self.accents:
            table = with_accents(table, self.accents, reasons)
        longest = self.max_seconds if split == "train" else None  # dev and test are scored whole
        table = with_seconds(table, home, self.min_seconds, longest, parallel, reasons)
        leave_out(path, total, reasons)
        if not len(table):
            raise ValueError(f"{path}: no recording is left of {total:,}: complete clips/, or change data.options")
        return manifest(table, home, path)

    def _rows(self, path: Path, split: str) -> tuple[pa.Table, Reasons]:
        """The rows of a table, and its lines with missing or extra fields. Raises ValueError if there is no table."""
        if not path.is_file():
            others = ", ".join(sorted(file.stem for file in path.parent.glob("*.tsv")))
            optional = "" if split == "train" else " (null: none)"
            raise ValueError(f"{path} is missing: set data.options.{split} to one of {others}{optional}")
        return read_rows(path, COLUMNS, bool(self.accents))
