"""Checkpoints on a disk and on object storage: one always allows a resume, and an incomplete one never counts."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from fedray.core.types import ServerState
from fedray.runs.client_states import Written
from fedray.runs.folder import ClientRecord, Progress, RunFolder, read_clients, write_clients
from fedray.storage import serialize
from fedray.storage.files import StorageError
from fedray.storage.local import LocalStorage
from tests.stores import small_disk


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run" if request.param == "disk" else request.getfixturevalue("bucket")())


def progress(round: int, up_bytes: float = 123) -> Progress:
    """The progress of a driver after some rounds."""
    state = ServerState(
        np.full(5, round, np.float32), {"optimizer": {"m": np.arange(3, dtype=np.float32)}, "labels": ["a"]}
    )
    clients = {
        "a": ClientRecord(Written(round, 10, "ab"), 2, 0, round, {"examples": 7.0, "loss": 1.5}),
        "b/c": ClientRecord(None, 0, 1, 1, {}),
    }
    return Progress(state, round, clients, {"up_bytes": up_bytes, "seconds": 0.1}, {"round": 1, "value": 33.3})


def named(folder: RunFolder, round: int, part: str) -> str:
    """The file of a checkpoint whose name begins with `part`: on object storage, names contain hashes."""
    (found,) = [name for name in folder.storage.files() if name.startswith(f"checkpoints/round_{round:06d}/{part}.")]
    return found


def test_a_checkpoint_comes_back_whole(folder: RunFolder) -> None:
    before = progress(3)
    folder.save(before)
    after = folder.load(3)
    assert np.array_equal(after.state.params, before.state.params) and after.state.params.dtype == np.float32
    assert np.array_equal(after.state.extra["optimizer"]["m"], [0, 1, 2]) and after.state.extra["labels"] == ["a"]
    assert (after.round, after.clients, after.totals, after.best) == (3, before.clients, before.totals, before.best)
    parts = [name.split("/")[-1].split(".") for name in folder.storage.files()]
    assert [(part[0], part[-1]) for part in parts] == [
        ("clients", "parquet"),
        ("manifest", "json"),
        ("progress", "json"),
        ("server", "pt"),
    ]
    private, clock, models = {"noise": 0.7, "bound|first": 2.5}, {"now": 5, "open": [1, 2]}, {2: Written(2, 10, "ab")}
    folder.save(replace(before, private=private, clock=clock, models=models))
    after = folder.load(3)
    assert (after.private, after.clock, after.models) == (private, clock, models)
    folder.save(Progress(ServerState(np.zeros(1, np.float32)), 4))  # no client yet, no best round
    assert folder.load(4).clients == {} and folder.load(4).best is None


def test_a_model_on_a_disk_is_not_read_into_memory_beside_its_arrays(tmp_path: Path, monkeypatch) -> None:
    folder, size = RunFolder(tmp_path / "run"), 250_000
    folder.save(Progress(ServerState(np.arange(size, dtype=np.float32)), 1))
    read, taken = LocalStorage.read, list[int]()
    monkeypatch.setattr(LocalStorage, "read", lambda self, name: taken.append(1) or read(self, name)[: 4 * size - 1])
    params = folder.load(1).state.params
    params[0] = 5  # an array of its own
    assert np.array_equal(params[1:], np.arange(1, size)) and len(taken) == 1, "the manifest alone"


def test_saving_again_replaces(folder: RunFolder) -> None:
    for number in (123, 456):
        folder.save(progress(3, up_bytes=number))
        assert (
            folder.load(3).totals["up_bytes"] == number
            and folder.saved_rounds() == [3]
            and len(folder.storage.files()) == 4
        )


def test_prune(folder: RunFolder) -> None:
    for round in (0, 1, 2, 10):
        folder.save(progress(round))
    folder.storage.write("checkpoints/notes.txt", b"of the user")
    assert folder.saved_rounds() == [0, 1, 2, 10]
    folder.prune({0, 10, 11})
    assert folder.saved_rounds() == [0, 10] and folder.load(10).round == 10
    assert len(folder.storage.files()) == 2 * 4 + 1


@pytest.mark.parametrize("part", ["server", "clients", "progress"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_checkpoint_is_named(folder: RunFolder, part: str, damage: str) -> None:
    folder.save(progress(3))
    name = named(folder, 3, part)
    data = folder.storage.read(name)
    if damage == "gone":
        folder.storage.remove(name)
    else:
        folder.storage.write(name, data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(
        ValueError,
        match=f"{name}: is missing or has changed since .*remove .*round_000003 to continue from",
    ):
        folder.load(3)


@pytest.mark.parametrize("manifest", [None, "", '{"server.pt": "12', "[1]", "{}"])
def test_a_checkpoint_without_its_manifest_is_incomplete(folder: RunFolder, manifest: str | None) -> None:
    folder.save(progress(3))
    name = named(folder, 3, "manifest")
    folder.storage.remove(name) if manifest is None else folder.write_text(name, manifest)
    with pytest.raises(ValueError, match=r"manifest\.json: the checkpoint is incomplete"):
        folder.load(3)


class Call:
    """An object that pickles as a call: unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_planted_in_a_checkpoint_is_refused_and_not_run(folder: RunFolder, tmp_path: Path, how: str) -> None:
    target, planted = tmp_path / "made", tmp_path / "planted"
    state = {"params": torch.zeros(2), "extra": Call(target)}
    torch.save(state, planted) if how == "torch" else planted.write_bytes(pickle.dumps(state))
    folder.save(progress(3))
    name = named(folder, 3, "server")
    folder.storage.put({name: planted})
    hashes = json.loads(folder.read_text(named(folder, 3, "manifest")))  # whoever can write one can write both
    hashes[name.split("/")[-1]] = hashlib.blake2b(planted.read_bytes()).hexdigest()[:32]
    folder.write_json(named(folder, 3, "manifest"), hashes)
    with pytest.raises(ValueError, match=f"{name}: is not a state that fedray can read"):
        folder.load(3)
    assert not target.exists()
    torch.load(planted, weights_only=False) if how == "torch" else pickle.loads(planted.read_bytes())
    assert target.is_dir()  # the planted pickle does work


def test_clients_round_trip(tmp_path: Path) -> None:
    clients = {
        "z": ClientRecord(Written(3, 10, "ab"), 1, 2, 4, {"loss": math.inf, "only z": 1.0}),
        "a": ClientRecord(report={"loss": 0.1}),
        "ü/": ClientRecord(),
    }
    write_clients(clients, tmp_path / "clients.parquet")
    found = read_clients(tmp_path / "clients.parquet")
    assert found == clients and list(found) == list(clients)


def test_the_columns_of_the_clients_are_in_the_documentation(tmp_path: Path) -> None:
    write_clients({"a": ClientRecord(report={"examples": 2.0, "loss": 0.1})}, tmp_path / "clients.parquet")
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `clients.parquet` |"))
    for column in pq.read_schema(tmp_path / "clients.parquet").names:
        assert f"`{column}`" in row


# On a disk, checkpoints are renamed into place.


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        folder = RunFolder(disk)
        folder.save(progress(3))
        for round in (3, 4):
            large = Progress(ServerState(np.zeros(500_000, np.float32)), round)
            says = (
                f"disk/checkpoints/round_{round:06d}/server.pt: cannot be written: No space left on "
                f"device.*`fedray resume`"
            )
            with pytest.raises(StorageError, match=says):
                folder.save(large)
            assert folder.saved_rounds() == [3] and folder.load(3).totals["up_bytes"] == 123
            assert [path.name for path in (disk / "checkpoints").iterdir()] == ["round_000003"]
        folder.append("failures.jsonl", [{"round": 1}])
        with pytest.raises(StorageError, match=r"failures\.jsonl: cannot be written: No space"):
            folder.append("failures.jsonl", [{"round": 2, "traceback": "x" * 2_000_000}])
        folder.append("failures.jsonl", [{"round": 3}])
        assert folder.rows("failures.jsonl") == [{"round": 1}, {"round": 3}]
        clients = {f"{number}": ClientRecord(report={"loss": number**0.5}) for number in range(100_000)}
        for write in (
            lambda path: torch.save(torch.zeros(500_000), path),
            lambda path: write_clients(clients, path),
        ):
            with pytest.raises(StorageError, match="disk/export: cannot be written: "):
                folder.export("export", write)
        with pytest.raises(StorageError, match=r"clients\.parquet: cannot be written"):
            write_clients(clients, disk / "clients.parquet")
        assert folder.storage.names() == ["checkpoints", "failures.jsonl"] and folder.load(3).round == 3


def test_what_a_killed_writer_left_is_no_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    half = tmp_path / "checkpoints" / ".round_000004.tmp"
    half.mkdir(parents=True)
    (half / "server.pt").write_bytes(b"half")
    assert folder.saved_rounds() == []
    folder.save(progress(4))
    assert folder.load(4).round == 4 and [path.name for path in half.parent.iterdir()] == ["round_000004"]
    half.mkdir()
    folder.prune({4})
    assert [path.name for path in half.parent.iterdir()] == ["round_000004"]


def test_at_no_moment_is_there_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after every step of saving a round again, another process finds a complete checkpoint."""
    folder, seen = RunFolder(tmp_path), []
    folder.save(progress(3))

    def look() -> None:
        assert RunFolder(tmp_path).saved_rounds() == [3]
        seen.append(RunFolder(tmp_path).load(3).totals["up_bytes"])

    for module, name in ((os, "replace"), (os, "rename"), (os, "unlink"), (os, "rmdir"), (os, "mkdir")):
        step = getattr(module, name)

        def watched(*arguments: object, step: Callable[..., None] = step, **named: object) -> None:
            look()
            step(*arguments, **named)
            look()

        monkeypatch.setattr(module, name, watched)
    folder.save(progress(3, up_bytes=456))
    monkeypatch.undo()
    assert (
        seen == sorted(seen) and set(seen) == {123, 456} and len(seen) >= 2 * (3 + 4)
    )  # mkdir, two renames, and four files removed


def test_a_driver_killed_between_the_renames(tmp_path: Path) -> None:
    folder, checkpoints = RunFolder(tmp_path), tmp_path / "checkpoints"
    folder.save(progress(3))
    (checkpoints / "round_000003").rename(checkpoints / ".round_000003.old")
    assert folder.saved_rounds() == [3] and folder.load(3).round == 3 and folder.load(3).clients
    folder.save(progress(3, up_bytes=456))
    assert folder.load(3).totals["up_bytes"] == 456 and [path.name for path in checkpoints.iterdir()] == [
        "round_000003"
    ]
    (checkpoints / ".round_000003.old").mkdir()  # killed just after the renames
    folder.prune({3})
    assert folder.load(3).totals["up_bytes"] == 456 and [path.name for path in checkpoints.iterdir()] == [
        "round_000003"
    ]
    (checkpoints / "round_000003").rename(checkpoints / ".round_000003.old")
    folder.prune({3})
    assert folder.load(3).totals["up_bytes"] == 456
    folder.prune({4})
    assert not list(checkpoints.iterdir())


def test_the_format_on_a_disk(tmp_path: Path) -> None:
    """Existing checkpoints depend on this format: plain names, and the hashes of the files by name."""
    RunFolder(tmp_path).save(progress(3))
    folder = tmp_path / "checkpoints" / "round_000003"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest) == ["clients.parquet", "progress.json", "server.pt"]
    assert all(
        found == hashlib.blake2b((folder / name).read_bytes()).hexdigest()[:32] for name, found in manifest.items()
    )
    assert serialize.load(folder / "server.pt")["params"].tolist() == [3.0] * 5 and read_clients(
        folder / "clients.parquet"
    )


# On object storage, the manifest is written last: see test_checkpoints_in_a_bucket.py.
