"""Users as containers and clusters have them: without a name, or with a home that cannot be written."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path


def settle() -> None:
    """Set variables for what this user lacks: a name, and a folder for caches. Processes started later inherit them.

    torch asks for the name of the user as it loads its compiler, and gets a KeyError if neither a variable nor
    /etc/passwd has one. numba, matplotlib, torch and fedray keep caches below XDG_CACHE_HOME, by default ~/.cache.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        os.environ["USER"] = f"uid-{os.getuid()}"
    home = os.path.expanduser("~")
    without = not os.path.isabs(home)  # neither HOME nor /etc/passwd has it
    if not without and writable(Path(os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache")):
        return
    from fedray.core.types import RunError
    from fedray.storage.temporary import private

    try:
        place = private()
    except (OSError, RunError):
        return  # the first file that is to be written there names the folder and the remedy
    if without:
        os.environ["HOME"] = str(place)
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    os.environ.setdefault("MPLCONFIGDIR", str(place / "cache" / "matplotlib"))
    if not os.environ.get("FEDRAY_CACHE"):
        why = "HOME is not set" if without else f"HOME={home} cannot be written"
        print(
            f"fedray: {why}, so the cache is {place}/cache/fedray: set FEDRAY_CACHE to a folder that lasts",
            file=sys.stderr,
        )


def writable(place: Path) -> bool:
    """Whether this user may make or change files in a folder, or make the folder."""
    # `Path.exists` would raise an error in a folder that this user may not enter, such as root's home.
    existing = next(path for path in (place, *place.parents) if os.path.exists(path))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
