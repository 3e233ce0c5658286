"""Ray's token is made for its user alone, is closed if it was open, and has a place if the home folder has none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedray.engine.cluster import ray_auth


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder and a temporary folder without a token. What the functions set is undone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        for name in (ray_auth.MODE, ray_auth.TOKEN, ray_auth.PATH):
            patch.setenv(name, "")  # so that it is restored, whatever is set
            patch.delenv(name)
        patch.setenv("HOME", str(tmp_path / "home"))
        (tmp_path / "home").mkdir()
        yield tmp_path / "home"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_token_is_its_users_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.umask(0o000)
    try:
        ray_auth.secure_token()
    finally:
        os.umask(before)
    file = home / ".ray" / "auth_token"
    assert (mode(file.parent), mode(file)) == (0o700, 0o600) and len(bytes.fromhex(file.read_text())) == 32
    token = file.read_text()
    ray_auth.secure_token()
    assert file.read_text() == token and capsys.readouterr().err == ""


def test_an_open_token_is_closed_and_that_is_said_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / ".ray" / "auth_token"
    file.parent.mkdir(mode=0o755)
    file.write_text("mine")
    file.chmod(0o644)
    ray_auth.secure_token()
    said = capsys.readouterr().err
    assert (mode(file.parent), mode(file), file.read_text()) == (0o700, 0o600, "mine")
    assert said.startswith(f"{file}: other users of this machine could read Ray's token") and said.count("\n") == 1
    ray_auth.secure_token()
    assert capsys.readouterr().err == ""


def test_a_named_token_is_closed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (tmp_path / "token").write_text("mine")
    (tmp_path / "token").chmod(0o644)
    monkeypatch.setenv(ray_auth.PATH, str(tmp_path / "token"))
    ray_auth.secure_token()
    assert mode(tmp_path / "token") == 0o600 and not (home / ".ray").exists()


@pytest.mark.parametrize("why", ["nobody can write", "another user's token", "no home"])
def test_without_a_home_the_token_is_in_the_private_temporary_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "nobody can write":  # which root ignores: a file in the way stops root too
        (home / ".ray").touch()
    elif why == "no home":
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    else:
        if os.getuid() != 0:
            pytest.skip("only root can make another user's file")
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text("theirs")
        os.chown(home / ".ray" / "auth_token", 65534, 65534)
    ray_auth.secure_token()
    file = Path(os.environ[ray_auth.PATH])
    assert file == tmp_path / f"fedray-{os.getuid()}" / "auth_token"
    assert (mode(file.parent), mode(file)) == (0o700, 0o600) and file.read_text() != "theirs"


def test_other_processes_find_the_token_there(tmp_path: Path, home: Path) -> None:
    (home / ".ray").touch()
    ray_auth.secure_token()
    code = "from fedray.engine.cluster.ray_auth import *; show_token(); print(os.environ[MODE], os.environ[PATH])"
    environment = {name: value for name, value in os.environ.items() if name not in (ray_auth.PATH, ray_auth.MODE)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert found.stdout.split() == ["token", os.environ[ray_auth.PATH]]


def test_whoever_turns_the_token_off_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ray_auth.MODE, "disabled")
    ray_auth.secure_token()
    assert "RAY_AUTH_MODE=disabled: " in capsys.readouterr().err and not (home / ".ray").exists()
