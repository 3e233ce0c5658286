from __future__ import annotations

import os
import pickle
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fedray.data.manifest import Manifest, Utterance


def files(folder: Path, count: int) -> list[str]:
    paths = [folder / f"{index}.wav" for index in range(count)]
    for path in paths:
        path.write_bytes(b"audio")
    return [str(path) for path in paths]


def small(folder: Path) -> Manifest:
    one, two = files(folder, 2)
    return Manifest.from_rows(
        [
            {"utterance": "a", "path": one, "seconds": 1.5, "speaker": "s", "text": "yes"},
            {"utterance": "b", "path": two, "offset": 0.5, "seconds": 2, "speaker": "t", "label": "no"},
        ],
        "small.tsv",
    )


def test_rows_and_columns_make_the_same_manifest(tmp_path: Path) -> None:
    rows = small(tmp_path)
    columns = Manifest.from_columns(
        {
            "utterance": ["a", "b"],
            "path": rows.column("path"),
            "offset": np.array([0.0, 0.5]),
            "seconds": [1.5, 2],
            "speaker": ["s", "t"],
            "text": ["yes", None],
            "label": [None, "no"],
        },
        "small.tsv",
    )
    assert columns.table.equals(rows.table)
    assert rows[1] == Utterance("b", rows.column("path")[1], 0.5, 2.0, "t", None, "no", None)
    assert rows[-1] == rows[np.int64(1)]
    assert list(rows) == [rows[0], rows[1]]
    assert rows.array("seconds").tolist() == [1.5, 2.0]
    assert rows.hours == 3.5 / 3600
    assert repr(rows) == "Manifest(2 utterances, 2 speakers, 0.00 h)"
    with pytest.raises(IndexError):
        rows[2]


def test_take_concat_and_pickle(tmp_path: Path) -> None:
    manifest = small(tmp_path)
    assert manifest.take([1, 0, 1]).column("utterance") == ["b", "a", "b"]
    assert Manifest.concat([manifest.take([0]), manifest.take([1])]).table.equals(manifest.table)
    assert len(Manifest.concat([])) == 0 and list(Manifest.concat([])) == [] and Manifest.concat([]).hours == 0
    assert pickle.loads(pickle.dumps(manifest)).table.equals(manifest.table)


def test_a_part_pickles_as_a_part() -> None:
    size = 10_000
    names = [f"u{row}" for row in range(size)]
    manifest = Manifest.from_columns(
        {"utterance": names, "path": ["/a.wav"] * size, "seconds": np.ones(size), "speaker": names}, "x"
    )
    assert len(pickle.dumps(manifest.take(range(10)))) < len(pickle.dumps(manifest)) / 100


def test_fingerprint_follows_rows_and_files_only(tmp_path: Path) -> None:
    manifest = small(tmp_path)
    first = manifest.fingerprint()
    parts = Manifest.concat([manifest.take([0]), manifest.take([1])])
    assert parts.fingerprint() == first == pickle.loads(pickle.dumps(manifest)).fingerprint()
    assert Manifest(manifest.table.slice(1)).fingerprint() == manifest.take([1]).fingerprint()
    assert manifest.take([1, 0]).fingerprint() != first
    rows = [
        dict(zip(manifest.table.column_names, values, strict=True))
        for values in zip(*map(manifest.column, manifest.table.column_names), strict=True)
    ]
    assert Manifest.from_rows(rows, "again").fingerprint() == first
    rows[0]["text"] = ""  # an empty text is not a missing one
    empty = Manifest.from_rows(rows, "again").fingerprint()
    rows[0]["text"] = None
    assert len({first, empty, Manifest.from_rows(rows, "again").fingerprint()}) == 3
    path = manifest[0].path
    os.utime(path, ns=(0, 5))
    changed = manifest.fingerprint()
    assert changed != first
    Path(path).write_bytes(b"longer audio")
    os.utime(path, ns=(0, 5))
    assert manifest.fingerprint() not in (first, changed)


def test_the_fingerprint_knows_where_a_text_ends(tmp_path: Path) -> None:
    rows = [asdict(row) for row in small(tmp_path)]
    found = set()
    for first, second in (("no", "go"), ("nog", "o")):
        rows[0]["text"], rows[1]["text"] = first, second
        found.add(Manifest.from_rows(rows, "small.tsv").fingerprint())
    assert len(found) == 2


def test_copies_elsewhere_have_the_same_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    manifest = small(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second", copy_function=shutil.copyfile)
    rows = [asdict(row) for row in manifest]
    for row in rows:
        row["path"] = str(row["path"]).replace("first", "second")
    copy = Manifest.from_rows(rows, "copy")
    assert copy.fingerprint() != manifest.fingerprint()
    assert copy.fingerprint(copied=True) == manifest.fingerprint(copied=True)
    Path(copy[0].path).write_bytes(b"longer audio")
    assert copy.fingerprint(copied=True) != manifest.fingerprint(copied=True)


def test_errors_name_source_line_and_column() -> None:
    good = {"utterance": ["a", "b"], "path": ["/a", "/b"], "seconds": [1, 2], "speaker": ["s", "s"]}
    with pytest.raises(ValueError, match=r"list\.tsv: a manifest has no column 'speakr'; did you mean 'speaker'"):
        Manifest.from_columns(good | {"speakr": ["s", "s"]}, "list.tsv")
    with pytest.raises(ValueError, match=r"list\.tsv: the rows have no speaker"):
        Manifest.from_columns({name: good[name] for name in ("utterance", "path", "seconds")}, "list.tsv")
    with pytest.raises(ValueError, match=r"list\.tsv:7: seconds must be a number of seconds, not 'long'"):
        Manifest.from_columns(good | {"seconds": [1, "long"]}, "list.tsv", lines=[3, 7])
    with pytest.raises(ValueError, match=r"list\.tsv, row 2: has no speaker"):
        Manifest.from_columns(good | {"speaker": ["s", None]}, "list.tsv")
    with pytest.raises(ValueError, match=r"list\.tsv, row 1: the path 'a' is not absolute"):
        Manifest.from_columns(good | {"path": ["a", "/b"]}, "list.tsv")
    with pytest.raises(ValueError, match=r"1 values of text for 2 utterances"):
        Manifest.from_columns(good | {"text": ["x"]}, "list.tsv")


def test_check_names_what_is_wrong(tmp_path: Path) -> None:
    manifest = small(tmp_path)
    manifest.check()
    with pytest.raises(ValueError, match="1 utterance ids repeat, among them a"):
        manifest.take([0, 1, 0]).check()
    columns = {"utterance": ["a", "b"], "path": manifest.column("path"), "speaker": ["s", "t"]}
    for offset, seconds in ((-1.0, 1.0), (0.0, -1.0), (0.0, 0.0), (0.0, float("nan"))):
        with pytest.raises(ValueError, match="impossible times, the first is b"):
            Manifest.from_columns(columns | {"offset": [0, offset], "seconds": [1, seconds]}, "x").check()
    for path in manifest.column("path"):
        os.remove(path)
    with pytest.raises(ValueError, match=rf"2 audio files are missing, among them {tmp_path}/0.wav, {tmp_path}/1.wav"):
        manifest.check()
