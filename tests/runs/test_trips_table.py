"""trips.parquet holds the rows of trips.jsonl, written a few at a time; lines that are not trips are named."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fedray.runs import trips_table
from fedray.runs.folder import TRIPS, RunFolder
from fedray.runs.trips_table import NAME, SCHEMA
from tests.report.folders import trip
from tests.stores import s3


def test_the_parquet_file_has_the_rows_of_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trips_table, "ROWS", 3)
    folder, trips = RunFolder(tmp_path), [trip(1 + number // 4, f"client-{number}", "phone") for number in range(8)]
    folder.append(TRIPS, trips)
    trips_table.write(folder)
    assert pq.read_table(tmp_path / NAME).to_pylist() == trips == trips_table.read_lines(folder).to_pylist()
    assert pq.ParquetFile(tmp_path / NAME).num_row_groups == 3, "8 rows, 3 at a time"


def test_a_run_without_a_trip_has_an_empty_table(tmp_path: Path) -> None:
    trips_table.write(RunFolder(tmp_path))
    assert pq.read_table(tmp_path / NAME).schema == SCHEMA


def test_in_a_bucket() -> None:
    with s3() as new:
        folder, trips = RunFolder(new()), [trip(1, "ann", "phone"), trip(2, "bob", "phone", fate="lost")]
        for row in trips:
            folder.append(TRIPS, [row])
        trips_table.write(folder)
        assert trips_table.read_lines(folder).to_pylist() == trips and folder.exists(NAME)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("7", r"trips\.jsonl:2: is not a trip"),
        ('{"round": 2}', r"trips\.jsonl:2: is not a trip"),
        ("{", r"trips\.jsonl:2: is not a row of JSON"),
    ],
)
def test_a_line_that_is_no_trip_is_named(tmp_path: Path, line: str, words: str) -> None:
    folder = RunFolder(tmp_path)
    folder.append(TRIPS, [trip(1, "ann", "phone")])
    with (tmp_path / TRIPS).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=words):
        trips_table.read_lines(folder)


def test_values_of_other_types_are_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(TRIPS, [trip(1, "ann", "phone"), trip(1, "bob", "phone", start_s="soon")])
    with pytest.raises(ValueError, match=r"trips\.jsonl: one of lines 1 to 2 is not a trip"):
        trips_table.write(folder)
    assert not (tmp_path / NAME).exists()
