"""Run folders that may come from anybody: which of their files may be read, and how large they may be."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from fedray.config import bounded
from fedray.core.texts import check_is_file
from fedray.runs.folder import RunFolder

CONFIG = "config.yaml"
LARGEST = 10**9  # bytes of a table
ROWS = 20_000_000  # of a Parquet file, which can repeat a value in a few bytes
SMALLER = {".json": 64 * 10**6, ".yaml": 4 * 10**6, ".txt": 64 * 10**6}  # bytes, by suffix
OWN = "copy the folder if you trust that user: the copy is yours"


def check_files(folder: RunFolder, names: Iterable[str]) -> None:
    """Check the files of these names that a folder on a disk holds, before they are read.

    ValueError: one is a link that leads outside the folder, is no file, or is too large to be what a run writes.
    """
    if folder.root is None:
        return
    root = folder.root.resolve()
    for path in (folder.root / name for name in names):
        if not os.path.lexists(path):
            continue
        if not path.resolve().is_relative_to(root):
            raise ValueError(f"{path}: is a link that leads out of the run folder: put the file itself there")
        check_is_file(path, "remove it")
        if path.exists() and path.stat().st_size > (most := SMALLER.get(path.suffix, LARGEST)):
            raise ValueError(f"{path}: is larger than {most // 10**6:,} MB, which is not what a run writes: remove it")


def read_config(folder: RunFolder) -> Mapping[str, Any]:
    """The values in config.yaml as they stand there: nothing is imported, and no interpolation is resolved.

    ValueError names the file: it is not a configuration.
    """
    check_files(folder, [CONFIG])
    shown = folder.storage.shown(CONFIG)
    try:
        values = bounded.plain(folder.read_text(CONFIG))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{shown}: is not YAML ({error}): restore it") from error
    if not isinstance(values, Mapping):
        raise ValueError(f"{shown}: holds no configuration: restore it")
    return values


def check_own(folder: RunFolder, *names: str) -> None:
    """Check that nobody but this user (or root) wrote the files of these names, which a command executes.

    Files on object storage have no owner. ValueError names the file.
    """
    for path in (folder.root / name for name in names if folder.root is not None):
        if not path.exists():
            continue
        found = path.stat()
        open_to_all = bool(found.st_mode & stat.S_IWOTH)
        if found.st_uid not in (os.getuid(), 0) or open_to_all:
            whose = "can be written by all users" if open_to_all else f"belongs to the user {_user(path)}"
            raise ValueError(f"{path} {whose}, and this command would execute the code that it names: {OWN}")


def _user(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:  # a user without a name
        return str(path.stat().st_uid)


def parquet_table(file: pa.BufferReader) -> pa.Table:
    """The table in a Parquet file. pa.ArrowException: it is damaged, or would not fit into memory."""
    told = pq.read_metadata(file)
    size = sum(told.row_group(number).total_byte_size for number in range(told.num_row_groups))
    if told.num_rows > ROWS or size > 4 * LARGEST:
        raise pa.ArrowInvalid(f"it holds {told.num_rows:,} rows of {size:,} bytes, which is not what a run writes")
    file.seek(0)
    return pq.read_table(file)
