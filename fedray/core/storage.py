"""A folder on a local or shared disk, or on object storage, and one error for a disk that is full or a store that is gone."""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from fedray.core.types import RunError

FULL = {errno.ENOSPC, errno.EDQUOT}
GONE = {errno.EIO, errno.ESTALE, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.ECONNREFUSED}
GONE |= {errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}


class StorageError(RunError):
    """A disk is full or a store cannot be reached; what was committed stays, and the run can be resumed."""


@contextmanager
def faults(place: object, verb: str = "written", remote: bool = False) -> Iterator[None]:
    """Full disks and stores that are gone as StorageError about `place`; other errors as they are. `remote`: any OSError is the store's."""
    try:
        yield
    except (StorageError, FileNotFoundError):
        raise
    except (OSError, RuntimeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in FULL:
            reason, remedy = os.strerror(number or 0), "free space there"
        elif isinstance(error, RuntimeError) and ("inline_container" in str(error) or "PytorchStreamWriter" in str(error)):
            # What torch.save says of a full disk: a RuntimeError without a number.
            reason, remedy = f"torch could not write all of it ({str(error).splitlines()[0]})", "free space there"
        elif number in GONE or (remote and isinstance(error, OSError)):
            reason, remedy = str(error).splitlines()[0] if str(error) else type(error).__name__, "see to it that the store answers"
        else:
            raise
        raise StorageError(
            f"{place}: cannot be {verb}: {reason}. Nothing that was committed is lost: {remedy}, then go on with `fedray resume`"
        ) from error


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write(temporary_path)` make a file, then rename it to `path`: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with faults(path):
        try:
            write(temporary)
            os.replace(temporary, path)
        finally:
            with suppress(OSError):  # it must not hide why the writing failed
                temporary.unlink(missing_ok=True)


@contextmanager
def in_place_of(final: Path) -> Iterator[Path]:
    """A path to make a file or a folder at, which then takes the place of `final`; nothing happens where nothing is made.

    While folders change places, the old one is `.NAME.old`.
    """
    temporary, old = final.with_name(f".{final.name}.tmp"), final.with_name(f".{final.name}.old")
    with faults(final):
        _discard(temporary)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if temporary.is_file() or (temporary.is_dir() and any(temporary.iterdir())):
                if final.is_dir():
                    _discard(old)
                    os.replace(final, old)
                os.replace(temporary, final)
                _discard(old)
        except StorageError as error:
            raise StorageError(str(error).replace(str(temporary), str(final))) from error
        finally:
            _discard(temporary)


def _discard(path: Path) -> None:
    """What cannot be removed is left: that must not hide why something else failed."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def below(place: str, name: str) -> str:
    """The path or URI of what lies in a folder; a URI keeps its query."""
    path, mark, query = place.partition("?") if "://" in place else (place, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def parent(place: str) -> tuple[str, str]:
    """The folder that a path or URI lies in, and its name there."""
    path, mark, query = place.partition("?") if "://" in place else (place, "", "")
    folder, _, name = path.rstrip("/").rpartition("/")
    return f"{folder}{mark}{query}", name


class Storage(ABC):
    """A folder; names in it are relative, with `/`. It pickles, and is opened anew where it arrives.

    A file appears whole or not at all, whoever is killed. FileNotFoundError: what is read is not there. StorageError: see above.
    """

    @staticmethod
    def of(place: str | os.PathLike[str]) -> Storage:
        """A path, or a URI that pyarrow knows (s3://bucket/folder?region=..., gs://..., file:///...); ValueError for what is neither."""
        text = os.fspath(place)
        if "://" not in text:
            if re.match(r"(s3|gs|gcs|abfss?|hdfs|file):/", text):
                raise ValueError(f"{text}: a URI has two slashes after the colon; give it as text, since a Path makes one of them")
            return LocalStorage(Path(place))
        from fedray.core.object_storage import ObjectStorage, opened  # it stands on this module

        files, base = opened(text)
        return LocalStorage(Path(base)) if files.type_name == "local" else ObjectStorage(text)

    @property
    @abstractmethod
    def place(self) -> str:
        """For messages and commands, without secrets."""

    @property
    @abstractmethod
    def local(self) -> Path | None:
        """None: it is not on a disk."""

    @abstractmethod
    def child(self, name: str) -> Storage: ...

    @abstractmethod
    def shown(self, name: str) -> str:
        """A file in it, for messages."""

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @abstractmethod
    def write(self, name: str, data: bytes) -> None: ...

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """The files and folders in a folder; none where there is no such folder."""

    @abstractmethod
    def files(self, folder: str = "") -> list[str]:
        """All files under a folder, at any depth, relative to it."""

    @abstractmethod
    def remove(self, *names: str) -> None:
        """Files, or folders with all that is in them; nothing happens where there is none."""

    @abstractmethod
    def put(self, files: Mapping[str, Path]) -> None:
        """Local files, under these names."""

    @abstractmethod
    def get(self, files: Mapping[str, Path]) -> None:
        """Files of these names, to local paths."""

    def upload(self, folder: Path, name: str = "") -> None:
        """All files of a local folder."""
        self.put({join(name, path.relative_to(folder).as_posix()): path for path in sorted(folder.rglob("*")) if path.is_file()})

    def download(self, name: str, folder: Path) -> None:
        """All files under `name` to a local folder."""
        self.get({join(name, file): folder / file for file in self.files(name)})

    def check(self) -> None:
        """Write, read and remove a small file; a ValueError says that this cannot be done here, and why."""
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self.write(probe, b"fedray")
            self.read(probe)
            self.remove(probe)
        except (OSError, StorageError) as error:
            if self.local is not None and isinstance(error, StorageError):
                raise
            remedy = "the folder and its permissions"
            if self.local is None:
                remedy = "that the bucket exists, the credentials (s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile), the way"
            raise ValueError(f"{self.place}: cannot be written to and read: {error.__cause__ or error}; check {remedy}") from error


@final
class LocalStorage(Storage):
    """A folder on a disk of this machine, or one that all machines mount (NFS)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def place(self) -> str:
        return str(self.root)

    @property
    def local(self) -> Path:
        return self.root

    def child(self, name: str) -> LocalStorage:
        return LocalStorage(self.root / name)

    def shown(self, name: str) -> str:
        return str(self.root / name)

    def read(self, name: str) -> bytes:
        with faults(self.root / name, "read"):
            return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        self._write(self.root / name, lambda temporary: temporary.write_bytes(data))

    def exists(self, name: str) -> bool:
        return (self.root / name).is_file()

    def names(self, folder: str = "") -> list[str]:
        path = self.root / folder
        return sorted(os.listdir(path)) if path.is_dir() else []

    def files(self, folder: str = "") -> list[str]:
        path = self.root / folder
        return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())

    def remove(self, *names: str) -> None:
        for name in names:
            path = self.root / name
            with faults(path, "removed"):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def put(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self._write(self.root / name, lambda temporary, path=path: shutil.copyfile(path, temporary))  # type: ignore[misc]

    def get(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self._write(path, lambda temporary, name=name: shutil.copyfile(self.root / name, temporary))  # type: ignore[misc]

    @staticmethod
    def _write(path: Path, write: Callable[[Path], object]) -> None:
        with faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, write)


def join(*parts: str) -> str:
    return "/".join(part.strip("/") if index else part for index, part in enumerate(parts) if part)
