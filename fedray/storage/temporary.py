"""Temporary folders of this user. Each lasts as long as its process; the next one removes those of killed ones."""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedray.core.types import RunError

OWNED = ".owned"  # suffix of a folder's lock, which the process that owns the folder holds


def place(base: str | None = None) -> Path:
    """The path of the folder that `private` makes in `base` (None: the temporary folder)."""
    return Path(base or tempfile.gettempdir()) / f"fedray-{os.getuid()}"


def private(base: str | None = None) -> Path:
    """A folder on this machine that only this user can enter.

    RunError: it is another user's, or a link, so that others could read or replace what is written there.
    """
    root = place(base)
    with suppress(FileExistsError):
        root.mkdir(mode=0o700)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise RunError(f"{root} is not a folder owned by this user: remove it, or set TMPDIR to a folder of your own")
    if found.st_mode & 0o077:  # made by something else, with the usual umask
        root.chmod(0o700)
    return root


def own(folder: Path) -> FileLock:
    """Make a folder that this process owns while it holds the returned lock."""
    lock = FileLock(f"{folder}{OWNED}")
    while True:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            folder.mkdir(exist_ok=True)
            if Path(lock.lock_file).exists():  # `sweep` may have removed the file between its creation and its lock
                return lock
        except FileNotFoundError:  # another process's `sweep` removed the parent folder
            pass
        except FileExistsError:  # so says `mkdir` too if the folder that it found is removed before it looks again
            if any(path.is_file() or path.is_symlink() for path in (folder.parent, folder)):
                raise
        lock.release()


def disown(folder: Path, lock: FileLock) -> None:
    """Remove a folder that this process owns."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def sweep(root: Path | None = None) -> None:
    """Remove the folders of processes that have ended, from `root` (None: `private()`).

    Locks identify them, because process IDs are reused.
    """
    for marker in found(root or private(), f"*{OWNED}", f"*/*{OWNED}"):
        lock = FileLock(marker)
        with suppress(Timeout, OSError):
            lock.acquire(timeout=0)
            disown(marker.with_name(marker.name.removesuffix(OWNED)), lock)
            with suppress(OSError):  # other folders are in it
                marker.parent.rmdir()


def found(root: Path, *patterns: str) -> list[Path]:
    """What matches the patterns in `root`. `Path.glob` fails where another process removes a folder meanwhile."""
    return [root / name for pattern in patterns for name in glob.glob(pattern, root_dir=root, include_hidden=True)]
