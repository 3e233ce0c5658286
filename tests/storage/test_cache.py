from __future__ import annotations

import multiprocessing
import os
import time
from functools import partial
from pathlib import Path

import pytest

from fedray.storage import cache
from fedray.storage.cache import cache_root, cached, check, key
from fedray.storage.files import write_atomically


def build(log: Path, seconds: float, folder: Path) -> None:
    """Write half, wait, write the other half, and log the process that did it."""
    (folder / "first").write_text("1")
    time.sleep(seconds)
    (folder / "second").write_text("2")
    with log.open("a") as file:
        file.write(f"{os.getpid()}\n")


def build_in_a_process(folder: Path, log: Path, ready: multiprocessing.synchronize.Barrier) -> None:
    ready.wait(30)
    found = cached(folder, partial(build, log, 0.3))
    assert sorted(path.name for path in found.iterdir()) == ["first", "second"]


def fail(temporary: Path) -> None:
    (temporary / "half").write_text("half")
    raise ValueError("the disk is on fire")


def test_built_once_then_found(tmp_path: Path) -> None:
    folder, log = tmp_path / "deep" / "features", tmp_path / "log"
    for _ in range(3):
        assert cached(folder, partial(build, log, 0.0)) == folder
    assert len(log.read_text().split()) == 1
    assert (folder / "second").read_text() == "2"


def test_what_build_raises_is_raised_and_nothing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    with pytest.raises(ValueError, match="the disk is on fire"):
        cached(folder, fail)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    assert cached(folder, partial(build, tmp_path / "log", 0.0)).is_dir()  # the lock is free again


def test_the_remains_of_a_killed_writer_are_not_mixed_in(tmp_path: Path) -> None:
    remains = tmp_path / "features.tmp"
    remains.mkdir()
    (remains / "third").write_text("of a writer that was killed")
    folder = cached(tmp_path / "features", partial(build, tmp_path / "log", 0.0))
    assert sorted(path.name for path in folder.iterdir()) == ["first", "second"]
    assert not remains.exists()


def test_two_processes_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(2)
    folder, log = tmp_path / "features", tmp_path / "log"
    processes = [context.Process(target=build_in_a_process, args=(folder, log, ready)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(log.read_text().split()) == 1


def keep_after_making(folder: Path, log: Path, together: multiprocessing.synchronize.Barrier) -> None:
    """Make or find an entry, and use it until all processes have it."""
    together.wait(30)
    cached(folder, partial(build, log, 0.3))
    together.wait(30)


def test_a_process_need_not_wait_until_the_one_that_made_the_entry_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path))  # uses of entries elsewhere are not recorded
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(3)
    folder, log = tmp_path / "features" / "a", tmp_path / "log"
    processes = [context.Process(target=keep_after_making, args=(folder, log, together)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(log.read_text().split()) == 1


def test_a_reader_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's cache: what is there is used without its lock, and held with a lock that is shared."""
    folder = cached(tmp_path / "corpora" / f"here-{'0' * 20}", partial(build, tmp_path / "log", 0.0))
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path))
    cache._used.clear()
    as_reader(monkeypatch)
    assert cached(folder, fail) == folder and folder in cache._used
    with pytest.raises(ValueError, match="missing: is not there, and you may not write it: set FEDRAY_CACHE to"):
        cached(tmp_path / "corpora" / "missing", fail)


def as_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have locks and files refused that are opened for writing, as for a user who may only read; root may always."""
    opened = os.open

    def refused(path: str | Path, flags: int, *more: int, **options: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refused)


def test_a_changed_or_missing_file_of_an_entry_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cached(tmp_path / "features", partial(build, tmp_path / "log", 0.0))
    check(folder)
    (folder / "second").write_text("3")
    with pytest.raises(ValueError, match="second: has changed since .*written. This is a cache: remove .*features$"):
        check(folder)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "CHECKED", 1)
        check(folder)  # too large to be read at the start of each run
    (folder / "second").unlink()
    with pytest.raises(ValueError, match="second: has changed since it was written"):
        check(folder)
    (tmp_path / "features.hashes").unlink()  # of an entry that was fetched
    check(folder)


def test_keys_name_contents_not_order() -> None:
    assert key({"a": 1, "b": {"c": [1, 2]}}) == key({"b": {"c": [1, 2]}, "a": 1})
    different = [{}, {"a": 1}, {"a": "1"}, {"a": 1.5}, {"a": None}, {"a": [1, 2]}, {"a": [2, 1]}, {"b": 1}]
    assert len({key(parts) for parts in different}) == len(different)
    with pytest.raises(TypeError):
        key({"a": object()})  # its repr would differ in the next process


def test_cache_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("FEDRAY_CACHE")
    assert cache_root().name == "fedray"


def test_compiled_code_of_a_reader_is_in_the_user_s_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "cache"))
    assert cache.own_root() == cache_root() == tmp_path / "cache"
    (tmp_path / "cache").touch()  # nobody can write files into a file
    assert cache.own_root() == tmp_path / "mine" / "fedray"


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    write_atomically(path, lambda temporary: temporary.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
