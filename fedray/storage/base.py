"""The interface of a storage: a folder on a local or shared disk, or on object storage."""

from __future__ import annotations

import io
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedray.storage.files import StorageError


def below(place: str, name: str) -> str:
    """The path or URI of a file in a folder. A URI keeps its query."""
    path, mark, query = place.partition("?") if "://" in place else (place, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def parent(place: str) -> tuple[str, str]:
    """The folder of a path or URI, and the name in it."""
    path, mark, query = place.partition("?") if "://" in place else (place, "", "")
    folder, _, name = path.rstrip("/").rpartition("/")
    return f"{folder}{mark}{query}", name


def join(*parts: str) -> str:
    """Parts of a path or of a URI, joined by one `/` each; empty parts are left out."""
    return "/".join(part.strip("/") if index else part for index, part in enumerate(parts) if part)


class Storage(ABC):
    """A folder of files, whose names are relative and use `/`. It can be pickled; the receiver opens it again.

    A file appears whole or not at all, even if its writer is killed, and survives a power loss once `write` or `put`
    has returned. FileNotFoundError: there is no such file. StorageError: the disk is full, or the store cannot be
    reached.
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """The path or URI for messages and commands, without secrets."""

    @property
    @abstractmethod
    def local(self) -> Path | None:
        """The path on a disk; None on object storage."""

    @abstractmethod
    def child(self, name: str) -> Storage: ...

    @abstractmethod
    def shown(self, name: str) -> str:
        """The path or URI of a file, for messages."""

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """An open file to read. On a disk it is not in memory."""
        yield io.BytesIO(self.read(name))

    @abstractmethod
    def write(self, name: str, data: bytes) -> None: ...

    def write_soon(self, name: str, data: bytes) -> None:
        """Write one of many files: it survives a power loss once `sync` has returned."""
        self.write(name, data)

    def sync(self, names: Iterable[str]) -> None:  # noqa: B027 - an object store keeps what it has taken
        """Wait until the files of these names survive a power loss, under these names. Missing files are ignored."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether the file exists."""

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """The names of files and folders in a folder; [] if there is no such folder."""

    def files(self, folder: str = "") -> list[str]:
        """The names of all files under a folder, at any depth, relative to the folder."""
        return sorted(self.sizes(folder))

    @abstractmethod
    def sizes(self, folder: str = "") -> dict[str, int]:
        """The bytes of all files under a folder, at any depth, by name relative to the folder."""

    @abstractmethod
    def remove(self, *names: str) -> None:
        """Remove files, or folders with all their files. Names that do not exist are ignored."""

    @abstractmethod
    def put(self, files: Mapping[str, Path]) -> None:
        """Upload local files under these names."""

    @abstractmethod
    def get(self, files: Mapping[str, Path]) -> None:
        """Download files of these names to local paths."""

    @abstractmethod
    def link(self, name: str, other: str) -> None:
        """Give a file another name, or copy it within the storage; if possible, no bytes pass through this machine.

        The two names may share one file: neither may be changed in place. The new name survives a power loss once
        `sync` has returned.
        """

    def upload(self, folder: Path, name: str = "") -> None:
        """Upload all files of a local folder."""
        self.put(
            {
                join(name, path.relative_to(folder).as_posix()): path
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
        )

    def download(self, name: str, folder: Path) -> None:
        """Download all files under `name` to a local folder."""
        self.get({join(name, file): folder / file for file in self.files(name)})

    def check(self) -> None:
        """Write, read and remove a small file. ValueError: this fails; the message says why."""
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
                credentials = "s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
                remedy = f"that the bucket exists, the credentials ({credentials}), the network"
            raise ValueError(
                f"{self.place}: cannot be written to and read: {error.__cause__ or error}; check {remedy}"
            ) from error
