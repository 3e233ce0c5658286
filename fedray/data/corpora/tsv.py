"""Corpora that are lists in files: what their readers share, and the simplest of them, a table with one row an utterance."""

from __future__ import annotations

import csv
import functools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.data.audio import AudioError, duration, is_lfs_stub
from fedray.data.manifest import Manifest, place


@dataclass(frozen=True)
class Listed(ABC):
    """A corpus whose splits are files (or Kaldi folders), named relative to the root. Several files of a split are joined, but
    every test set after the first keeps its own name: `test: [test.csv, other.csv]` gives `test` and `test-other`."""

    train: list[str] = field(default_factory=list)
    dev: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    server: list[str] = field(default_factory=list)  # for corpora that are divided already
    clients: list[str] = field(default_factory=list)
    lower_case: bool = False  # the text, not the labels

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Split -> manifest. Raises ValueError with file and line for the first row that cannot be used."""
        root = corpus_root(root, "the files that train, dev and test name")
        if not any((self.train, self.dev, self.test, self.server, self.clients)):
            raise ValueError(f"data.options names no files in {root}: give train, dev and test (lists of files, relative to data.root)")
        parts: dict[str, list[Manifest]] = {}
        for split in ("server", "clients", "train", "dev", "test"):
            for position, name in enumerate(getattr(self, split)):
                further = split == "test" and position > 0
                own_name = f"test-{Path(name).stem.removeprefix('test-')}" if further else split
                if not (root / name).exists():
                    raise ValueError(f"{root / name} does not exist: correct data.root or {split} in data.options")
                for key, manifest in self.read_file(root, root / name, own_name, parallel).items():
                    parts.setdefault(key, []).append(manifest)
        splits = {split: Manifest.concat(manifests) for split, manifests in parts.items()}
        unique_ids(splits)
        return splits

    @abstractmethod
    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        """The manifest of one file, under the split it was named for (or under those that its rows name)."""

    def texts(self, values: list[str] | None) -> list[str] | None:
        return [value.lower() for value in values] if values is not None and self.lower_case else values


@dataclass(frozen=True)
class Table:
    """A delimited text file by columns. `lines[i]` is the line of row i (or its key, in a file where keys tell more)."""

    path: Path
    lines: Sequence[int | str]
    columns: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path, **dialect: Any) -> Table:
        """`dialect` are the arguments of csv.reader. Raises ValueError for a Git LFS stub and rows longer or shorter than the header."""
        if is_lfs_stub(path):
            raise ValueError(f"{path}: is a Git LFS stub, not the table: fetch it with `git lfs pull`")
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, **dialect)
            header = next(reader, None)
            if header is None:
                raise ValueError(f"{path} is empty: its first line must name the columns")
            lines, rows = [], []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise ValueError(
                        f"{path}:{reader.line_num}: {len(row)} fields where the header names {len(header)}: {', '.join(header)}"
                    )
                lines.append(reader.line_num)
                rows.append(row)
        columns = zip(*rows, strict=True) if rows else ([] for _ in header)
        return cls(path, lines, {name: list(values) for name, values in zip(header, columns, strict=True)})

    def column(self, name: str | None, option: str) -> list[str] | None:
        """The values of a column, None for no name. `option` is the setting that names it, for the error."""
        if name is None:
            return None
        if name not in self.columns:
            raise ValueError(f"{self.path} has no column {name!r}: set {option} in data.options to one of {', '.join(self.columns)}")
        return self.columns[name]


@dataclass(frozen=True)
class Tsv(Listed):
    """A table with a header, one row an utterance. Nothing is quoted: a quotation mark is a character of the text."""

    delimiter: str = "\t"
    path_column: str = "path"  # absolute, or relative to `audio_root`
    speaker_column: str = "speaker"
    text_column: str | None = None
    label_column: str | None = None
    translation_column: str | None = None
    id_column: str | None = None  # null: the path as it is written
    seconds_column: str | None = "seconds"  # null: measured
    offset_column: str | None = None
    split_column: str | None = None  # its value decides the split of a row, whatever list the file stands in
    split_names: dict[str, str] = field(default_factory=dict)  # e.g. {val: dev}; usual names are known
    audio_root: str | None = None  # relative to the root; null: the folder of the file

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        table = Table.read(path, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        columns = {
            "path": table.column(self.path_column, "path_column"),
            "speaker": table.column(self.speaker_column, "speaker_column"),
            "text": self.texts(table.column(self.text_column, "text_column")),
            "label": table.column(self.label_column, "label_column"),
            "translation": table.column(self.translation_column, "translation_column"),
            "utterance": table.column(self.id_column or self.path_column, "id_column"),
            "seconds": table.column(self.seconds_column, "seconds_column"),
            "offset": table.column(self.offset_column, "offset_column"),
        }
        folder = path.parent if self.audio_root is None else root / self.audio_root
        manifest = assemble(path, table.lines, columns, folder, parallel)
        names = table.column(self.split_column, "split_column")
        if names is None:
            return {split: manifest}
        rows: dict[str, list[int]] = {}
        known = USUAL_SPLITS | self.split_names
        for row, name in enumerate(names):
            if name not in known:
                raise ValueError(
                    f"{path}:{table.lines[row]}: the split {name!r} is not known: add it to split_names, e.g. {{{name}: train}}"
                )
            rows.setdefault(known[name], []).append(row)
        return {name: manifest.take(indices) for name, indices in rows.items()}


USUAL_SPLITS = {name: "train" for name in ("train", "training")}
USUAL_SPLITS |= {name: "dev" for name in ("dev", "val", "valid", "validation", "development")}
USUAL_SPLITS |= {name: "test" for name in ("test", "testing", "eval", "evaluation")}


def corpus_root(root: Path | None, holds: str) -> Path:
    """The root, absolute. Raises ValueError when it is not given or does not exist; `holds` says what should be in it."""
    if root is None:
        raise ValueError(f"this corpus needs data.root, the folder that holds {holds}")
    path = Path(os.path.abspath(root))
    if not path.is_dir():
        raise ValueError(f"data.root: there is no folder {path}; it must hold {holds}")
    return path


def assemble(
    source: Path, lines: Sequence[int | str], columns: Mapping[str, Sequence | None], folder: Path, parallel: Parallel
) -> Manifest:
    """A manifest from the columns of a file. Paths are relative to `folder`, numbers may be text, and missing `seconds` are measured.

    Raises ValueError naming the line of the first row whose id repeats, audio is missing, text is empty or times cannot be.
    """
    given = {name: values for name, values in columns.items() if values is not None}
    if not given["utterance"]:
        raise ValueError(f"{source} lists no utterances: fill it, or take it out of data.options")
    for name in ("utterance", "path", "speaker", "text", "label"):
        if wrong := [row for row, value in enumerate(given.get(name, ())) if not value]:
            where = place(str(source), lines, wrong[0])
            raise ValueError(f"{where}: has no {name}: complete the row or drop it{_more(lines, wrong)}")
    seen: dict[str, int] = {}
    for row, name in enumerate(given["utterance"]):
        if seen.setdefault(name, row) != row:
            raise ValueError(f"{place(str(source), lines, row)}: the id {name!r} stands in {place(str(source), lines, seen[name])} already")
    paths = [os.path.normpath(os.path.join(folder, path)) for path in given["path"]]
    measured = measure(paths, "seconds" not in given, parallel)
    if wrong := [row for row, path in enumerate(paths) if isinstance(measured[path], str)]:
        where, path = place(str(source), lines, wrong[0]), paths[wrong[0]]
        remedy = f"Restore the file, drop the row, or correct where paths start (data.root){_more(lines, wrong)}"
        raise ValueError(f"{where}: {path}: {measured[path]}. {remedy}")
    offset = _numbers(given["offset"], "offset", 0.0, source, lines) if "offset" in given else None
    if "seconds" in given:
        seconds = _numbers(given["seconds"], "seconds", math.ulp(0.0), source, lines)
    else:
        seconds = [measured[path] - start for path, start in zip(paths, offset or [0.0] * len(paths), strict=True)]
        _numbers(seconds, "seconds", math.ulp(0.0), source, lines)
    ready = given | {"path": paths, "seconds": seconds} | ({} if offset is None else {"offset": offset})
    return Manifest.from_columns(ready, str(source), lines)


def measure(paths: Sequence[str], lengths: bool, parallel: Parallel) -> dict[str, float | str]:
    """Path -> its length in seconds (NaN unless `lengths`), or what is wrong with the file, in words."""
    distinct = list(dict.fromkeys(paths))
    shards = [distinct[start : start + 500] for start in range(0, len(distinct), 500)]
    results = parallel(functools.partial(_measure, lengths=lengths), shards, "Measuring audio" if lengths else "Looking for audio")
    return dict(zip(distinct, (result for shard in results for result in shard), strict=True))


def unique_ids(splits: dict[str, Manifest]) -> None:
    """Raises ValueError when an utterance id stands in two rows, of one split or of two."""
    counts = pc.value_counts(Manifest.concat(list(splits.values())).table["utterance"])
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(repeated):
        some = ", ".join(repeated[:5].to_pylist())
        raise ValueError(f"{len(repeated)} utterances stand in more than one row of {', '.join(splits)}, among them {some}: list each once")


def _measure(paths: list[str], lengths: bool) -> list[float | str]:
    results: list[float | str] = []
    for path in paths:
        try:
            results.append(duration(path) if lengths else math.nan if os.path.isfile(path) else "missing")
        except AudioError as problem:  # handed back in words: the caller knows the line that names the file
            results.append(problem.reason)
    return results


def _more(lines: Sequence[int | str], rows: Sequence[int]) -> str:
    """Of rows that share a problem, where those after the first stand: ` (2 more: 19, 40)`."""
    some = ", ".join(str(lines[row]) for row in rows[1:6]) + (", ..." if len(rows) > 6 else "")
    return f" ({len(rows) - 1:,} more: {some})" if len(rows) > 1 else ""


def _numbers(values: Sequence[Any], name: str, least: float, source: Path, lines: Sequence[int | str]) -> list[float]:
    numbers = []
    for row, value in enumerate(values):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not least <= number < math.inf:
            rule = "0 or more" if least == 0 else "above 0"
            raise ValueError(f"{place(str(source), lines, row)}: {name} must be a number {rule}, not {value!r}")
        numbers.append(number)
    return numbers
