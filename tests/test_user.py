"""A user without a name, or with a home that cannot be written, has a name and a private folder for caches."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

import platformdirs
import pytest

from fedray.user import settle, writable

NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")  # where Python looks for the name of the user
PLACES = ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "FEDRAY_CACHE")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A writable home; what `settle` sets is undone."""
    for name in (*NAMES, *PLACES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_most_users_lack_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(os.environ)
    settle()
    assert dict(os.environ) == before and capsys.readouterr().err == ""


def test_a_user_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USER")
    import pwd

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    settle()
    assert getpass.getuser() == f"uid-{os.getuid()}"


def test_a_home_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = tmp_path / f"fedray-{os.getuid()}"
    home = tmp_path / "file"  # a folder in a file can be made by nobody, not even by root
    home.touch()
    monkeypatch.setenv("HOME", str(home))
    settle()
    assert capsys.readouterr().err == (
        f"fedray: HOME={home} cannot be written, so the cache is {private}/cache/fedray: set FEDRAY_CACHE to a folder "
        "that lasts\n"
    )
    assert platformdirs.user_cache_dir("fedray") == f"{private}/cache/fedray"
    assert private.stat().st_mode & 0o777 == 0o700, "numba unpickles what it finds there"
    assert os.environ["HOME"] == str(home), "what the user keeps there can still be read"
    settle()  # as the processes do that this one starts
    assert capsys.readouterr().err == ""


def test_no_home_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: os.environ.get("HOME", path))
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "mine"))
    settle()
    assert os.environ["HOME"] == str(tmp_path / f"fedray-{os.getuid()}")
    assert capsys.readouterr().err == "", "the cache is where the user wants it"


def test_neither_a_home_nor_a_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    settle()
    assert "XDG_CACHE_HOME" not in os.environ


def test_a_folder_may_be_written_where_the_nearest_that_exists_may(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert writable(tmp_path) and writable(tmp_path / "a" / "b") and not writable(tmp_path / "file" / "a")
    if os.geteuid():  # root may
        tmp_path.chmod(0o500)
        assert not writable(tmp_path / "a")
