"""A folder on a disk of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, final

from fedray.storage.base import Storage, join
from fedray.storage.bucket import without_secrets
from fedray.storage.files import faults, make_folder, sync_all, write_atomically


def on_disk(place: str | os.PathLike[str]) -> Path:
    """The path of a folder that must be on a disk. ValueError: it is a URI."""
    if "://" in os.fspath(place):
        shown = "".join(without_secrets(os.fspath(place)))
        raise ValueError(f"{shown} is not a folder on this machine: name one, and copy it there afterwards")
    return Path(place).expanduser()


@final
class LocalStorage(Storage):
    """A folder on a disk of this machine, or on one that all machines mount (NFS)."""

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

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        with faults(self.root / name, "read"), (self.root / name).open("rb") as file:
            yield file

    def write(self, name: str, data: bytes) -> None:
        self._write(self.root / name, lambda temporary: temporary.write_bytes(data))

    def write_soon(self, name: str, data: bytes) -> None:
        path = self.root / name
        with faults(path):
            make_folder(self.root)
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda temporary: temporary.write_bytes(data), durable=False)

    def sync(self, names: Iterable[str]) -> None:
        if self.root.is_dir():
            with faults(self.root):
                sync_all(self.root, names)

    def exists(self, name: str) -> bool:
        return (self.root / name).is_file()

    def names(self, folder: str = "") -> list[str]:
        path = self.root / folder
        return sorted(os.listdir(path)) if path.is_dir() else []

    def sizes(self, folder: str = "") -> dict[str, int]:
        found, left = {}, [""]
        while left:
            inside = left.pop()
            with suppress(FileNotFoundError), os.scandir(self.root / folder / inside) as entries:
                for entry in entries:
                    name = join(inside, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        left.append(name)
                    elif entry.is_file():
                        with suppress(FileNotFoundError):  # renamed meanwhile
                            found[name] = entry.stat().st_size
        return found

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

    def link(self, name: str, other: str) -> None:
        def write(temporary: Path) -> None:
            try:
                os.link(self.root / name, temporary)
            except OSError:  # a file system without links
                shutil.copyfile(self.root / name, temporary)

        path = self.root / other
        with faults(path):
            make_folder(path.parent)
        write_atomically(path, write, durable=False)

    @staticmethod
    def _write(path: Path, write: Callable[[Path], object]) -> None:
        with faults(path):
            make_folder(path.parent)
        write_atomically(path, write)
