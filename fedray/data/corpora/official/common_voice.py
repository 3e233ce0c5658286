"""Mozilla Common Voice (Ardila et al., LREC 2020), in any of its languages: sentences that volunteers read at home."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from fedray.core.parallel import Parallel
from fedray.core.ranges import Amount, Natural, Positive
from fedray.data.corpora.assembly import check_fetched, corpus_root, measure, unique_ids
from fedray.data.corpora.official.layout import leave_out, names_in
from fedray.data.manifest import Manifest

COLUMNS = ("client_id", "path", "sentence")  # the columns that all versions have
SPEAKER = 16  # of client_id's 128 hexadecimal digits
NO_AUDIO = "without audio in clips/"

Reasons = dict[str, Collection[str]]


@dataclass(frozen=True)
class CommonVoice:
    """The speaker is the first 16 digits of client_id, the text the sentence.

    Its tables have no quoting, in any version. Lengths come from clip_durations.tsv (since version 17), or else from
    the mp3 files, read in parallel. Left out are lines with missing fields, sentences without a letter, clips that are
    missing or unreadable, and clips outside the limits on words and seconds.

    For version 6.1, Gao et al. (2022) give the server those of 4,212 French speakers who recorded most, together half
    of the clips: data.server={utterances: 0.5, largest: true}.
    """

    # a folder such as fr, in data.root or in a cv-corpus-... in it; null: data.root holds one language
    language: str | None = None
    # tables, without .tsv; with [validated], use data.dev_share and data.test_share
    train: list[str] = field(default_factory=lambda: ["train"])
    dev: str | None = "dev"  # table of the development set; null: none
    test: str | None = "test"  # table of the test set; null: none
    punctuation: bool = False  # false: keep letters, digits and the apostrophes inside words only
    lower_case: bool = True  # converts the text to lower case
    min_words: Natural = 1  # words of the shortest sentence that is kept
    min_seconds: Amount = 0.0  # shorter clips are left out
    max_seconds: Positive | None = None  # longer clips are left out (Gao et al.: 8); null: none
    # Keep speakers whose accent begins with one of these, in any case; the label is the beginning. For the English
    # tables of all versions: england, australia, india, canad. []: all speakers, without label
    accents: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.train:
            raise ValueError("data.options.train names no table: give one or more, such as [train]")
        if self.min_words < 1:
            raise ValueError(f"data.options.min_words must be at least 1, not {self.min_words}")
        if self.min_seconds < 0:
            raise ValueError(f"data.options.min_seconds must be at least 0, not {self.min_seconds}")
        if self.max_seconds is not None and self.max_seconds <= self.min_seconds:
            raise ValueError(
                f"data.options.max_seconds must be above min_seconds ({self.min_seconds}), not {self.max_seconds}"
            )

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits that the settings name. Raises ValueError for folders and tables that are missing or wrong."""
        root = corpus_root(root, "the folders of the languages (fr/, ...), each with clips/ and tables")
        home = find_language(root, self.language)
        clips = pa.array(names_in(home / "clips"), pa.large_string())
        durations = read_durations(home / "clip_durations.tsv")
        parts: dict[str, list[Manifest]] = {}
        tables = [*(("train", name) for name in self.train), ("dev", self.dev), ("test", self.test)]
        for split, name in tables:
            if name is not None:
                parts.setdefault(split, []).append(
                    self._read(home, home / f"{name}.tsv", split, clips, durations, parallel)
                )
        splits = {split: Manifest.concat(manifests) for split, manifests in parts.items()}
        unique_ids(splits)
        return splits

    def _read(
        self, home: Path, path: Path, split: str, clips: pa.Array, durations: pa.Table | None, parallel: Parallel
    ) -> Manifest:
        table, reasons = read_rows(path, split, bool(self.accents))
        total = len(table) + sum(map(len, reasons.values()))
        names = pc.replace_substring_regex(table["path"], r"^([^.]+)$", r"\1.mp3")  # some versions omit .mp3
        table = table.set_column(table.column_names.index("path"), "path", names)
        table = table.append_column("text", self._texts(table["sentence"]))
        for column in ("client_id", "path"):
            table = _without(table, pc.equal(table[column], ""), f"without {column}", reasons)
        table = _without(table, pc.invert(pc.is_in(table["path"], value_set=clips)), NO_AUDIO, reasons)
        table = _without(table, pc.equal(table["text"], ""), "without a letter", reasons)
        words = pc.add(pc.count_substring(table["text"], " "), 1)
        table = _without(table, pc.less(words, self.min_words), f"shorter than {self.min_words} words", reasons)
        if self.accents:
            table = table.append_column("label", _begins(table["accent"], self.accents))
            table = _without(
                table, pc.is_null(table["label"]), f"of no accent that begins with {', '.join(self.accents)}", reasons
            )
        seconds, unreadable = self._seconds(home, table["path"], durations, parallel)
        table = table.append_column("seconds", pa.array(seconds))
        for why in dict.fromkeys(unreadable.values()):
            bad = pa.array([name for name, reason in unreadable.items() if reason == why], pa.large_string())
            table = _without(table, pc.is_in(table["path"], value_set=bad), why, reasons)
        table = _without(
            table, pc.less(table["seconds"], self.min_seconds), f"shorter than {self.min_seconds} s", reasons
        )
        if self.max_seconds is not None:
            table = _without(
                table, pc.greater(table["seconds"], self.max_seconds), f"longer than {self.max_seconds} s", reasons
            )
        leave_out(path, total, reasons)
        if not len(table):
            raise ValueError(f"{path}: no recording is left of {total:,}: complete clips/, or change data.options")
        return Manifest.from_columns(_columns(table, home, path), str(path))

    def _texts(self, sentences: pa.ChunkedArray) -> pa.ChunkedArray:
        texts = pc.utf8_normalize(sentences, form="NFC")
        if self.lower_case:
            texts = pc.utf8_lower(texts)
        if not self.punctuation:
            for pattern, becomes in (
                ("[’ʼ´`]", "'"),
                (r"[^\p{L}\p{M}\p{N}']+", " "),
                (r"'+( |$)", r"\1"),
                (r"(^| )'+", r"\1"),
            ):
                texts = pc.replace_substring_regex(texts, pattern, becomes)
        return pc.utf8_trim(pc.replace_substring_regex(texts, r"[\s\p{Z}]+", " "), " ")

    def _seconds(
        self, home: Path, names: pa.ChunkedArray, durations: pa.Table | None, parallel: Parallel
    ) -> tuple[np.ndarray, dict[str, str]]:
        """Seconds [clips], NaN for unreadable clips; and unreadable clip -> reason."""
        seconds = np.full(len(names), np.nan)
        if durations is not None:
            found = pc.index_in(names, value_set=durations["clip"].combine_chunks())
            seconds = (
                pc.divide(pc.take(durations["duration[ms]"], found), 1000.0)
                .to_numpy(zero_copy_only=False)
                .astype(np.float64)
            )
        unknown = np.flatnonzero(~(seconds > 0))
        asked = pc.take(names, pa.array(unknown)).to_pylist()
        lengths, problems = measure([str(home / "clips" / name) for name in asked], parallel)
        unreadable: dict[str, str] = {}
        for row, name in zip(unknown.tolist(), asked, strict=True):
            path = str(home / "clips" / name)
            if path in problems:
                unreadable[name] = problems[path]
            else:
                seconds[row] = lengths[path]
        return seconds, unreadable


def find_language(root: Path, language: str | None) -> Path:
    """The folder of a language, which contains clips/. Raises ValueError with the languages to choose from."""
    releases = [root, *sorted(folder for folder in root.glob("cv-corpus-*") if folder.is_dir())]
    inside = [
        folder
        for release in releases
        for folder in (release, *sorted(release.iterdir()))
        if (folder / "clips").is_dir()
    ]
    known = {folder.name: folder for folder in inside}
    if len(known) < len(set(inside)):
        names = ", ".join(release.name for release in releases[1:])
        raise ValueError(f"{root} holds several releases of a language: set data.root to one of {names}")
    if language in known:
        return known[language]
    if language is None and len(known) == 1:
        return next(iter(known.values()))
    if not known:
        raise ValueError(f"{root} holds no folder with clips/: unpack the archive of a language there")
    wanted = "one language" if language is None else f"the language {language!r}"
    raise ValueError(
        f"{root} does not hold {wanted}, but {', '.join(sorted(known))}: choose with data.options.language"
    )


def read_rows(path: Path, split: str, accents: bool = False) -> tuple[pa.Table, Reasons]:
    """The columns `COLUMNS` of a table, with `accents` also "accent", and its lines with missing or extra fields.

    Raises ValueError for a missing file and for missing columns.
    """
    if not path.is_file():
        others = ", ".join(sorted(file.stem for file in path.parent.glob("*.tsv")))
        without = "" if split == "train" else " (null: none)"
        raise ValueError(f"{path} is missing: set data.options.{split} to one of {others}{without}")
    wrong: list[str] = []

    def told(row: pacsv.InvalidRow) -> str:
        wrong.append(f"line {row.number}")
        return "skip"

    column = "accents" if "accents" in _header(path) else "accent"  # "accent" before version 7
    table = _parse(path, (*COLUMNS, column) if accents else COLUMNS, {}, told)
    if accents:
        table = table.rename_columns({column: "accent"})
    return table, {f"with fields missing in {path.name}": wrong}


def read_durations(path: Path) -> pa.Table | None:
    """The columns clip and duration[ms] of clip_durations.tsv, or None without the file.

    Raises ValueError for a file without these columns.
    """
    if not path.is_file():
        return None
    return _parse(path, ("clip", "duration[ms]"), {"duration[ms]": pa.float64()}, lambda row: "error")


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return next(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), [])


def _begins(values: pa.ChunkedArray, beginnings: Collection[str]) -> pa.ChunkedArray:
    """The first beginning that each value has, ignoring case; null for none."""
    lowered = pc.utf8_lower(values)
    cases = [pc.starts_with(lowered, beginning.lower()) for beginning in beginnings]
    labels = (pa.scalar(beginning, pa.large_string()) for beginning in beginnings)
    return pc.case_when(pc.make_struct(*cases, field_names=list(beginnings)), *labels)


def _parse(
    path: Path, columns: tuple[str, ...], types: dict[str, pa.DataType], invalid: pacsv.InvalidRowHandler
) -> pa.Table:
    check_fetched(path)
    header = _header(path)
    for name in columns:
        if name not in header:
            raise ValueError(f"{path} has no column {name!r}, only {', '.join(header)}: restore the corpus' file")
    try:
        return pacsv.read_csv(
            path,
            pacsv.ReadOptions(use_threads=False),  # rows have line numbers without threads only
            pacsv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, invalid_row_handler=invalid),
            pacsv.ConvertOptions(
                include_columns=list(columns),
                column_types={name: pa.large_string() for name in columns} | types,
            ),
        )
    except pa.ArrowInvalid as problem:
        raise ValueError(f"{path}: {problem}: restore the corpus' file") from problem


def _without(table: pa.Table, mask: pa.ChunkedArray, reason: str, reasons: Reasons) -> pa.Table:
    """The table without the rows of a mask. Adds their clips (or sentences, for rows without a clip) to `reasons`."""
    mask = pc.fill_null(mask, False)
    if not pc.any(mask).as_py():
        return table
    bad = table.filter(mask)
    names = zip(bad["path"].to_pylist(), bad["sentence"].to_pylist(), strict=True)
    reasons[reason] = [path or sentence for path, sentence in names]
    return table.filter(pc.invert(mask))


def _columns(table: pa.Table, home: Path, path: Path) -> dict[str, pa.Array]:
    speakers = pc.utf8_slice_codeunits(table["client_id"], 0, SPEAKER)
    if pc.count_distinct(speakers).as_py() < pc.count_distinct(table["client_id"]).as_py():
        raise ValueError(f"{path}: two client_ids begin with the same {SPEAKER} digits: restore the corpus' file")
    utterances = pc.replace_substring_regex(table["path"], r"\.[^.]*$", "")
    folder, slash = (pa.scalar(text, pa.large_string()) for text in (str(home / "clips"), "/"))
    files = pc.binary_join_element_wise(folder, table["path"], slash)
    named = {
        "utterance": utterances,
        "path": files,
        "seconds": table["seconds"],
        "speaker": speakers,
        "text": table["text"],
    }
    if "label" in table.column_names:
        named["label"] = table["label"]
    return {name: values.combine_chunks() for name, values in named.items()}
