"""Files and folders of a local disk that appear whole or not at all, and one error for a disk or store that fails.

A rename, a new name and a removal survive a power loss once their folder is synced; a file's content, once the file is.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from fedray.core.types import RunError

FULL = {errno.ENOSPC, errno.EDQUOT}
GONE = {
    errno.EIO,
    errno.ESTALE,
    errno.EROFS,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
}
GONE |= {errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}


NO_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}  # errors of file systems that cannot sync folders


class StorageError(RunError):
    """A disk is full, or a store cannot be reached. Committed rounds stay, and the run can be resumed."""


@contextmanager
def faults(place: object, verb: str = "written", remote: bool = False) -> Iterator[None]:
    """Raise StorageError about `place` for a full disk or a store that cannot be reached; other errors pass unchanged.

    `remote`: every OSError comes from the store.
    """
    try:
        yield
    except (StorageError, FileNotFoundError):
        raise
    except (OSError, RuntimeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in FULL:
            reason, remedy = os.strerror(number or 0), "free space there"
        elif isinstance(error, RuntimeError) and (
            "inline_container" in str(error) or "PytorchStreamWriter" in str(error)
        ):
            # torch.save reports a full disk as a RuntimeError without a number.
            reason, remedy = f"torch could not write all of it ({str(error).splitlines()[0]})", "free space there"
        elif number in GONE or (remote and isinstance(error, OSError)):
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            remedy = (
                "check that the store answers" if number != errno.EROFS else "choose a place that can be written to"
            )
        else:
            raise
        raise StorageError(
            f"{place}: cannot be {verb}: {reason}. Nothing that was committed is lost: {remedy}, then repeat the "
            "command, or continue a run that has begun with `fedray resume`"
        ) from error


def write_atomically(path: Path, write: Callable[[Path], object], durable: bool = True) -> None:
    """Call `write(temporary_path)`, then rename the file to `path`: a reader never sees half of it.

    `durable`: the file survives a power loss once this returns. Otherwise it does once `sync` has returned.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with faults(path):
        try:
            write(temporary)
            if durable:
                sync(temporary)
            os.replace(temporary, path)
            if durable:
                sync(path.parent)
        finally:
            with suppress(OSError):  # must not hide an error of `write`
                temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically; text as UTF-8. The folder is made if it is missing."""
    data = content if isinstance(content, bytes) else content.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: temporary.write_bytes(data))


@contextmanager
def in_place_of(final: Path, keep: bool = False) -> Iterator[Path]:
    """Yield a temporary path. The file or folder made there then replaces `final`; without one, nothing happens.

    During the replacement the old folder is `.NAME.old`. `keep`: files that only the old folder has stay. RunError:
    such a file cannot stay, because the new folder has a folder of that name, or the reverse. Until this returns, the
    old folder survives a power loss; from then on, the new one does.
    """
    temporary, old = final.with_name(f".{final.name}.tmp"), final.with_name(f".{final.name}.old")
    with faults(final):
        _discard(temporary)
        try:
            make_folder(final.parent)
            yield temporary
            if temporary.is_file() or (temporary.is_dir() and any(temporary.iterdir())):
                for before in (final, old) if keep else ():  # `old` exists if a process was killed between the renames
                    _carry_over(before, temporary)
                sync_all(temporary)
                if final.is_dir():
                    _discard(old)
                    os.replace(final, old)
                os.replace(temporary, final)
                sync(final.parent)
                _discard(old)
        except StorageError as error:
            raise StorageError(str(error).replace(str(temporary), str(final))) from error
        finally:
            _discard(temporary)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents. They survive a power loss."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's names, survive a power loss."""
    folder = path.is_dir()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not folder or error.errno not in NO_FOLDERS:
            raise
    finally:
        os.close(descriptor)


def sync_all(place: Path, names: Iterable[str] | None = None) -> None:
    """Wait until a file, or the files of these names in a folder (None: all), survive a power loss with their names.

    Linux syncs the whole file system in one call, which for many small files takes a hundredth of the time.
    """
    if (syncfs := _syncfs()) is not None:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            if syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(place))
        finally:
            os.close(descriptor)
        return
    paths = list(place.rglob("*")) if names is None else [place / name for name in names]
    above = {folder for path in paths for folder in path.parents if folder.is_relative_to(place)}
    for path in {place, *paths, *above}:
        if path.exists() and not path.is_symlink():
            sync(path)


@cache
def _syncfs() -> Callable[[int], int] | None:
    """The C library's `syncfs`; None if it has none."""
    try:
        found = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_int], ctypes.c_int
    return found


def _carry_over(before: Path, after: Path) -> None:
    """Link or copy into `after` the files that only `before` has."""
    if before.is_dir() != after.is_dir() and before.exists():
        raise _in_the_way(before, before.is_dir())
    for path in sorted(before.rglob("*")):
        target = after / path.relative_to(before)
        folder = path.is_dir() and not path.is_symlink()
        if os.path.lexists(target):
            if folder != target.is_dir():
                raise _in_the_way(path, folder)
        elif folder:
            target.mkdir()
        else:
            try:
                os.link(path, target, follow_symlinks=False)
            except OSError:  # a file system without links
                shutil.copy2(path, target, follow_symlinks=False)


def _in_the_way(path: Path, folder: bool) -> RunError:
    return RunError(
        f"{path}: a {'folder' if folder else 'file'} is in the way: move it, then continue with `fedray resume`"
    )


def _discard(path: Path) -> None:
    """Remove a file or folder if possible; a failure must not hide another error."""
    if path.is_dir():
        with suppress(OSError):  # else a power loss could give the emptied folder its former name
            sync(path.parent)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
