"""Folders that are built once: one writer under a lock, then a rename, so that a reader sees all of a folder or none of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock


def cache_root() -> Path:
    """`$FEDRAY_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("FEDRAY_CACHE") or platformdirs.user_cache_dir("fedray"))


def key(parts: Mapping[str, Any]) -> str:
    """A short name for what the parts describe; they must be plain data (as in YAML)."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=10).hexdigest()


def cached(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, made by `build(temporary_folder)` unless it is there already. What `build` raises is raised; nothing half-built stays."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            temporary = folder.with_name(f"{folder.name}.tmp")
            shutil.rmtree(temporary, ignore_errors=True)  # of a writer that was killed
            temporary.mkdir()
            try:
                build(temporary)
                os.replace(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write(temporary_path)` make a file, then rename it to `path`: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
