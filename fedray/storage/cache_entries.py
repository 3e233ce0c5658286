"""What the cache holds: its entries, those to remove, and those that are damaged.

An entry is a file or folder that fedray has named: it is of a known kind, has a key in its name, and is not a link.
Everything else in the folder is left alone. An entry is removed under its lock, which all its users hold shared.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fedray.storage.cache import HASHES, file_hash
from fedray.storage.files import faults

KEY = "[0-9a-f]{20}"
KINDS = {  # folder -> the names in it
    "corpora": rf"[a-z][a-z0-9-]*-{KEY}",
    "features": rf"features-{KEY}(\.[0-9a-f]{{8}})?",  # for the type of processor that made them
    "init": rf"{KEY}\.pt",
    "prepared": KEY,
}
LEFTOVER = "leftover"  # left by a process that was killed


@dataclass(frozen=True)
class Entry:
    """A file or folder of the cache."""

    kind: str  # of KINDS, or LEFTOVER
    path: Path
    bytes: int
    used: float  # seconds since 1970

    @property
    def lock(self) -> str:
        return _lock(self.path)


def entries(root: Path) -> list[Entry]:
    """All entries, the longest unused first."""
    found = []
    for kind, pattern in KINDS.items():
        folder = root / kind
        if folder.is_symlink() or not folder.is_dir():
            continue
        leftover = rf"\.?{pattern}(\.\d{{1,7}})?\.(tmp|fetch|removed)"
        for item in os.scandir(folder):
            known = (
                kind if re.fullmatch(pattern, item.name) else LEFTOVER if re.fullmatch(leftover, item.name) else None
            )
            if known is not None and not item.is_symlink():
                with suppress(FileNotFoundError):  # its writer has renamed the temporary file
                    path = Path(item.path)
                    found.append(Entry(known, path, size_of(item), _last_use(path)))
    return sorted(found, key=lambda entry: entry.used)


def _lock(path: Path) -> str:
    # A process ID has at most seven digits; a type of processor may have eight.
    name = re.sub(r"^\.|(\.\d{1,7})?\.(tmp|fetch|removed)$", "", path.name)
    return f"{path.with_name(name)}.lock"


def _last_use(path: Path) -> float:
    """When the entry or its lock was last modified: see `cache.touch`. Listing a folder changes its access time."""
    times = [path.stat().st_mtime]
    with suppress(FileNotFoundError):  # `fetch` takes no lock
        times.append(os.stat(_lock(path)).st_mtime)
    return max(times)


def size_of(item: os.DirEntry[str]) -> int:
    """Bytes of a file, or of all files in a folder. Links are not followed."""
    if item.is_dir(follow_symlinks=False):
        return sum(size_of(inner) for inner in os.scandir(item.path))
    return item.stat(follow_symlinks=False).st_size


def to_remove(found: Iterable[Entry], before: float | None = None, keep: float | None = None) -> list[Entry]:
    """Leftovers, entries last used before `before`, then the longest unused ones until at most `keep` bytes stay."""
    found = list(found)
    chosen = [entry for entry in found if entry.kind == LEFTOVER or (before is not None and entry.used < before)]
    left = [entry for entry in found if entry not in chosen]
    size = sum(entry.bytes for entry in left)
    for entry in left:
        if keep is None or size <= keep:
            break
        chosen.append(entry)
        size -= entry.bytes
    return chosen


def remove(entry: Entry) -> bool:
    """Remove an entry; False: a process is making or using it."""
    try:
        with faults(entry.path, "removed"), FileLock(entry.lock, timeout=0):
            gone = entry.path
            if entry.kind != LEFTOVER:  # renamed first: no reader finds half of it
                gone = entry.path.with_name(f".{entry.path.name}.removed")
                os.replace(entry.path, gone)
                entry.path.with_name(entry.path.name + HASHES).unlink(missing_ok=True)
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    except Timeout:
        return False
    return True


def damage(entry: Entry) -> str | None:
    """What is wrong with an entry: a file that cannot be read, or has changed since it was written; None: nothing.

    Weights have their own checksums. An entry that was fetched has no hashes, so its files are only read.
    """
    if entry.kind == LEFTOVER:
        return None
    try:
        listed = entry.path.with_name(entry.path.name + HASHES)
        hashes = json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else {}
        # `os.walk` passes over a folder that its writer removes meanwhile, where `rglob` fails.
        walked = (Path(at, name) for at, _, names in os.walk(entry.path) if not at.endswith(".fetch") for name in names)
        inside = walked if entry.path.is_dir() else [entry.path]
        files = {path.relative_to(entry.path).as_posix(): path for path in inside if path.is_file()}
        if missing := set(hashes).difference(files):
            return f"{min(missing)} is missing"
        for name, path in files.items():
            if path.name.endswith(".tmp"):  # a process is still writing this file
                continue
            if path.suffix == ".pt":
                with zipfile.ZipFile(path) as archive:
                    fine = archive.testzip() is None
            else:
                found = file_hash(path)
                fine = hashes.get(name, found) == found
            if not fine:
                return f"{path.name} has changed since it was written"
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return f"cannot be read: {error}"
    return None
