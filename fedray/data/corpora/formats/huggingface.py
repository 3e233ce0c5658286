"""Datasets of Hugging Face `datasets` on disk: Parquet files as on the Hub, and Arrow files from save_to_disk.

The package `datasets` is not needed. Audio stays inside the tables (`fedray.data.features.packed`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.core.parallel import Parallel
from fedray.core.texts import decoded, parsed, read_text
from fedray.data.corpora.assembly import Column, assemble, check_fetched
from fedray.data.corpora.formats import audiofolder
from fedray.data.corpora.formats.listed import USUAL_SPLITS, Listed
from fedray.data.corpora.official.layout import shown_folders
from fedray.data.features.packed import packed_path
from fedray.data.manifest import Manifest
from fedray.storage.arrow import DAMAGED

SHARD = re.compile(r"(?P<name>.*?)-?(?P<index>\d{5})-of-(?P<count>\d{5})(?:-\w+)?")
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True)
class HuggingFace(Listed):
    """train, dev and test name splits of the dataset, as in `dev: [validation]`. The usual names need no options.

    The root is a folder from save_to_disk, a folder with the Parquet (or Arrow) files of one configuration, or an
    AudioFolder: audio files, and metadata.csv (or .jsonl, .parquet) whose column file_name names them. There the
    options speaker_column, text_column and label_column may be left out for the usual names (speaker_id, transcription,
    text, sentence, label, ...).
    """

    audio_column: str = "audio"  # datasets' Audio ({bytes, path}), encoded bytes, or paths (relative to the root)
    speaker_column: str | None = None  # column of the speaker; null: unknown, each recording counts as a speaker
    text_column: str | None = None  # column of the transcript; null: no transcripts
    label_column: str | None = None  # column of the class: text, numbers, or a ClassLabel, whose names the file holds
    translation_column: str | None = None  # column of the translation; null: no translations
    id_column: str | None = None  # column of the utterance's id; null: the split and the number of the row

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        splits = super().read(root, seed, cache, parallel)
        if root is not None and _is_audiofolder(root):
            audiofolder.tell_unlisted(root)
        return splits

    def found(self, root: Path) -> dict[str, list[str]]:
        lists: dict[str, list[str]] = {}
        for name in (splits := _names(root)):
            if name.lower() not in USUAL_SPLITS:
                raise ValueError(
                    f"{root} has the splits {', '.join(splits)}, and {name!r} is none of the usual names: set train, "
                    "dev and test in data.options to lists of splits"
                )
            lists.setdefault(USUAL_SPLITS[name.lower()], []).append(name)
        return lists

    def place(self, root: Path, name: str, split: str) -> Path:
        if name not in (splits := _names(root)):
            raise ValueError(
                f"{root} has no split {name!r}: set {split} in data.options to some of {', '.join(splits)}"
            )
        return root / name

    def stem(self, name: str) -> str:
        return name

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        options = {name: getattr(self, f"{name}_column") for name in ("speaker", "text", "label", "translation", "id")}
        if _is_audiofolder(root):
            return {split: self._read_audiofolder(root, audiofolder.parts(root)[path.name], options, parallel)}
        files = _splits(root)[path.name]
        named = {option: name for option, name in options.items() if name is not None}
        shards = list(parallel(partial(_read, audio=self.audio_column, named=named), files, "Reading tables"))
        manifests, number = [], 0
        for file, columns in zip(files, shards, strict=True):
            rows = range(len(columns["path"]))
            if not rows:
                continue
            given: dict[str, Column | None] = {**columns, "text": self.texts(columns.get("text"))}
            given["utterance"] = given.pop("id", None) or [f"{path.name}/{number + row:06d}" for row in rows]
            manifests.append(assemble(file, [f"row {row}" for row in rows], given, root, parallel))
            number += len(rows)
        if not manifests:
            raise ValueError(f"{root}: the split {path.name!r} has no rows: name another in data.options")
        return {split: Manifest.concat(manifests)}

    def _read_audiofolder(
        self, root: Path, parts: Sequence[audiofolder.Part], options: Mapping[str, str | None], parallel: Parallel
    ) -> Manifest:
        manifests = []
        for part in parts:
            named = audiofolder.chosen(part, options)
            given: dict[str, Column | None] = {option: part.columns[name] for option, name in named.items()}
            given["path"] = names = part.columns[audiofolder.FILE]
            given["text"] = self.texts(None if "text" not in named else part.columns[named["text"]])
            inside = part.file.parent.relative_to(root)
            given["utterance"] = given.pop("id", None) or [(inside / name).as_posix() for name in names]
            manifests.append(assemble(part.file, part.lines, given, part.file.parent, parallel))
        return Manifest.concat(manifests)


def _is_audiofolder(root: Path) -> bool:
    return not any((root / name).is_file() for name in ("dataset_dict.json", "state.json")) and bool(
        audiofolder.metadata_files(root)
    )


def _names(root: Path) -> list[str]:
    """The names of the splits."""
    return list(audiofolder.parts(root) if _is_audiofolder(root) else _splits(root))


def _splits(root: Path) -> dict[str, list[Path]]:
    """Split -> its files, in the order of their rows."""
    if (root / "dataset_dict.json").is_file():
        return {name: _saved(root / name) for name in _json(root / "dataset_dict.json").get("splits", ())}
    if (root / "state.json").is_file():
        return {_json(root / "state.json").get("_split") or "train": _saved(root)}
    splits: dict[str, list[Path]] = {}
    for folder, names in sorted(shown_folders(root)):
        for file in (Path(folder, name) for name in names if not name.startswith("cache-")):
            if file.suffix in (".parquet", ".arrow"):
                splits.setdefault(_split_of(file), []).append(file)
    if not splits:
        raise ValueError(
            f"{root} holds no dataset_dict.json, state.json, *.parquet, *.arrow or metadata.csv: set data.root to a "
            "folder of save_to_disk, to one with the Parquet files of a dataset, or to an AudioFolder"
        )
    for name, files in splits.items():
        if len(folders := {str(file.parent) for file in files}) > 1:
            raise ValueError(
                f"the split {name!r} is in {' and '.join(sorted(folders))}: set data.root to the folder of one "
                "configuration of the dataset"
            )
        for file in files:
            if (shard := SHARD.fullmatch(file.stem)) and (count := int(shard["count"])) != len(files):
                raise ValueError(f"{file.parent}: {name!r} has {len(files)} of {count} files: fetch the others")
    return splits


def _saved(folder: Path) -> list[Path]:
    """The files of one dataset that save_to_disk wrote."""
    state = _json(folder / "state.json")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise ValueError(
            f"{folder} was saved with indices, by an old version of `datasets`: load it and save it with a new version"
        )
    files = [folder / item["filename"] for item in state.get("_data_files", ())]
    if missing := [file for file in files if not file.is_file()]:
        raise ValueError(f"{missing[0]} is missing, which state.json names: copy the folder again")
    return files


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_text(path))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: copy the folder of the dataset again") from None
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} is not JSON ({problem}): copy the folder of the dataset again") from problem
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object: copy the folder of the dataset again")
    return content


def _split_of(file: Path) -> str:
    """The split in a file name: train in data/train-00000-of-00002.parquet, my-train.arrow and train/0000.parquet."""
    shard = SHARD.fullmatch(file.stem)
    name = file.stem if shard is None else shard["name"]
    return file.parent.name if re.fullmatch(r"|\d+|data|part(-\d+)?", name) else name.rpartition("-")[2]


def _read(file: Path, audio: str, named: dict[str, str]) -> dict[str, list[str]]:
    """Read the columns of one file as text; `path` names audio inside the file, or a separate file.

    `named`: option -> column.
    """
    check_fetched(file)
    try:
        schema, chunks = _open(file, [audio, *named.values()])
    except DAMAGED as problem:
        raise _damaged(file, problem) from problem
    for option, name in {"audio": audio, **named}.items():
        if name not in schema.names:
            known = ", ".join(schema.names)
            raise ValueError(f"{file} has no column {name!r}: set {option}_column in data.options to one of {known}")
    classes = {option: _classes(file, schema, name) for option, name in named.items()}
    columns: dict[str, list[str]] = {option: [] for option in ("path", *named)}
    try:
        for chunk in chunks:
            chunk.validate(full=True)  # a damaged offset would crash this process
            columns["path"] += _paths(file, chunk[audio], audio, len(columns["path"]))
            for option, name in named.items():
                columns[option] += _texts(file, chunk[name], name, option, classes[option], len(columns[option]))
    except DAMAGED as problem:
        raise _damaged(file, problem) from problem
    return columns


def _open(file: Path, wanted: list[str]) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return the schema, and the wanted columns piece by piece."""
    if file.suffix == ".parquet":
        table = pq.ParquetFile(file)
        return table.schema_arrow, (table.read_row_group(group, wanted) for group in range(table.num_row_groups))
    with file.open("rb") as content:
        content.seek(max(-len(END_OF_STREAM), -file.stat().st_size), os.SEEK_END)
        if content.read() != END_OF_STREAM:  # Arrow itself accepts a file cut between two batches
            raise pa.ArrowInvalid("the end of the stream is missing")
    reader = pa.ipc.open_stream(pa.memory_map(str(file)))
    return reader.schema, (pa.Table.from_batches([batch]) for batch in reader)


def _damaged(file: Path, problem: Exception) -> ValueError:
    reason = str(problem).partition("\n")[0]
    return ValueError(f"{file} cannot be read: it is cut short or damaged ({reason}). Fetch the file again")


def _paths(file: Path, column: pa.ChunkedArray, name: str, start: int) -> list[str]:
    kind = column.type
    fields = {field.name for field in kind} if pa.types.is_struct(kind) else set()
    if "bytes" in fields:
        cells = column.combine_chunks()
        inside = cells.field("bytes").is_valid().to_pylist()
        paths = cells.field("path").to_pylist() if "path" in fields else [None] * len(cells)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        inside, paths = column.is_valid().to_pylist(), [None] * len(column)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        inside, paths = [False] * len(column), column.to_pylist()
    else:
        raise ValueError(
            f"{file}: the column {name!r} holds {kind}, not audio: fedray reads datasets' Audio (bytes and path), "
            "encoded bytes, or paths. Set audio_column in data.options, or cast the column to Audio"
        )
    return [
        packed_path(file, name, row) if held or not path else path
        for row, (held, path) in enumerate(zip(inside, paths, strict=True), start)
    ]


def _classes(file: Path, schema: pa.Schema, name: str) -> list[str] | None:
    """The names of a ClassLabel; None for other columns. Raises ValueError if the metadata of the file is damaged."""
    where = f"{file}: the metadata huggingface"
    found = parsed(decoded((schema.metadata or {}).get(b"huggingface", b"{}"), where), where)
    for key in ("info", "features", name):
        found = found.get(key, {}) if isinstance(found, dict) else {}
    found = found.get("names") if isinstance(found, dict) and found.get("_type") == "ClassLabel" else None
    return None if found is None else [str(each) for each in found]


def _texts(
    file: Path, column: pa.ChunkedArray, name: str, option: str, classes: list[str] | None, start: int
) -> list[str]:
    if pa.types.is_dictionary(column.type):  # a categorical column of pandas
        column = column.cast(column.type.value_type)
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise ValueError(
            f"{file}: the column {name!r} holds {kind}, not text or whole numbers: correct {option}_column in "
            "data.options"
        )
    values = column.to_pylist()
    if classes is None:
        return ["" if value is None else str(value) for value in values]
    # Null and -1 are how such sets mark rows without a label: `assemble` names them, or leaves them out.
    values = [None if value == -1 else value for value in values]
    for row, value in enumerate(values, start):
        if value is not None and not 0 <= value < len(classes):
            raise ValueError(
                f"{file}:row {row}: {value} in the column {name!r} is not a class: the classes are "
                f"{', '.join(classes)}. Drop the row, or name another column in data.options"
            )
    return ["" if value is None else classes[value] for value in values]
