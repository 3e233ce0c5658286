"""Tables of JSON lines that grow with a run: a file on a disk; parts in a bucket, whose objects cannot grow.

In a bucket the table `metrics.jsonl` is the object of that name, followed by the parts `metrics.jsonl.parts/START-END`.
START and END are byte positions in the table. If several parts begin at one byte, readers take the longest. They ignore
parts that begin before the end of the object. A writer merges parts, or extends the object, before it removes the old
parts: a reader finds a whole table at any time, even if the writer is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fedray.core.texts import decoded
from fedray.storage.base import Storage
from fedray.storage.files import StorageError, faults, write_atomically

FAN = 16  # parts of one size that are merged: each row is rewritten log16(rows) times
TRIES = 5  # to read a table while it is merged


class Tables(Protocol):
    """The tables of a folder, by name."""

    def lines(self, name: str) -> Iterator[str]:
        """The lines, without line ends or a last line that a kill cut short. FileNotFoundError: no such table."""

    def append(self, name: str, text: str) -> None:
        """Add whole lines."""

    def rewrite(self, name: str, text: Iterable[str]) -> None:
        """Replace the table. `text` may come from its own `lines`: it is read before anything is replaced."""

    def settle(self) -> None:
        """Make each table a plain file."""


class FileTables:
    """Tables as files of a folder on a disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def lines(self, name: str) -> Iterator[str]:
        path = self.root / name
        with faults(path, "read"):
            yield from _lines(path, str(path))

    def append(self, name: str, text: str) -> None:
        path = self.root / name
        before = path.stat().st_size if path.exists() else 0
        try:
            with faults(path), path.open("a", encoding="utf-8") as file:
                file.write(text)
        except StorageError:
            with suppress(OSError):
                os.truncate(path, before)  # half a row must not stay before the next one
            raise

    def rewrite(self, name: str, text: Iterable[str]) -> None:
        with faults(self.root / name):
            self.root.mkdir(parents=True, exist_ok=True)
        write_atomically(self.root / name, lambda temporary: _write(temporary, text))

    def settle(self) -> None:
        """Do nothing: each table is a plain file already."""


@dataclass
class Parts:
    """What one process has appended to a table."""

    size: int  # bytes of the object
    parts: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, how often merged

    @property
    def end(self) -> int:
        return self.parts[-1][1] if self.parts else self.size


class PartedTables:
    """Tables as objects and parts in a bucket. One process at a time may write."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._open: dict[str, Parts] = {}

    def lines(self, name: str) -> Iterator[str]:
        with self._whole(name) as path:
            yield from _lines(path, self.storage.shown(name))

    def append(self, name: str, text: str) -> None:
        data, table = text.encode(), self._opened(name)
        if not data:
            return
        start, end = table.end, table.end + len(data)
        self.storage.write(_part(name, start, end), data)
        table.parts.append((start, end, 0))
        if end >= 2 * table.size:  # the object has half of the table, and is written log2(bytes) times
            self._settle(name)
            return
        while len(table.parts) >= FAN and len({merged for *_, merged in table.parts[-FAN:]}) == 1:
            self._merge(name, table)

    def rewrite(self, name: str, text: Iterable[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="fedray-") as folder:
            path = Path(folder, "table")
            with faults(path):
                _write(path, text)
            with suppress(FileNotFoundError):
                self._settle(name)  # parts must not follow a table that may be shorter
            self.storage.put({name: path})
            self._open[name] = Parts(path.stat().st_size)

    def settle(self) -> None:
        for name, table in self._open.items():
            if table.parts:
                self._settle(name)

    def _opened(self, name: str) -> Parts:
        if name not in self._open:
            try:
                self._settle(name)  # with what an earlier process appended
            except FileNotFoundError:
                self.storage.write(name, b"")
                self._open[name] = Parts(0)
        return self._open[name]

    def _settle(self, name: str) -> None:
        """Write the whole table into its object, and remove its parts. FileNotFoundError: no such table."""
        with self._whole(name) as path:
            parts = _named(self.storage, name)
            if parts:
                self.storage.put({name: path})
                self.storage.remove(*(_part(name, *span) for span in parts))
            self._open[name] = Parts(path.stat().st_size)

    def _merge(self, name: str, table: Parts) -> None:
        """Write the newest parts as one part."""
        newest = table.parts[-FAN:]
        start, end, merged = newest[0][0], newest[-1][1], newest[0][2]
        with tempfile.TemporaryDirectory(prefix="fedray-") as folder:
            whole = Path(folder, "merged")
            whole.touch()
            self._fetch(name, [part[:2] for part in newest], whole)
            self.storage.put({_part(name, start, end): whole})
        self.storage.remove(*(_part(name, *part[:2]) for part in newest))
        table.parts[-FAN:] = [(start, end, merged + 1)]

    @contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        """The whole table as a local file. FileNotFoundError: no such table."""
        with tempfile.TemporaryDirectory(prefix="fedray-") as folder:
            path = Path(folder, "table")
            for tries in range(1, TRIES + 1):
                parts = _named(self.storage, name)  # listed first: parts removed from now on are in what is read next
                self.storage.get({name: path})
                chain = list(_chain(parts, path.stat().st_size))
                end = chain[-1][1] if chain else path.stat().st_size
                try:
                    if any(span[1] > end for span in parts):
                        raise FileNotFoundError
                    self._fetch(name, chain, path)
                    break
                except FileNotFoundError as error:
                    if tries == TRIES:
                        shown = self.storage.shown(name)
                        raise ValueError(f"{shown}.parts: the part that begins at byte {end} is missing") from error
            yield path

    def _fetch(self, name: str, spans: Collection[tuple[int, int]], whole: Path) -> None:
        """Append parts to a local file."""
        files = {_part(name, *span): whole.with_name(f"{span[0]}-{span[1]}") for span in spans}
        self.storage.get(files)
        with faults(whole), whole.open("ab") as file:
            for path in files.values():
                with path.open("rb") as part:
                    shutil.copyfileobj(part, file)
                path.unlink()


def _part(name: str, start: int, end: int) -> str:
    return f"{name}.parts/{start:012d}-{end:012d}"


def _named(storage: Storage, name: str) -> list[tuple[int, int]]:
    """The start and the end of each existing part, in bytes."""
    matches = (re.fullmatch(r"(\d+)-(\d+)", part) for part in storage.names(f"{name}.parts"))
    return [(int(match[1]), int(match[2])) for match in matches if match]


def _chain(parts: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """The parts that follow an object of `size` bytes."""
    longest: dict[int, int] = {}
    for start, end in parts:
        longest[start] = max(end, longest.get(start, 0))
    while size in longest:
        yield size, longest[size]
        size = longest[size]


def _lines(path: Path, shown: str) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if line.endswith("\n"):
                    yield line[:-1]
    except UnicodeDecodeError:
        decoded(path.read_bytes(), shown)  # its error names the line
        raise


def _write(path: Path, text: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(text)
