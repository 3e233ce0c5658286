"""Tables that grow with a run: in a bucket, the bytes written grow with the rows, and a kill loses no row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedray.runs import tables
from fedray.runs.failures_table import FailuresTable
from fedray.runs.folder import FAILURES, METRICS, RunFolder
from fedray.storage.base import Storage
from fedray.storage.files import StorageError
from fedray.storage.local import LocalStorage


class Counting(LocalStorage):
    """A store that acts like a bucket, counts the bytes written, and can fail after `left` writes and removals."""

    local = None  # type: ignore[assignment]

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.bytes, self.left = 0, 10**9

    def write(self, name: str, data: bytes) -> None:
        self._count(len(data))
        super().write(name, data)

    def put(self, files: Any) -> None:
        self._count(sum(path.stat().st_size for path in files.values()))
        super().put(files)

    def remove(self, *names: str) -> None:
        for name in names:
            self._count(0)
            super().remove(name)

    def _count(self, size: int) -> None:
        if not self.left:
            raise StorageError("the store is gone")
        self.left -= 1
        self.bytes += size


def row(number: int) -> str:
    return json.dumps({"round": number, "text": "x" * (number % 90)}) + "\n"


def read(storage: Storage) -> list[str]:
    return [f"{line}\n" for line in tables.PartedTables(storage).lines("t.jsonl")]


@pytest.mark.nightly
def test_the_bytes_grow_with_the_rows(tmp_path: Path) -> None:
    store, text = Counting(tmp_path), ""
    parted, most, written = tables.PartedTables(store), 0, {}
    for number in range(3000):
        parted.append("t.jsonl", row(number))
        text += row(number)
        most = max(most, len(store.names("t.jsonl.parts")))
        if number + 1 in (750, 3000):
            assert "".join(read(store)) == text
            written[number + 1] = store.bytes / len(text)
    assert written[3000] < 6 and written[3000] < written[750] + 1.5, "times that a row is written: log of the rows"
    assert most < 3 * tables.FAN
    assert store.read("t.jsonl") != text.encode() and 2 * len(store.read("t.jsonl")) > len(text)
    parted.settle()
    assert store.files() == ["t.jsonl"] and store.read("t.jsonl") == text.encode()


@pytest.mark.long
def test_a_kill_anywhere_costs_no_row_that_was_appended(tmp_path: Path) -> None:
    """Each write and each removal may be the last one of a process; the next process continues from what is stored."""
    number, kills = 0, 0
    done: list[str] = []
    for life in range(1, 120):
        store = Counting(tmp_path)
        parted = tables.PartedTables(store)
        store.left = life % 37
        try:
            for _ in range(40):
                number += 1
                parted.append("t.jsonl", row(number))
                done.append(row(number))
            parted.rewrite("t.jsonl", (f"{line}\n" for line in parted.lines("t.jsonl")))
        except StorageError:
            kills += 1
            found = read(Counting(tmp_path)) if (tmp_path / "t.jsonl").exists() else []
            assert found in (done, [*done, row(number)]), "the row in hand may be there or not"
            done = found
    assert kills > 50 and len(done) > 500


def test_a_rewritten_table_is_not_continued_by_older_parts(tmp_path: Path) -> None:
    store = Counting(tmp_path)
    parted = tables.PartedTables(store)
    for number in range(20):
        parted.append("t.jsonl", row(number))
    parted.rewrite("t.jsonl", [row(0)])
    assert read(store) == [row(0)] and store.names("t.jsonl.parts") == []
    parted.append("t.jsonl", row(7))
    assert read(store) == [row(0), row(7)]


def test_a_lost_part_is_named(tmp_path: Path) -> None:
    store = Counting(tmp_path)
    parted = tables.PartedTables(store)
    for number in range(12):
        parted.append("t.jsonl", row(number))
    lost, *others = store.names("t.jsonl.parts")
    assert others
    store.remove(f"t.jsonl.parts/{lost}")
    with pytest.raises(ValueError, match=rf"t.jsonl.parts: the part that begins at byte {int(lost[:12])} is missing"):
        read(store)


def test_a_bucket_shows_one_table_and_ends_with_one_file(bucket: Callable[[], str]) -> None:
    place = bucket()
    folder, other = RunFolder(place), RunFolder(place)
    for number in range(1, 41):
        folder.append(METRICS, [{"round": number}])
        assert number % 8 or other.rows(METRICS) == [{"round": done} for done in range(1, number + 1)]
    assert folder.storage.names(f"{METRICS}.parts")
    resumed = RunFolder(place)  # as after a kill
    resumed.cut(METRICS, 33)
    resumed.append(METRICS, [{"round": 34}])
    assert other.read_text(METRICS) == "".join(f'{{"round": {done}}}\n' for done in range(1, 35))
    resumed.settle()
    assert resumed.storage.files() == [METRICS] and len(resumed.storage.read(METRICS).splitlines()) == 34


def failing(client: str, depth: int) -> dict[str, Any]:
    frames = "".join(f'  File "a.py", line {line}, in f\n' for line in range(depth))
    text = f"Traceback (most recent call last):\n{frames}LookupError: no luck for {client}\n"
    return {"round": 1, "client": client, "reason": f"LookupError: no luck for {client}", "traceback": text}


def test_a_traceback_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    table = FailuresTable(folder)
    table.append([failing("a", 1), failing("b", 1), failing("c", 2)])
    table = FailuresTable(folder)
    table.resume()
    table.append([failing("d", 2)])
    a, b, c, d = folder.rows(FAILURES)
    assert "LookupError" in a["traceback"] and "same_as" not in a and "LookupError" in c["traceback"]
    assert (b["traceback"], b["same_as"]) == (None, {"round": 1, "client": "a"}) and "no luck for b" in b["reason"]
    assert (d["traceback"], d["same_as"]) == (None, {"round": 1, "client": "c"})
    size = (tmp_path / FAILURES).stat().st_size
    table.append(failing(f"client-{number}", 2) | {"round": number} for number in range(100))
    assert (tmp_path / FAILURES).stat().st_size - size < 100 * 200


def test_tracebacks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedray.runs.failures_table.TRACEBACKS", 3)
    folder = RunFolder(tmp_path)
    table = FailuresTable(folder)
    table.append(failing("a", depth) for depth in range(1, 9))
    assert [row["traceback"] is None for row in folder.rows(FAILURES)] == [False] * 3 + [True] * 5
    table.append([failing("x" * 10**6, 1)])
    *_, last = folder.rows(FAILURES)
    assert len(last["reason"]) < 21_000 and "characters)" in last["reason"]
