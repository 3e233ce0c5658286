"""Ray's token. A process that has it may join the user's Rays and run code as the user, so nobody else may read it.

This module does not import Ray, since Ray's token mode must be set before that import.
"""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from fedray.storage import temporary

MODE, TOKEN, PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
NAME = "auth_token"


def show_token() -> None:
    """Set Ray's token mode if the user has a token.

    Ray protects a cluster with a token in the user's home, but sends it only if the mode is set before Ray's import.
    """
    if "ray" in sys.modules:
        return
    home = _at_home()
    if not _given() and not _is_mine(home) and _is_mine(beside := temporary.place() / NAME):
        os.environ[PATH] = str(beside)
    if _given() or (home is not None and os.path.isfile(home)):
        os.environ.setdefault(MODE, "token")


def secure_token() -> None:
    """Make a token that only this user can read, for a Ray that starts now, unless there is one.

    Ray itself would write it with the modes of the umask, which let other users read it and run code as this user. A
    token that others can read is closed to them, and a line says so. If the home folder cannot be written, or its token
    is another user's, the token is in the private temporary folder.
    """
    if (mode := os.environ.get(MODE, "token")).lower() != "token":
        print(
            f"{MODE}={mode}: whoever reaches a port of this run's Ray can run code as you, which other users of this "
            f"machine can; unset {MODE} to close it",
            file=sys.stderr,
        )
        return
    if _given():
        if file := os.environ.get(PATH):
            with suppress(OSError):  # Ray says what is wrong with the file
                _tell_closed(Path(file))
        return
    with FileLock(temporary.private() / f"{NAME}.lock"):  # of two first runs, one makes the token
        try:
            home = _at_home()
            if home is None:
                raise PermissionError
            home.parent.mkdir(mode=0o700, exist_ok=True)
            _close(home.parent)
            _write(home)
        except OSError:
            beside = temporary.private() / NAME
            _write(beside)
            os.environ[PATH] = str(beside)


def _write(file: Path) -> None:
    """Write a new token if the file has none. PermissionError: the file, or its mode, is not this user's to change."""
    with suppress(FileNotFoundError):
        _tell_closed(file)
        if file.stat().st_size:
            return
        file.unlink()
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(secrets.token_hex(32))


def _tell_closed(file: Path) -> None:
    """Close a token's file to other users, and say so."""
    if _close(file):
        print(
            f"{file}: other users of this machine could read Ray's token, with which they can run code as you; now "
            "they cannot. If one of them may have read it, remove it once none of your Rays runs: the next run makes "
            "a new one",
            file=sys.stderr,
        )


def _close(path: Path) -> bool:
    """Take the rights of other users away from a file or folder; returns whether they had any.

    PermissionError: it is not this user's.
    """
    found = path.stat()
    if found.st_uid != os.getuid():
        raise PermissionError
    if found.st_mode & 0o077:
        path.chmod(found.st_mode & 0o700)
    return bool(found.st_mode & 0o077)


def _given() -> bool:
    return bool(os.environ.get(TOKEN) or os.environ.get(PATH))


def _is_mine(path: Path | None) -> bool:
    """Whether there is a file of this user, as `secure_token` makes or accepts it."""
    return path is not None and os.path.isfile(path) and path.stat().st_uid == os.getuid()


def _at_home() -> Path | None:
    """The usual place of the token; None: the user has no home folder."""
    try:
        return Path.home() / ".ray" / NAME
    except RuntimeError:
        return None
