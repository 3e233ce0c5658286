"""Error messages of commands: what is wrong, where, and what to do. They are safe to print on a terminal. Counts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fedray.core.texts import printable

PLACES = ("FEDRAY_CACHE", "FEDRAY_RUNS", "FEDRAY_SHARED_CACHE")  # variables that hold a path or URI
REMEDIES = {
    errno.ENOENT: "check the path, and that its folder exists",
    errno.EACCES: "change its permissions, or choose another place",
    errno.EPERM: "change its permissions, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free space there, or choose another place",
    errno.EDQUOT: "free space there, or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "name a file",
    errno.EMFILE: "raise `ulimit -n`",
    errno.ENOMEM: "end other programs, or use a machine with more memory",
}


def counted(number: float, what: str) -> str:
    """A number of things: `1 core`, `0.25 GPUs`."""
    return f"{number:g} {what}{'' if number == 1 else 's'}"


def words(error: Exception) -> str:
    """The message of an error, with the environment variables that name a place in it."""
    text = _of_system(error) if isinstance(error, OSError) else str(error)
    given = [f"{name}={value}" for name in PLACES if (value := os.environ.get(name)) and value in text]
    return printable(text + (f" ({', '.join(given)} in the environment)" if given else ""))


def _of_system(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno is None and ".so" in reason:  # from the dynamic loader
        return f"{reason}: a package does not load: `fedray doctor` says which, and what to do"
    if error.filename is None:
        return f"{reason}: {REMEDIES.get(error.errno or 0, 'resolve this, and try again')}"
    name = os.fsdecode(error.filename)
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        file = next((path for path in (Path(name), *Path(name).parents) if path.is_file()), None)
        if file is not None:
            below = "" if file == Path(name) else f"{name}: "
            return f"{below}{file} is a file, not a folder: choose another place"
    return f"{name}: {reason}: {REMEDIES.get(error.errno or 0, 'choose another place')}"
