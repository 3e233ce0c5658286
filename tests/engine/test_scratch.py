"""A run's temporary files are in a folder that only its user can enter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.types import RunError
from fedray.engine.jobs.holding import Holder, scratch
from fedray.storage import temporary


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"fedray-{os.getuid()}"


def test_only_its_user_can_enter_it(root: Path) -> None:
    assert scratch("run") == root / "run" and root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)  # made by something else, with the usual umask
    assert scratch("run") == root / "run" and root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["a link", "a file", "another user's"])
def test_what_somebody_else_put_there_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "a link":
        (root.parent / "theirs").mkdir()
        root.symlink_to(root.parent / "theirs")
    elif kind == "a file":
        root.touch()
    else:
        uid = os.getuid()
        root = root.with_name(f"fedray-{uid + 1}")
        root.mkdir()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(RunError, match=f"{root} is not a folder owned by this user: remove it, or set TMPDIR"):
        scratch("run")


def test_files_of_a_killed_process_go_with_the_next_one(root: Path) -> None:
    """A lock, not the process number, tells that the owner has ended. The files of a live process stay."""
    hold = "import sys; from pathlib import Path; import numpy as np; from fedray.engine.jobs.holding import Holder; "
    hold += "h = Holder(Path(sys.argv[1]), 0); h.open(0, 0)('a', np.ones(9, np.float32)); print('held', flush=True); "
    hold += "sys.stdin.read()"
    mine, theirs = Holder(scratch("run") / "held-1", 0), scratch("run") / "held-2"
    mine.open(0, 0)("a", np.ones(9, np.float32))
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(theirs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        temporary.sweep()
        assert len(list(theirs.iterdir())) == 1, "its process lives"
        process.kill()
    temporary.sweep()
    assert not theirs.exists() and mine.updates(0, 0)["a"].sum() == 9 and mine.folder.is_dir()
    mine.clear()
    assert list(scratch("run").iterdir()) == []


@pytest.mark.long
def test_folders_may_vanish_while_another_process_sweeps(root: Path) -> None:
    """Processes make, sweep and remove the same folders at once, as runs do that start and end on one machine."""
    work = f"""
import os, tempfile; from fedray.engine.jobs.holding import scratch; from fedray.storage import temporary
tempfile.tempdir = {str(root.parent)!r}
for number in range(200):
    folder = scratch(f"run-{{number % 3}}") / str(os.getpid())
    lock = temporary.own(folder)
    temporary.sweep()
    assert folder.is_dir()
    temporary.disown(folder, lock)"""
    ended = [subprocess.Popen([sys.executable, "-c", work], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in ended] == [("", 0)] * 3


def test_a_folder_that_vanishes_while_it_is_made_is_made_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mkdir` finds the parent folder, and then that it is gone; a file in its place is an error."""
    made = Path.mkdir
    refusals = [FileExistsError(17, "File exists")]

    def vanishing(path: Path, *given: Any, **named: Any) -> None:
        if path.name == "run" and refusals:
            raise refusals.pop()
        made(path, *given, **named)

    monkeypatch.setattr(Path, "mkdir", vanishing)
    folder = root / "run" / "1"
    lock = temporary.own(folder)
    assert folder.is_dir() and not refusals
    temporary.disown(folder, lock)
    (root / "file").touch()
    with pytest.raises(FileExistsError):
        temporary.own(root / "file" / "1")
