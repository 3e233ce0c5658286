"""A run folder on a disk and on object storage."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedray.runs.folder import RunFolder
from fedray.storage.files import StorageError
from tests.stores import small_disk


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path if request.param == "disk" else request.getfixturevalue("bucket")())


def test_where_it_is(tmp_path: Path, bucket: Callable[[], str]) -> None:
    assert (RunFolder(tmp_path).root, RunFolder(str(tmp_path)).root, RunFolder(tmp_path).place) == (
        tmp_path,
        tmp_path,
        str(tmp_path),
    )
    assert RunFolder(f"file://{tmp_path}").root == tmp_path
    remote = RunFolder(bucket())
    assert remote.root is None and remote.place.startswith("s3://bucket/")


def test_tables_grow_by_rows(folder: RunFolder) -> None:
    assert folder.rows("metrics.jsonl") == []
    folder.append("metrics.jsonl", [{"round": 1, "text": "où\n"}])
    folder.append("metrics.jsonl", [{"round": 2}, {"round": 3, "wer": None}])
    assert folder.rows("metrics.jsonl") == [{"round": 1, "text": "où\n"}, {"round": 2}, {"round": 3, "wer": None}]
    folder.rewrite("metrics.jsonl", [{"round": 2}])
    assert folder.rows("metrics.jsonl") == [{"round": 2}]
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.append("metrics.jsonl", [{"round": 4, "wer": math.nan}])
    assert folder.rows("metrics.jsonl") == [{"round": 2}]


def test_a_last_row_cut_short_does_not_count_and_one_in_between_is_named(folder: RunFolder) -> None:
    folder.write_text("metrics.jsonl", '{"round": 1}\n{"rou')
    assert folder.rows("metrics.jsonl") == [{"round": 1}]
    folder.write_text("metrics.jsonl", '{"round": 1}\n{"rou\n{"round": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: is not a row of JSON"):
        folder.rows("metrics.jsonl")


def test_json_and_tab_separated_tables(folder: RunFolder) -> None:
    folder.write_json("results.json", {"wer": 1.5})
    assert json.loads(folder.read_text("results.json")) == {"wer": 1.5} and folder.exists("results.json")
    folder.write_table("predictions.tsv", [{"utterance": "a", "errors": 1}, {"utterance": "b", "hypothesis": "où"}])
    assert folder.read_text("predictions.tsv") == "utterance\terrors\thypothesis\na\t1\t\nb\t\toù\n"
    folder.write_table("odd.tsv", [{"a": None, "b": "x\ty\r\nz\n", "c": 0}])
    assert folder.read_text("odd.tsv") == "a\tb\tc\n\tx y z \t0\n"
    folder.write_table("none.tsv", [])
    assert folder.storage.files() == ["odd.tsv", "predictions.tsv", "results.json"]
    for _ in range(2):
        folder.remove("odd.tsv")
    assert folder.storage.files() == ["predictions.tsv", "results.json"]


def build(*names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{names}")

    return write


def test_a_folder_is_exported_in_place_of_the_one_before(folder: RunFolder) -> None:
    """Files that only the older folder has stay: they may be the user's."""
    folder.export("model", build("weights", "deep/tokens"))
    folder.export("model", build("weights", "example"))
    assert folder.storage.files() == ["model/deep/tokens", "model/example", "model/weights"]
    assert folder.read_text("model/weights") == "('weights', 'example')"
    assert folder.read_text("model/deep/tokens") == "('weights', 'deep/tokens')"
    for nothing in (build(), lambda path: None):
        folder.export("none", nothing)
        folder.export("model", nothing)
    with pytest.raises(ZeroDivisionError):
        folder.export("model", lambda path: 1 / 0)
    assert folder.storage.files() == ["model/deep/tokens", "model/example", "model/weights"]
    folder.remove("model")
    assert folder.storage.files() == []
    for text in ("one", "two"):
        folder.export("deep/clients.parquet", lambda path, text=text: path.write_text(text))
        assert folder.storage.files() == ["deep/clients.parquet"] and folder.read_text("deep/clients.parquet") == text


def test_what_others_write_is_published(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that grows and new files are published, as TensorBoard writes them."""
    events = folder.scratch("tensorboard")
    assert events.is_dir() and folder.scratch("tensorboard") == events
    (events / "one").write_text("1")
    (folder.scratch() / "clients.parquet").write_text("table")
    folder.publish("tensorboard")
    assert folder.read_text("tensorboard/one") == "1" and folder.exists("clients.parquet") == (folder.root is not None)
    (events / "one").write_text("12")
    (events / "deep").mkdir()
    (events / "deep" / "two").write_text("2")
    put, sent = folder.storage.put, []
    monkeypatch.setattr(folder.storage, "put", lambda files: (sent.extend(sorted(files)), put(files)))
    for _ in range(2):
        folder.publish()
    assert sent == ([] if folder.root else ["clients.parquet", "tensorboard/deep/two", "tensorboard/one"])
    assert folder.read_text("tensorboard/one") == "12" and folder.read_text("tensorboard/deep/two") == "2"
    assert folder.read_text("clients.parquet") == "table"


def test_scratch_goes_with_its_run_folder(bucket: Callable[[], str]) -> None:
    folder = RunFolder(bucket())
    made = folder.scratch()
    assert made.is_dir()
    del folder
    assert not made.exists()


def test_object_storage_has_no_lock(bucket: Callable[[], str]) -> None:
    place = bucket()
    with RunFolder(place).locked(), RunFolder(place).locked():
        assert RunFolder(place).storage.files() == []


def test_one_run_a_folder(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(ValueError, match="another run is using this folder: .* choose another --out"),
        RunFolder(tmp_path).locked(),
    ):
        raise AssertionError("two runs in one folder")
    with pytest.raises(KeyError), RunFolder(tmp_path).locked():
        raise KeyError("a run that failed")
    with RunFolder(tmp_path).locked():
        pass


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    hold = (
        "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('held', "
        "flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="another run"), RunFolder(tmp_path).locked():
            pass
        process.kill()
    with RunFolder(tmp_path).locked():
        pass


def test_the_folder_of_a_trial_names_its_run(tmp_path: Path) -> None:
    for name in ("run", "run-01", "runs"):
        RunFolder(tmp_path / name).write_text("config.yaml", "name: x\n")
    with pytest.raises(ValueError, match=f"a trial, whose run is in {tmp_path}/run-01: name that folder$"):
        RunFolder(tmp_path).check_is_run()


def test_a_table_whose_rows_do_not_fit_into_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        rows = ({"text": "x" * 1000} for _ in range(200))
        with pytest.raises(StorageError, match="disk: cannot be written: .*free space there"):
            RunFolder(tmp_path / "run").write_table("predictions.tsv", rows)
