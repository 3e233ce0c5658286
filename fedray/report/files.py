"""The files of a run folder that a report reads, each checked: a damaged one is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow.csv import ConvertOptions, ParseOptions, read_csv

from fedray.report.predictions import NAME
from fedray.runs import trips_table
from fedray.runs.folder import TRIPS, RunFolder
from fedray.storage.arrow import DAMAGED

INVERTED = "audit.pt"  # the reconstructions of an inversion
# What a report reads of a run folder.
FILES = (
    *("results.json", "run.json", "metrics.jsonl", "failures.jsonl", TRIPS, trips_table.NAME),
    *(NAME, "clients.parquet", "personal.tsv", "audit.tsv", INVERTED),
)
TEXTS = {"client": pa.string(), "split": pa.string()}  # columns of personal.tsv that stay text, digits or not
# In personal.tsv and audit.tsv quotation marks are ordinary characters.
TSV = ParseOptions(delimiter="\t", quote_char=False), ConvertOptions(column_types=TEXTS)
Json = dict[str, Any]  # an object from a JSON file


def table(folder: RunFolder, name: str, read: Callable[[pa.BufferReader], pa.Table], *columns: str) -> pa.Table | None:
    """The table in a file, None without the file. ValueError: it is damaged, or lacks one of the columns."""
    if not folder.exists(name):
        return None
    content = pa.BufferReader(folder.storage.read(name))
    shown = folder.storage.shown(name)
    try:
        found = read(content)
    except DAMAGED as error:
        raise ValueError(f"{shown}: is damaged ({error}): remove it to continue without it") from error
    if missing := [column for column in columns if column not in found.column_names]:
        raise ValueError(f"{shown}: has no column {missing[0]}: remove it to continue without it")
    return found


def tsv(file: pa.BufferReader) -> pa.Table:
    """The table in a tab-separated file."""
    found: pa.Table = read_csv(file, None, *TSV)
    return found


def rows(folder: RunFolder, name: str) -> list[Json]:
    """The rows of metrics.jsonl or failures.jsonl. ValueError names a line that is not a row of it."""
    found = folder.rows(name)
    for number, row in enumerate(found, 1):
        whole = isinstance(row, dict) and isinstance(row.get("round"), int)
        if name == "metrics.jsonl":
            whole = whole and not any(map(_is_word, row.values()))
        else:
            whole = whole and all(isinstance(row.get(key), str) for key in ("client", "reason"))
        if not whole:
            shown = f"{folder.storage.shown(name)}:{number}"
            raise ValueError(f"{shown}: is not a row of a round: remove the line to continue without it")
    return found


def check_changes(versions: Json, shown: str) -> None:
    """Raise ValueError, naming run.json, if it does not tell changes or nodes that differ as fedray writes them."""
    changes = versions.get("changes", [])
    for change in changes if isinstance(changes, list) else [None]:
        if not _are_texts(change.get("differences") if isinstance(change, dict) else None):
            raise ValueError(f"{shown}: changes must be a list of differences and rounds: restore it, or remove it")
    if not _are_texts(versions.get("mixed", [])):
        raise ValueError(f"{shown}: mixed must be a list of texts: restore it, or remove it")


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def read_json(folder: RunFolder, name: str) -> Json | None:
    """The object in the file; None if there is no such file."""
    if not folder.exists(name):
        return None
    try:
        return folder.read_json(name)
    except ValueError as error:
        raise ValueError(f"{error}, or remove it to continue without it") from error


def _is_word(value: object) -> bool:
    return value is not None and not isinstance(value, int | float)
