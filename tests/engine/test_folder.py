from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedray.core import serialize
from fedray.core.types import ServerState
from fedray.engine.folder import ClientRecord, Progress, RunFolder, read_clients, write_clients


def progress(round: int) -> Progress:
    """What a driver carries after a few rounds."""
    state = ServerState(np.full(5, round, np.float32), {"optimizer": {"m": np.arange(3, dtype=np.float32)}, "labels": ["a"]})
    clients = {"a": ClientRecord(round, 2, 0, round, {"examples": 7.0, "loss": 1.5}), "b/c": ClientRecord(None, 0, 1, 1, {})}
    return Progress(state, round, clients, {"up_bytes": 123, "seconds": 0.1}, {"round": 1, "value": 33.3})


def test_a_checkpoint_comes_back_whole(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    before = progress(3)
    folder.save(before)
    after = folder.load(3)
    assert np.array_equal(after.state.params, before.state.params) and after.state.params.dtype == np.float32
    assert np.array_equal(after.state.extra["optimizer"]["m"], [0, 1, 2]) and after.state.extra["labels"] == ["a"]
    assert (after.round, after.clients, after.totals, after.best) == (3, before.clients, before.totals, before.best)
    assert sorted(path.name for path in folder.checkpoint(3).iterdir()) == [
        "clients.parquet",
        "manifest.json",
        "progress.json",
        "server.pt",
    ]
    folder.save(Progress(ServerState(np.zeros(1, np.float32)), 4))  # no client yet, no best round
    assert folder.load(4).clients == {} and folder.load(4).best is None


def test_saving_again_replaces(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save(progress(3))
    again = progress(3)
    again.totals["up_bytes"] = 456
    folder.save(again)
    assert folder.load(3).totals["up_bytes"] == 456 and folder.saved_rounds() == [3]


def test_a_write_that_fails_leaves_the_checkpoints_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.save(progress(3))

    def full(*arguments: object) -> int:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(serialize, "save", full)
        for round in (3, 4):
            with pytest.raises(OSError, match="no space left"):
                folder.save(progress(round))
    assert folder.saved_rounds() == [3] and folder.load(3).round == 3
    assert [path.name for path in folder.checkpoints.iterdir()] == ["round_000003"]


def test_what_a_killed_writer_left_is_no_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.saved_rounds() == []
    (folder.checkpoints / ".round_000004.tmp").mkdir(parents=True)
    (folder.checkpoints / ".round_000004.tmp" / "server.pt").write_bytes(b"half")
    assert folder.saved_rounds() == []
    folder.save(progress(4))
    assert folder.load(4).round == 4 and len(list(folder.checkpoints.iterdir())) == 1


@pytest.mark.parametrize("name", ["server.pt", "clients.parquet", "progress.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, name: str, damage: str) -> None:
    folder = RunFolder(tmp_path)
    folder.save(progress(3))
    path = folder.checkpoint(3) / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(ValueError, match=f"round_000003/{name}: is missing or not what was written.*remove .*round_000003 to go on from"):
        folder.load(3)


@pytest.mark.parametrize("manifest", [None, "", '{"server.pt": "12'])
def test_a_checkpoint_without_its_manifest_is_incomplete(tmp_path: Path, manifest: str | None) -> None:
    folder = RunFolder(tmp_path)
    folder.save(progress(3))
    path = folder.checkpoint(3) / "manifest.json"
    path.unlink() if manifest is None else path.write_text(manifest)
    with pytest.raises(ValueError, match=r"manifest\.json: the checkpoint is incomplete"):
        folder.load(3)


def test_prune(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for round in (0, 1, 2, 10):
        folder.save(progress(round))
    assert folder.saved_rounds() == [0, 1, 2, 10]
    folder.prune({0, 10, 11})
    assert folder.saved_rounds() == [0, 10] and folder.load(10).round == 10


def test_clients_round_trip(tmp_path: Path) -> None:
    clients = {
        "z": ClientRecord(3, 1, 2, 4, {"loss": math.inf, "only z": 1.0}),
        "a": ClientRecord(report={"loss": 0.1}),
        "ü/": ClientRecord(),
    }
    write_clients(clients, tmp_path / "clients.parquet")
    found = read_clients(tmp_path / "clients.parquet")
    assert found == clients and list(found) == list(clients)


def test_tables_grow_by_rows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.rows("metrics.jsonl") == []
    folder.append("metrics.jsonl", [{"round": 1, "text": "où\n"}])
    folder.append("metrics.jsonl", [{"round": 2}, {"round": 3, "wer": None}])
    assert folder.rows("metrics.jsonl") == [{"round": 1, "text": "où\n"}, {"round": 2}, {"round": 3, "wer": None}]
    folder.rewrite("metrics.jsonl", [{"round": 2}])
    assert folder.rows("metrics.jsonl") == [{"round": 2}]
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.append("metrics.jsonl", [{"round": 4, "wer": math.nan}])
    assert folder.rows("metrics.jsonl") == [{"round": 2}]


def test_a_last_row_cut_short_does_not_count_and_one_in_between_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n{"rou')
    assert folder.rows("metrics.jsonl") == [{"round": 1}]
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n{"rou\n{"round": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: is not a row of JSON"):
        folder.rows("metrics.jsonl")


def test_json_and_tab_separated_tables(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_json("results.json", {"wer": 1.5})
    assert json.loads((tmp_path / "results.json").read_text()) == {"wer": 1.5}
    folder.write_table("predictions.tsv", [{"utterance": "a", "errors": 1}, {"utterance": "b", "hypothesis": "où"}])
    assert (tmp_path / "predictions.tsv").read_text(encoding="utf-8") == "utterance\terrors\thypothesis\na\t1\t\nb\t\toù\n"
    folder.write_table("none.tsv", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["predictions.tsv", "results.json"]


def test_one_run_a_folder(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(ValueError, match="another run is at work in this folder: .* choose another --out"),
        RunFolder(tmp_path).locked(),
    ):
        raise AssertionError("two runs in one folder")
    with pytest.raises(KeyError), RunFolder(tmp_path).locked():
        raise KeyError("a run that failed")
    with RunFolder(tmp_path).locked():
        pass


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    hold = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="another run"), RunFolder(tmp_path).locked():
            pass
        process.kill()
    with RunFolder(tmp_path).locked():
        pass
