"""Replacing a file or folder by a newer one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedray.core.types import RunError
from fedray.storage.files import in_place_of


def test_a_folder_changes_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = tmp_path / "model"

    def make(text: str) -> None:
        with in_place_of(final) as folder:
            folder.mkdir()
            (folder / "a").write_text(text)

    make("one")
    make("two")
    with in_place_of(final):
        pass  # nothing was made
    assert (final / "a").read_text() == "two" and [path.name for path in tmp_path.iterdir()] == ["model"]
    replace = os.replace
    for fatal in (1, 2):  # killed before the first rename, or between the two
        left = iter([replace] * (fatal - 1))

        def killed(source: Path, target: Path, left: Iterator[Callable[[Path, Path], None]] = left) -> None:
            next(left, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                make("three")
        old = tmp_path / ".model.old"
        assert ((final if fatal == 1 else old) / "a").read_text() == "two" and final.exists() == (fatal == 1)
    make("four")
    assert (final / "a").read_text() == "four" and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_changes_places_keeps_what_the_new_one_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the older folder stay after a kill between the two renames, and where links cannot be made."""
    final = tmp_path / "model"

    def make(text: str, *names: str) -> None:
        with in_place_of(final, keep=True) as folder:
            folder.mkdir()
            for name in names or ("a",):
                (folder / name).write_text(text)

    make("one")
    (final / "mine" / "empty").mkdir(parents=True)
    (final / "mine" / "note").write_text("mine")
    (final / "mine" / "to nowhere").symlink_to("nowhere")
    left, replace = iter([os.replace]), os.replace
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "replace", lambda *paths: next(left, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))(*paths)
        )
        with pytest.raises(KeyboardInterrupt):
            make("two")
    assert not final.exists() and os.replace is replace
    monkeypatch.setattr(os, "link", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EPERM, "no links here")))
    make("three", "a", "b")
    assert [path.name for path in tmp_path.iterdir()] == ["model"] and (final / "a").read_text() == "three"
    assert sorted(path.relative_to(final).as_posix() for path in final.rglob("*")) == [
        "a", "b", "mine", "mine/empty", "mine/note", "mine/to nowhere"
    ]  # fmt: skip
    assert (final / "mine" / "note").read_text() == "mine" and os.readlink(final / "mine" / "to nowhere") == "nowhere"
    with pytest.raises(
        RunError, match=rf"{final}/mine: a folder is in the way: move it, then continue with `fedray resume`"
    ):
        make("four", "mine")
    assert (final / "mine" / "note").read_text() == "mine" and (final / "a").read_text() == "three"
    (tmp_path / "table").mkdir()
    with (
        pytest.raises(RunError, match="table: a folder is in the way"),
        in_place_of(tmp_path / "table", keep=True) as file,
    ):
        file.write_text("rows")
