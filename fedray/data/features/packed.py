"""Audio inside tables: the encoded bytes in a column of a Parquet file or an Arrow stream, named by a path.

`/data/train.parquet#audio/17` names the audio in row 17 of the column `audio`. Nothing is unpacked to files.
"""

from __future__ import annotations

import functools
import os
import re
from bisect import bisect_right
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.storage.arrow import DAMAGED

PACKED = re.compile(r"(?P<file>.+\.(?:parquet|arrow))#(?P<column>[^/#]+)/(?P<row>\d+)")
Stamp = tuple[str, int, int]  # a file's path, size and modification time


def packed_path(file: str | os.PathLike[str], column: str, row: int) -> str:
    """The path that names the audio in a row of a column."""
    return f"{os.fspath(file)}#{quote(column, safe='')}/{row}"


def file_of(path: str) -> str:
    """The file on disk that holds the audio: the table of a packed path, else the path itself."""
    found = PACKED.fullmatch(path)
    return path if found is None else found["file"]


def packed_bytes(path: str) -> bytes | None:
    """The encoded audio that a packed path names; None for every other path.

    Raises FileNotFoundError, and ValueError for a table that is damaged or lacks the row or its audio.
    """
    found = PACKED.fullmatch(path)
    if found is None:
        return None
    status = os.stat(found["file"])
    stamp, row = (found["file"], status.st_size, status.st_mtime_ns), int(found["row"])
    try:
        value = _value(stamp, unquote(found["column"]), row)
    except (*DAMAGED, KeyError, IndexError) as problem:
        raise ValueError(f"row {row} of the table cannot be read: {problem}") from problem
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise ValueError(f"row {row} of the table holds no audio")
    return content


def _value(stamp: Stamp, column: str, row: int) -> object:
    if stamp[0].endswith(".arrow"):
        return _stream(stamp)[column][row].as_py()
    starts = _group_starts(stamp)
    group = bisect_right(starts, row) - 1
    return _group(stamp, column, group)[row - starts[group]].as_py()


@functools.lru_cache(maxsize=8)
def _stream(stamp: Stamp) -> pa.Table:
    return pa.ipc.open_stream(pa.memory_map(stamp[0])).read_all()  # zero-copy: values are read when they are taken


@functools.lru_cache(maxsize=64)
def _group_starts(stamp: Stamp) -> list[int]:
    """The first row of each row group of a Parquet file."""
    metadata = pq.read_metadata(stamp[0])
    starts = [0]
    for group in range(metadata.num_row_groups - 1):
        starts.append(starts[-1] + metadata.row_group(group).num_rows)
    return starts


@functools.lru_cache(maxsize=1)  # a group holds the audio of about a hundred rows, which are read one after the other
def _group(stamp: Stamp, column: str, group: int) -> pa.ChunkedArray:
    with pq.ParquetFile(stamp[0]) as file:
        return file.read_row_group(group, columns=[column])[column]
