"""The cache is listed, checked and pruned; other files in its folder and entries that a process uses stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from fedray.cli import main
from fedray.storage import cache, serialize
from fedray.storage import cache_entries as entries

KEY = "0123456789abcdef0123"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_used", {})
    return tmp_path / "cache"


def build(size: int) -> object:
    def write(folder: Path) -> None:
        (folder / "deep").mkdir()
        (folder / "deep" / "frames.f16").write_bytes(b"x" * size)

    return write


def made(root: Path, days: float, size: int, number: int = 0) -> Path:
    """Make an entry of features, last used `days` days ago by a process that has ended."""
    name = f"features-{number:04d}{KEY[4:]}"
    folder = cache.cached(root / "features" / name, build(size))  # type: ignore[arg-type]
    os.close(cache._used.pop(folder))
    then = time.time() - 86400 * days
    for path in (folder, f"{folder}.lock"):
        os.utime(path, (then, then))
    return folder


def others(root: Path) -> list[Path]:
    """Put files, folders and links of a user into the cache, and return those that must stay."""
    (root / "features").mkdir(parents=True, exist_ok=True)
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "mine").touch()
    (root / "features" / f"features-{'f' * 20}").symlink_to(outside)
    (root / "corpora").symlink_to(outside)
    (outside / f"embedded-plain-{KEY}").mkdir()
    found = [root / "features" / name for name in ("mine", f"features-{KEY}.bak", "features-short", ".hidden.tmp")]
    for path in found:
        path.touch()
    (root / "numba").mkdir()
    return [*found, outside / "mine", root / "numba", root / "corpora" / f"embedded-plain-{KEY}"]


def test_entries_and_their_last_use(root: Path) -> None:
    old, new = made(root, 40, 1000), made(root, 1, 10, 1)
    others(root)
    (root / "features" / f"{new.name}.tmp").mkdir()
    found = entries.entries(root)
    assert [(entry.kind, entry.path.name, entry.bytes) for entry in found] == [
        ("features", old.name, 1000),
        ("features", new.name, 10),
        ("leftover", f"{new.name}.tmp", 0),
    ]
    before = old.stat().st_mtime_ns
    assert cache.use(old) and old.stat().st_mtime_ns == before, "times of modification identify data"
    assert {e.path.name for e in entries.entries(root) if time.time() - e.used < 60} >= {old.name}
    os.close(cache._used.pop(old))


@pytest.mark.parametrize("name", [f"features-{KEY}.12345678", f"features-{KEY}.1234abcd", f"features-{KEY}"])
def test_a_leftover_has_the_lock_of_its_entry(root: Path, name: str) -> None:
    for leftover in (f"{name}.tmp", f".{name}.4194304.fetch", f".{name}.removed"):
        (root / "features" / leftover).mkdir(parents=True)
    found = entries.entries(root)
    assert len(found) == 3 and {entry.kind for entry in found} == {"leftover"}
    assert {entry.lock for entry in found} == {str(root / "features" / f"{name}.lock")}


def test_looking_is_no_use(root: Path) -> None:
    """Listing a folder changes its access time, but does not count as a use."""
    old = made(root, 40, 1000)
    entries.entries(root)
    assert list(old.iterdir())
    [entry] = entries.entries(root)
    assert time.time() - entry.used > 39 * 86400


def test_what_is_chosen(root: Path) -> None:
    for number, days in enumerate((40, 30, 20, 10)):
        made(root, days, 100, number)
    found, now = entries.entries(root), time.time()
    assert entries.to_remove(found) == []
    assert entries.to_remove(found, before=now - 25 * 86400) == found[:2]
    assert entries.to_remove(found, keep=250) == found[:2] and entries.to_remove(found, keep=400) == []
    assert entries.to_remove(found, before=now - 35 * 86400, keep=0) == found


def test_nothing_else_is_removed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, mine = made(root, 40, 2_000_000), others(root)
    assert main(["cache", "--older", "30d"]) == 0
    said = capsys.readouterr().out
    assert f"features/{folder.name}: would be removed, 2.0 MB, last used 40 days ago" in said and folder.exists()
    assert main(["cache", "--keep", "0MB", "--remove"]) == 0
    assert f"features/{folder.name}: removed" in capsys.readouterr().out
    assert not folder.exists() and not folder.with_name(folder.name + cache.HASHES).exists()
    assert all(path.exists() for path in mine) and entries.entries(root) == []
    assert cache.cached(folder, build(5)).is_dir()  # type: ignore[arg-type]


def test_what_a_process_uses_or_makes_stays(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(root, 40, 10)
    hold = "import sys; from fedray.storage import cache; from pathlib import Path; "
    hold += "print(cache.use(Path(sys.argv[1])), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"True\n"
        assert main(["cache", "--keep", "0MB", "--remove"]) == 0
        assert "kept, in use by a process" in capsys.readouterr().out and folder.is_dir()
        process.kill()
    with FileLock(f"{folder}.lock"):
        assert not entries.remove(entries.entries(root)[0])
    assert entries.remove(entries.entries(root)[0]) and not folder.exists()


def test_damage_is_named_and_removed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, changed, lost = made(root, 1, 50), made(root, 1, 50, 1), made(root, 1, 50, 2)
    weights = root / "init" / f"{KEY}.pt"
    weights.parent.mkdir()
    serialize.save({"params": np.ones(1000, np.float32)}, weights)
    assert main(["cache", "--verify"]) == 0 and "no entry is damaged" in capsys.readouterr().out
    (changed / "deep" / "frames.f16").write_bytes(b"y" * 50)
    (lost / "deep" / "frames.f16").unlink()
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    assert main(["cache", "--verify"]) == 1
    said = capsys.readouterr().out
    assert f"{changed.name}: would be removed" in said and "damaged: frames.f16 has changed since" in said
    assert "damaged: deep/frames.f16 is missing" in said and f"init/{KEY}.pt: would be removed" in said
    assert main(["cache", "--verify", "--remove"]) == 0
    assert [entry.path for entry in entries.entries(root)] == [whole]
    weights.write_bytes(b"no archive")
    (entry,) = (entry for entry in entries.entries(root) if entry.kind == "init")
    assert "cannot be read" in str(entries.damage(entry))


def test_what_a_process_is_writing_into_an_entry_is_no_damage(root: Path) -> None:
    (root / "prepared" / KEY / ".ann.pt.7.fetch").mkdir(parents=True)
    for half in (".ann.pt.7.fetch/ann.pt", ".bob.pt.7.tmp"):
        (root / "prepared" / KEY / half).write_bytes(b"half")
    (entry,) = entries.entries(root)
    assert entries.damage(entry) is None


@pytest.mark.parametrize(("option", "value"), [("--older", "30"), ("--keep", "20"), ("--keep", "-1GB")])
def test_a_wrong_number_is_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["cache", f"{option}={value}"])
    assert f"{value!r} cannot be read: write it like" in capsys.readouterr().err


def test_what_vanishes_while_it_is_listed_is_no_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that writes to the cache renames its temporary files."""
    stays, goes = made(root, 1, 10, 1), made(root, 1, 10, 2)
    size_of = entries.size_of

    def gone(item: os.DirEntry[str]) -> int:
        if item.name == goes.name:
            raise FileNotFoundError(item.path)
        return size_of(item)

    monkeypatch.setattr(entries, "size_of", gone)
    assert [entry.path for entry in entries.entries(root)] == [stays]
