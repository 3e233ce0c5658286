"""The temporary folder of a Ray that fedray starts: private, short enough for sockets, and gone with its process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedray.engine.cluster import local_ray
from fedray.storage import temporary

SHOWS = """
import sys
from fedray.engine.cluster import local_ray
print(*local_ray.folders().values(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def short() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def asked(folder: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_TMPDIR"} | {"TMPDIR": str(folder)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", SHOWS], env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def told(process: subprocess.Popen[str]) -> list[Path]:
    assert process.stdout is not None
    return [Path(text) for text in process.stdout.readline().split()]


def test_it_is_private_and_lasts_as_long_as_its_process(short: Path) -> None:
    one, other = asked(short), asked(short)
    (mine,), (theirs,) = told(one), told(other)
    root = short / f"fedray-{os.getuid()}"
    assert mine.parent == theirs.parent == root and mine != theirs
    assert stat.S_IMODE(root.stat().st_mode) == 0o700 and (root / local_ray.LATEST).resolve() in (mine, theirs)
    one.communicate()
    assert not mine.exists() and theirs.exists()
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert theirs.exists()
    (third,) = told(last := asked(short))
    assert third.exists() and not theirs.exists()  # the next Ray removes what a killed one left
    last.communicate()


def test_a_long_temporary_folder_keeps_only_what_needs_room(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    found = told(process := asked(long))
    assert len(found) == 2 and found[1].parent == long / f"fedray-{os.getuid()}"
    path = found[0] / "session_2026-11-28_12-00-00_123456_4194304" / "sockets" / "plasma_store"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(path))
    process.communicate()
    assert not any(one.exists() for one in found)


def test_no_folder_is_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(place: str) -> Path:
        raise PermissionError(f"{place} is read-only")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))
    monkeypatch.setattr(temporary, "private", refuses)
    for name in ("RAY_TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"at most 107 bytes .* bytes too long; /tmp is read-only\): set TMPDIR, or"):
        local_ray.folders()
