"""The cache of computed files. A writer holds a lock and renames at the end: a reader sees a whole entry or nothing.

The cache is on a local disk, since features are mapped into memory. With `$FEDRAY_SHARED_CACHE` (a path or a URI) a
machine copies its entries there and others fetch them: files first, named by their hashes, then a manifest that lists
them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import platformdirs
from filelock import FileLock, Timeout

from fedray.core.texts import parsed, read_text
from fedray.storage.base import Storage
from fedray.storage.files import faults, sync_all, write_whole
from fedray.storage.opening import open_storage
from fedray.user import writable

MANIFEST = "manifest.json"
HASHES = ".hashes"  # suffix of the file next to an entry that holds the hashes of the entry's files
CHECKED = 10**9  # bytes of an entry that a run reads to check it: about a second
LOOK = 0.5  # seconds between two looks at whether another process has made an entry

_used: dict[Path, int] = {}  # entries that this process uses -> their lock files


def cache_root() -> Path:
    """`$FEDRAY_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("FEDRAY_CACHE") or platformdirs.user_cache_dir("fedray")).expanduser()


def own_root() -> Path:
    """Where compiled code is kept: the cache, or the user's cache folder if this user may only read the cache."""
    root = cache_root()
    return root if writable(root) else Path(platformdirs.user_cache_dir("fedray"))


def key(parts: Mapping[str, Any]) -> str:
    """A short name for the parts, which must be plain data (as in YAML)."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=10).hexdigest()


def cached(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder` after finding it, fetching it from the shared cache, or making it by `build(temporary_folder)`.

    An error of `build` is raised and leaves no incomplete folder. StorageError: the disk is full.
    """

    def make() -> None:
        temporary = folder.with_name(f"{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)  # left by a writer that was killed
        with faults(folder):
            try:
                temporary.mkdir()
                build(temporary)
                _list_hashes(temporary, folder.with_name(folder.name + HASHES))
                sync_all(temporary)  # else an entry that a power loss cut short would count as complete
                os.replace(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    found_or_made(folder, make)
    share(folder)
    return folder


def found_or_made(path: Path, make: Callable[[], None]) -> None:
    """Use an entry. If it is missing, fetch or `make` it in one process of this machine while the others wait.

    A user who may only read the cache uses what is there. ValueError: it is not there, and may not be written.
    """
    while not use(path):
        try:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                held = FileLock(f"{path}.lock").acquire(timeout=LOOK)
        except Timeout:  # another process makes the entry, or has made it: from then on it holds the lock, shared
            continue
        with held:
            if not path.exists() and not fetch(path):
                make()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """ValueError: the cache lacks an entry, and this user may not write it. StorageError: see `faults`."""
    try:
        with faults(path):
            yield
    except PermissionError as error:
        raise ValueError(
            f"{path}: is not there, and you may not write it: set FEDRAY_CACHE to a folder of your own, or ask the "
            "owner of this cache to make it"
        ) from error


def check(folder: Path) -> None:
    """Check that the files of an entry are those that were written. ValueError: one is not, or is missing.

    An entry of more than `CHECKED` bytes takes too long at the start of a run: `fedray cache --verify` checks it.
    """
    listed = folder.with_name(folder.name + HASHES)
    if not listed.is_file() or sum(path.stat().st_size for path in _files(folder)) > CHECKED:
        return
    for name, digest in parsed(read_text(listed), listed).items():
        if not (folder / name).is_file() or file_hash(folder / name) != digest:
            raise ValueError(f"{folder / name}: has changed since it was written. This is a cache: remove {folder}")


def use(path: Path) -> bool:
    """Hold an entry's lock, shared, until this process ends, so that `fedray cache` keeps it; False: no such entry."""
    if not path.exists():
        if path in _used:  # somebody removed it by hand
            os.close(_used.pop(path))
        return False
    if path not in _used and entry_name(path) is not None:
        with suppress(OSError):  # a cache without a lock for the entry, that this user may only read
            lock = _open_lock(f"{path}.lock")
            fcntl.flock(lock, fcntl.LOCK_SH)
            if not path.exists() or not os.fstat(lock).st_nlink:  # removed before this process had the lock
                os.close(lock)
                return use(path)
            _used[path] = lock
            touch(path)
    return True


def _open_lock(name: str) -> int:
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:  # another user's: a lock that is shared needs no right to write
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)


def touch(path: Path) -> None:
    """Record the use of an entry as its lock's modification time: the entry's own identifies corpora and weights."""
    with suppress(OSError):
        os.utime(f"{path}.lock")


def entry_name(path: Path) -> str | None:
    """The name of a cache entry, the same on every machine; None: the path is not in the cache."""
    with suppress(ValueError):
        return path.absolute().relative_to(cache_root().absolute()).as_posix()
    return None


def available(folder: Path, name: str | None) -> Path:
    """The folder of an entry that another machine has made: at the same path, else in this machine's cache.

    It is fetched from the shared cache if necessary. ValueError: the entry is not found.
    """
    if use(folder):
        return folder
    here = cache_root() / name if name is not None else folder

    def missing() -> NoReturn:
        shared = os.environ.get("FEDRAY_SHARED_CACHE")
        too = f" (looked for at {here} too)" if here != folder else ""
        where = "nor is it in FEDRAY_SHARED_CACHE" if shared else "and FEDRAY_SHARED_CACHE is not set"
        raise ValueError(
            f"{folder}: is not on {socket.gethostname()}{too}, {where}. If it was removed, `fedray resume` makes it "
            "again. On a cluster set FEDRAY_CACHE to a folder that all nodes see, or FEDRAY_SHARED_CACHE to a folder "
            "or URI (s3://...) that all reach, and start Ray on them with it"
        )

    found_or_made(here, missing)
    return here


def share(path: Path) -> None:
    """Copy a file or folder of the cache to the shared cache, unless it is there already.

    Nothing happens without a shared cache, or for a path outside the cache. ValueError: the shared cache may not be
    written.
    """
    store = _shared(path)
    if store is None or store.exists(MANIFEST):
        return
    paths = {path.name: path} if path.is_file() else {file.relative_to(path).as_posix(): file for file in _files(path)}
    described = {name: (file_hash(file), file.stat()) for name, file in paths.items()}
    files = {
        name: {"hash": digest, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        for name, (digest, status) in described.items()
    }
    try:
        store.put({digest: paths[name] for name, (digest, _) in described.items()})
        store.write(MANIFEST, json.dumps({"folder": path.is_dir(), "files": files}, indent=1).encode())
    except PermissionError as error:
        raise ValueError(
            f"FEDRAY_SHARED_CACHE: {error.filename}: you may not write it: permit it, or unset FEDRAY_SHARED_CACHE"
        ) from error


def fetch(path: Path) -> bool:
    """Fetch a file or folder of the cache from the shared cache; returns whether it was there and complete.

    It takes no lock: call it under the entry's lock, or where two processes may safely fetch the same entry.
    """
    store = _shared(path)
    if store is None:
        return False
    try:
        whole, files = _read_manifest(store)
    except FileNotFoundError:
        return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}.fetch")
    with faults(path):
        try:
            shutil.rmtree(temporary, ignore_errors=True)  # a killed process of this number, in another container
            temporary.mkdir(parents=True)
            if not _download(store, files, temporary):
                store.remove(MANIFEST)  # files are missing or damaged: the next writer uploads the whole entry
                return False
            if not path.exists():
                sync_all(temporary)
                os.replace(temporary if whole else temporary / path.name, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return True


def _shared(path: Path) -> Storage | None:
    place, name = os.environ.get("FEDRAY_SHARED_CACHE"), entry_name(path)
    if not place or not name:
        return None
    store = open_storage(place)
    same = store.local is not None and store.local.resolve() == cache_root().resolve()  # the cache itself is shared
    return None if same else store.child(name)


def _read_manifest(store: Storage) -> tuple[bool, dict[str, tuple[str, int]]]:
    """(whether the entry is a folder, its files: name -> hash, mtime in ns). The manifest is not trusted."""
    try:
        manifest = json.loads(store.read(MANIFEST))
        files = {str(name): (str(about["hash"]), int(about["mtime_ns"])) for name, about in manifest["files"].items()}
        whole = bool(manifest["folder"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{store.shown(MANIFEST)}: is not a manifest of the cache ({error!r}): remove it") from error
    for name, (digest, _) in files.items():
        # A manifest must not make this machine write outside the entry.
        if (
            PurePosixPath(name).is_absolute()
            or ".." in PurePosixPath(name).parts
            or not re.fullmatch("[0-9a-f]{32}", digest)
        ):
            raise ValueError(
                f"{store.shown(MANIFEST)}: names a file outside of the entry ({name}): it is not fedray's; remove it"
            )
    return whole, files


def _download(store: Storage, files: Mapping[str, tuple[str, int]], folder: Path) -> bool:
    """Download files and set their times, which identify corpora; False: a file is missing or damaged."""
    contents = {digest: folder / name for name, (digest, _) in files.items()}
    try:
        store.get(contents)
    except FileNotFoundError:
        return False
    for name, (digest, mtime) in files.items():
        if contents[digest] != folder / name:  # equal files are stored once
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(contents[digest], folder / name)
        os.utime(folder / name, ns=(mtime, mtime))
    return all(file_hash(folder / name) == digest for name, (digest, _) in files.items())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _list_hashes(folder: Path, listed: Path) -> None:
    hashes = {file.relative_to(folder).as_posix(): file_hash(file) for file in _files(folder)}
    write_whole(listed, json.dumps(hashes))


def file_hash(path: Path) -> str:
    """The hash that identifies a file of the cache, 32 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
