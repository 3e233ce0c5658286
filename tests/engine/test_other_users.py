"""Another user of the machine cannot read a run's token, join its Ray, or run a task as its user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.intruder import NOBODY

ROOT = Path(__file__).parents[2]
UNUSED = ("site-packages", "test", "tests", "idlelib", "ensurepip", "__pycache__", "config-*")


@pytest.fixture
def open_home() -> Iterator[Path]:
    """A home folder that other users may enter, as in many labs, with a temporary folder in it."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    home = Path(tempfile.mkdtemp(prefix="lab-", dir="/tmp"))
    home.chmod(0o755)
    (home / "tmp").mkdir()
    (home / "tmp").chmod(0o1777)
    yield home
    shutil.rmtree(home)


def python_for_all(folder: Path) -> str:
    """A copy of this Python, which may lie in a folder that only its user may enter; returns its program."""
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, folder / "lib" / library.name, ignore=shutil.ignore_patterns(*UNUSED))
    for shared in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*.so*"):
        shutil.copy(shared, folder / "lib")
    (folder / "bin").mkdir()
    return str(shutil.copy(Path(sys.executable).resolve(), folder / "bin"))


def played(command: list[str], python: str = sys.executable, **options: Any) -> subprocess.Popen[str]:
    script = [python, "-m", "tests.engine.intruder", *command]
    return subprocess.Popen(script, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT, **options)


@pytest.mark.nightly
def test_another_user_neither_reads_nor_joins(open_home: Path) -> None:
    hidden = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "FEDRAY_DASHBOARD")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    mine = {"HOME": str(open_home), "TMPDIR": str(open_home / "tmp"), "PYTHONPATH": str(ROOT)}
    run = played([], env=clean | mine, umask=0o022)
    try:
        assert run.stdout is not None
        address = run.stdout.readline().strip()
        assert address.startswith("127.0.0.1:")  # no other machine reaches it
        with tempfile.TemporaryDirectory(prefix="other-", dir="/tmp") as theirs:
            python = python_for_all(Path(theirs, "python"))
            os.chown(theirs, NOBODY, NOBODY)
            packages = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
            names = {"HOME": theirs, "TMPDIR": theirs, "VICTIMS_TMPDIR": mine["TMPDIR"], "PYTHONPATH": packages}
            names["LD_LIBRARY_PATH"] = f"{theirs}/python/lib"
            whose: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "start_new_session": True}
            options = {"env": clean | names, "stderr": subprocess.PIPE} | whose
            other = played([str(open_home), address], python, **options)
            told, said = other.communicate(timeout=120)
        found = json.loads(told.splitlines()[-1])
    finally:
        run.communicate(timeout=60)
    assert found["uid"] == NOBODY
    assert found["token"] is None and found["folders"] == []
    assert not found["joined"] and found["ran_as"] is None and "InvalidAuthToken" in said
    assert not (open_home / "stolen").exists()
    assert not any((open_home / "tmp").glob("*/ray-*"))  # the folder goes away with its process
