"""A Ray that fedray starts on this machine for one process: only its user can read its files or reach its ports.

Ray opens its folders to all users and listens on all networks, where a token guards it (`ray_auth`).
"""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
import uuid
from pathlib import Path

import ray
from filelock import FileLock

from fedray.core.types import RunError
from fedray.storage import temporary

LONGEST = 107  # bytes of a socket's path, on Linux
LOOPBACK = "127.0.0.1"
LATEST = "ray"  # a link to the folder of the Ray that was started last, where dashboards look


def folders() -> dict[str, str]:
    """Arguments of `ray.init`: a temporary folder for this process alone, which goes away with the process.

    The next Ray removes the folders that killed processes left. Sockets limit the length of the folder's path: where
    the user's temporary folder has a longer one, Ray works in a short one and keeps only spilled objects in the user's.
    ValueError: no folder is short enough and this user's.
    """
    usual = os.path.abspath(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    folder = _short(usual)
    arguments = {"_temp_dir": str(_owned(folder))}
    if folder != usual:
        arguments["object_spilling_directory"] = str(_owned(usual))
    _link(Path(arguments["_temp_dir"]))
    return arguments


def _short(usual: str) -> str:
    """The first folder in which Ray's sockets have paths that are short enough."""
    session = f"session_2026-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
    reasons = []
    for folder in dict.fromkeys(filter(None, (usual, "/tmp", os.environ.get("XDG_RUNTIME_DIR")))):
        longest = len(os.fsencode(temporary.place(folder) / _name() / session))
        if longest <= LONGEST:
            try:
                temporary.private(folder)
                return folder
            except (OSError, RunError) as error:
                reasons.append(str(error))
        else:
            reasons.append(f"{folder} is {longest - LONGEST} bytes too long")
    raise ValueError(
        f"Ray needs a temporary folder that is this user's and has a short path, since the path of a socket has at "
        f"most {LONGEST} bytes ({'; '.join(reasons)}): set TMPDIR, or RAY_TMPDIR for Ray alone, to such a folder"
    )


@functools.cache
def _name() -> str:
    return f"ray-{uuid.uuid4().hex[:8]}"


@functools.cache
def _owned(place: str) -> Path:
    """A folder of this process in the user's private folder in `place`. It is removed when the process ends."""
    root = temporary.private(place)
    temporary.sweep(root)
    folder = root / _name()
    atexit.register(_end, folder, temporary.own(folder))  # runs before Ray's own, which was registered before
    return folder


def _end(folder: Path, lock: FileLock) -> None:
    ray.shutdown()
    temporary.disown(folder, lock)


def _link(folder: Path) -> None:
    made = folder.with_name(f"{folder.name}.link")
    made.symlink_to(folder.name)
    made.replace(folder.with_name(LATEST))


def is_loopback(address: str) -> bool:
    """Whether an address of a Ray, host:port, is one that only this machine reaches."""
    return address.startswith(f"{LOOPBACK}:")
