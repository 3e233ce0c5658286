"""Temporary files of a run lie in a folder that only its user can enter."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from fedray.core.types import RunError
from fedray.engine.holding import scratch


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"fedray-{os.getuid()}"


def test_only_its_user_can_enter_it(root: Path) -> None:
    assert scratch("run") == root / "run" and root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)  # as an earlier version made it
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
    with pytest.raises(RunError, match=f"{root} is no folder of this user: remove it, or set TMPDIR"):
        scratch("run")
