"""The shared cache: machines fetch what another has made; half an upload or a planted file is never used."""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from fedray.storage import serialize
from fedray.storage.base import Storage
from fedray.storage.cache import available, cached, entry_name, fetch, share
from fedray.storage.files import StorageError
from fedray.storage.opening import open_storage
from tests.stores import small_disk


@pytest.fixture(params=["disk", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The shared cache; this machine's own cache is `tmp_path / "one"`."""
    place = str(tmp_path / "shared") if request.param == "disk" else request.getfixturevalue("bucket")()
    monkeypatch.setenv("FEDRAY_SHARED_CACHE", place)
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "one"))
    return open_storage(place)


def make(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "a").write_text("1")
    (folder / "deep" / "same").write_text("1")
    (folder / "deep" / "b").write_text("2")


def never(folder: Path) -> None:
    raise AssertionError("it was made once more")


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): (path.read_text(), path.stat().st_mtime_ns) for path in files}


def test_another_machine_fetches_what_one_has_made(
    shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cached(tmp_path / "one" / "features" / "x", make)
    before = shared.files()
    assert (
        all(name.startswith("features/x/") for name in before) and len(before) == 2 + 1
    )  # two of the three files are equal
    cached(made, never)
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "two"))
    fetched = cached(tmp_path / "two" / "features" / "x", never)
    assert contents(fetched) == contents(made) and len(contents(made)) == 3  # and times, which identify corpora
    assert [path.name for path in fetched.parent.iterdir() if not path.name.endswith(".lock")] == [
        "x"
    ] and shared.files() == before


def test_what_was_there_before_is_shared_when_it_is_used(
    shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.delenv("FEDRAY_SHARED_CACHE")
        cached(tmp_path / "one" / "x", make)
    assert shared.files() == []
    cached(tmp_path / "one" / "x", never)
    assert shared.exists("x/manifest.json")
    cached(tmp_path / "elsewhere" / "x", make)  # not in the cache, so it has no name to share
    assert {name.split("/")[0] for name in shared.files()} == {"x"}


@pytest.mark.parametrize("shared", ["disk"], indirect=True)
def test_a_shared_cache_that_may_not_be_written(
    shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Storage, files: Mapping[str, Path]) -> None:
        raise PermissionError(13, "Permission denied", f"{self.place}/x")

    monkeypatch.setattr(type(shared), "put", refused)
    with pytest.raises(ValueError, match="FEDRAY_SHARED_CACHE: .*/x: you may not write it: permit it, or unset"):
        cached(tmp_path / "one" / "features" / "x", make)


def test_one_file(shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single file is shared and fetched, as the engine does with theta_0 and prepared states."""
    path = tmp_path / "one" / "init" / "theta.pt"
    assert not fetch(path)
    path.parent.mkdir(parents=True)
    path.write_text("theta")
    share(path)
    share(path)
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "two"))
    other = tmp_path / "two" / "init" / "theta.pt"
    (other.parent / f".theta.pt.{os.getpid()}.fetch").mkdir(parents=True)  # of a killed process of the same number
    assert (
        fetch(other) and other.read_text() == "theta" and [path.name for path in other.parent.iterdir()] == ["theta.pt"]
    )
    assert not fetch(other.with_name("none.pt"))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_upload_that_was_cut_off_is_not_used(
    shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    kind, left = type(shared), iter(range(after))
    put, write = kind.put, kind.write

    def dying(self: Storage, files: Mapping[str, Path]) -> None:
        for name in files:
            if next(left, None) is None:
                raise KeyboardInterrupt
            put(self, {name: files[name]})

    def dead(self: Storage, name: str, data: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, "put", dying)
        patch.setattr(kind, "write", dead)
        with pytest.raises(KeyboardInterrupt):
            cached(tmp_path / "one" / "x", make)
    assert len(shared.files()) == after
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "two"))
    assert not fetch(tmp_path / "two" / "x")
    cached(tmp_path / "two" / "x", make)
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "three"))
    assert contents(cached(tmp_path / "three" / "x", never)).keys() == {"a", "deep/b", "deep/same"}
    assert (kind.put, kind.write) == (put, write)


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damaged_files_are_made_anew(
    shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    cached(tmp_path / "one" / "x", make)
    name = next(name for name in shared.files("x") if name != "manifest.json")
    shared.remove(f"x/{name}") if damage == "gone" else shared.write(f"x/{name}", b"")
    for machine, build in (("two", make), ("three", never)):
        monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / machine))
        assert len(contents(cached(tmp_path / machine / "x", build))) == 3


PLANTED = {"hash": "0" * 32, "size": 1, "mtime_ns": 0}


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        "{}",
        '{"folder": true, "files": {"a": 1}}',
        json.dumps({"folder": True, "files": {"../../outside": PLANTED}}),
        json.dumps({"folder": True, "files": {"/tmp/outside": PLANTED}}),
        json.dumps({"folder": True, "files": {"a": PLANTED | {"hash": "../a"}}}),
    ],
)
def test_a_manifest_that_is_none_is_refused(shared: Storage, tmp_path: Path, manifest: str) -> None:
    shared.write("x/manifest.json", manifest.encode())
    shared.write(f"x/{'0' * 32}", b"1")
    with pytest.raises(ValueError, match=r"x/manifest\.json: .*remove it"):
        cached(tmp_path / "one" / "x", make)
    assert not [path for path in tmp_path.rglob("*") if path.name == "outside"]


class Call:
    """An object that pickles as a call: unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_planted_as_theta_is_refused_and_not_run(
    shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    target, theta = tmp_path / "made", tmp_path / "one" / "theta.pt"
    theta.parent.mkdir()
    torch.save({"params": Call(target)}, theta) if how == "torch" else theta.write_bytes(
        pickle.dumps({"params": Call(target)})
    )
    share(theta)
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "two"))
    assert fetch(tmp_path / "two" / "theta.pt")
    with pytest.raises(ValueError, match=r"two/theta\.pt: is not a state that fedray can read"):
        serialize.load(tmp_path / "two" / "theta.pt")
    assert not target.exists()
    torch.load(theta, weights_only=False) if how == "torch" else pickle.loads(theta.read_bytes())
    assert target.is_dir()  # the planted pickle does work


def test_the_cache_may_be_the_shared_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEDRAY_CACHE", "FEDRAY_SHARED_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert contents(cached(tmp_path / "x", make)).keys() == {"a", "deep/b", "deep/same"}


def test_an_entry_of_another_machine(shared: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cached(tmp_path / "one" / "x", make)
    name = entry_name(made)
    assert available(made, name) == made and entry_name(tmp_path / "elsewhere") is None
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "two"))
    made.rename(tmp_path / "not here")
    assert available(made, name) == tmp_path / "two" / "x" and len(contents(tmp_path / "two" / "x")) == 3
    with pytest.raises(
        ValueError,
        match=f"one/y: is not on {socket.gethostname()} .*nor is it in FEDRAY_SHARED_CACHE.* set FEDRAY_CACHE to",
    ):
        available(tmp_path / "one" / "y", "y")
    monkeypatch.delenv("FEDRAY_SHARED_CACHE")
    with pytest.raises(
        ValueError, match="elsewhere/y: is not on .*FEDRAY_SHARED_CACHE is not set.* set FEDRAY_CACHE to"
    ):
        available(tmp_path / "elsewhere" / "y", None)


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        for write in (
            lambda path: path.write_bytes(bytes(2_000_000)),
            lambda path: torch.save(torch.zeros(500_000), path),
        ):
            with pytest.raises(StorageError, match="disk/features: cannot be written"):
                cached(disk / "features", lambda folder, write=write: write(folder / "frames"))
            assert [path.name for path in disk.iterdir() if path.is_dir()] == []
