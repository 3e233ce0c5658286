"""The trips of a run with devices: trips.jsonl grows with the run; at its end trips.parquet has the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.runs.folder import TRIPS, RunFolder

NAME = "trips.parquet"
ROWS = 20_000  # in memory at once
SCHEMA = pa.schema(
    {
        "round": pa.int64(),
        "client": pa.string(),
        "class": pa.string(),
        "model": pa.int64(),  # the round whose broadcast the client starts from
        "start_s": pa.float64(),
        "end_s": pa.float64(),
        "fate": pa.string(),
        "used": pa.bool_(),  # whether the update counts
        "work": pa.float64(),
        "compute_s": pa.float64(),
        "transfer_s": pa.float64(),
        "energy_wh": pa.float64(),
    }
)


def write(folder: RunFolder) -> None:
    """Write trips.parquet from trips.jsonl."""

    def build(path: Path) -> None:
        with pq.ParquetWriter(path, SCHEMA) as writer:
            for batch in batches(folder):
                writer.write_batch(batch)

    folder.export(NAME, build)


def batches(folder: RunFolder) -> Iterator[pa.RecordBatch]:
    """The rows of trips.jsonl, `ROWS` at a time. ValueError names a line that is not a trip."""
    shown, rows, done = folder.storage.shown(TRIPS), folder.each(TRIPS), 0
    while some := list(islice(rows, ROWS)):
        for number, row in enumerate(some, done + 1):
            if not isinstance(row, dict) or any(row.get(name) is None for name in SCHEMA.names):
                raise ValueError(f"{shown}:{number}: is not a trip: remove the line to continue without it")
        try:
            yield pa.RecordBatch.from_pylist(some, SCHEMA)
        except pa.ArrowException as error:
            lines = f"lines {done + 1:,} to {done + len(some):,}"
            raise ValueError(f"{shown}: one of {lines} is not a trip ({error}): remove that line") from error
        done += len(some)


def read_lines(folder: RunFolder) -> pa.Table:
    """The trips of an unfinished run."""
    return pa.Table.from_batches(batches(folder), SCHEMA)


def read_parquet(file: pa.BufferReader) -> pa.Table:
    """The trips in trips.parquet. pa.ArrowException: it holds something else."""
    source = pq.ParquetFile(file)
    known = [field for field in source.schema_arrow if field in SCHEMA]
    if len(known) < len(SCHEMA):
        raise pa.ArrowInvalid("columns of trips are missing")
    return source.read(columns=SCHEMA.names)
