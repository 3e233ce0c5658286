"""Hugging Face's AudioFolder: audio files with metadata.csv, metadata.jsonl or metadata.parquet beside them.

A row names its file in the column file_name, relative to the metadata. Its split is the first folder of that path, or
of the metadata's own, with the name of a split (train/, validation/, test/); without such a folder it is train.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow.parquet as pq

from fedray.core.texts import opened, parsed
from fedray.data.corpora.assembly import Told, check_fetched, scalar
from fedray.data.corpora.formats.folders import READABLE
from fedray.data.corpora.formats.listed import USUAL_SPLITS
from fedray.data.corpora.official.layout import leave_out, shown_folders
from fedray.data.corpora.table import Table
from fedray.storage.arrow import DAMAGED

NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
FILE = "file_name"
# The usual columns of what data.options leave open.
USUAL = {
    "text": ("transcription", "text", "sentence", "transcript"),
    "label": ("label",),
    "speaker": ("speaker_id", "speaker", "client_id"),
}


@dataclass(frozen=True)
class Part:
    """The rows of a metadata file that belong to one split, by columns."""

    file: Path
    lines: list[int | str]
    columns: dict[str, list[str]]


def metadata_files(root: Path) -> list[Path]:
    """The metadata files in a folder and below it, without hidden folders; none: the folder is no AudioFolder."""
    found = [Path(folder, name) for folder, names in shown_folders(root) for name in names if name in NAMES]
    if twice := next(
        (file for file in found if file.parent in [other.parent for other in found if other != file]), None
    ):
        names = " and ".join(file.name for file in found if file.parent == twice.parent)
        raise ValueError(f"{twice.parent} holds {names}: keep one of them")
    return found


def parts(root: Path) -> dict[str, list[Part]]:
    """Split -> its rows. Raises ValueError with file and line for metadata that cannot be read."""
    splits: dict[str, list[Part]] = {}
    for file in metadata_files(root):
        lines, columns = _read(file)
        if "" in columns[FILE]:
            where = f"{file}:{lines[columns[FILE].index('')]}"
            raise ValueError(f"{where}: {FILE} is empty: name the audio file, or drop the row")
        above = _split(file.parent.relative_to(root).parts)
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(columns[FILE]):
            rows.setdefault(above or _split(PurePosixPath(name).parts[:-1]) or "train", []).append(row)
        for split, mine in rows.items():
            chosen = {name: [values[row] for row in mine] for name, values in columns.items()}
            splits.setdefault(split, []).append(Part(file, [lines[row] for row in mine], chosen))
    if not splits:
        raise ValueError(f"{root}: its metadata lists no audio: give each file a row, with its name in {FILE}")
    return splits


def tell_unlisted(root: Path) -> None:
    """Warn of audio files that no metadata file names."""
    listed = {os.path.normpath(part.file.parent / name) for of in parts(root).values() for part in of
              for name in part.columns[FILE]}  # fmt: skip
    files = [os.path.join(folder, name) for folder, names in shown_folders(root) for name in names]
    heard = [file for file in files if os.path.splitext(file)[1].lower() in READABLE]
    unlisted = [os.path.relpath(file, root) for file in heard if os.path.normpath(file) not in listed]
    leave_out(root, len(heard), {"that no metadata file names": unlisted})


def chosen(part: Part, given: Mapping[str, str | None]) -> dict[str, str]:
    """Option -> its column: the given one, or the usual one that is there. Tells the columns that it chose.

    Raises ValueError for a given column that is not there.
    """
    named = {option: name for option, name in given.items() if name is not None}
    for option, name in named.items():
        if name not in part.columns:
            known = ", ".join(part.columns)
            raise ValueError(
                f"{part.file} has no column {name!r}: set {option}_column in data.options to one of {known}"
            )
    usual = {
        option: next(name for name in names if name in part.columns)
        for option, names in USUAL.items()
        if option not in named and not set(names).isdisjoint(part.columns)
    }
    if usual:
        told = ", ".join(f"{option}_column={name}" for option, name in usual.items())
        warnings.warn(f"{part.file}: read with {told}: set data.options for other columns", Told, stacklevel=2)
    return named | usual


def _split(folders: tuple[str, ...]) -> str | None:
    return next((name for name in folders if name.lower() in USUAL_SPLITS), None)


def _read(file: Path) -> tuple[list[int | str], dict[str, list[str]]]:
    """The rows' lines, and the columns as text."""
    check_fetched(file)
    if file.suffix == ".csv":
        table = Table.read(file)
        table.column(FILE, None)
        return list(table.lines), table.columns
    lines, items = _objects(file) if file.suffix == ".jsonl" else _rows(file)
    columns: dict[str, list[str]] = {}
    for name in dict.fromkeys(key for item in items for key in item):
        values = [item.get(name) for item in items]
        if name == FILE or all(value is None or isinstance(value, str | int | float) for value in values):
            wheres = (f"{file}:{line}" for line in lines)
            columns[name] = [
                "" if value is None else scalar(value, where, name) for where, value in zip(wheres, values, strict=True)
            ]
    if FILE not in columns:
        raise ValueError(f"{file} has no column {FILE!r}: name the audio file of each row in it, as in audio/1.wav")
    return lines, columns


def _objects(file: Path) -> tuple[list[int | str], list[dict[str, object]]]:
    lines: list[int | str] = []
    items: list[dict[str, object]] = []
    with opened(file) as content:
        for line, text in enumerate(content, start=1):
            if text.strip():
                item = parsed(text, file, line)
                if not isinstance(item, dict):
                    raise ValueError(f'{file}:{line}: the line must be an object, {{"file_name": "1.wav", ...}}')
                lines.append(line)
                items.append(item)
    return lines, items


def _rows(file: Path) -> tuple[list[int | str], list[dict[str, object]]]:
    try:
        items = pq.read_table(os.fspath(file)).to_pylist()
    except DAMAGED as problem:
        reason = str(problem).partition("\n")[0]
        raise ValueError(f"{file} cannot be read as Parquet ({reason}): fetch the file again") from problem
    return [f"row {row}" for row in range(len(items))], items
