"""A disk that forgets: what a power loss may leave of a folder, after the calls that the shim has logged.

The content of a file at its last sync stays. What was written since may be there, missing, cut short or zeros. The
names in a folder are those at its last sync, plus the first few changes since; how many may differ between folders.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.power.shim import Call


@dataclass(eq=False)
class File:
    data: bytes = b""
    synced: bytes = b""


@dataclass(eq=False)
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    since: list[dict[str, File | Folder]] = field(default_factory=list)  # the names after each change since the sync

    def change(self, **names: File | Folder | None) -> None:
        """Set or, with None, remove names in one step."""
        for name, what in names.items():
            if what is None:
                del self.names[name]
            else:
                self.names[name] = what
        self.since.append(dict(self.names))

    def sync(self) -> None:
        self.synced, self.since = dict(self.names), []


@dataclass(frozen=True)
class Loss:
    """What stays: `changes` tells how many of a folder's changes since its sync, `content` what of a file."""

    changes: Callable[[int], int]
    content: Callable[[File], bytes]


def cut(file: File) -> bytes:
    """The synced content and half of what was appended since; nothing if the file was rewritten."""
    return file.data[: (len(file.synced) + len(file.data)) // 2] if file.data.startswith(file.synced) else b""


def zeros(file: File) -> bytes:
    """The synced content at the right size, with zeros for what was appended since."""
    return file.synced[: len(file.data)] + bytes(max(0, len(file.data) - len(file.synced)))


CONTENTS: list[Callable[[File], bytes]] = [lambda file: file.synced, lambda file: file.data, cut, zeros]
LOSSES = {
    "all that was not synced": Loss(lambda of: 0, lambda file: file.synced),
    "the contents, but not the names": Loss(lambda of: of, lambda file: file.synced),
    "the names, but not the contents": Loss(lambda of: 0, lambda file: file.data),
    "the contents, with the sizes right": Loss(lambda of: of, zeros),
    "half of it": Loss(lambda of: of // 2, cut),
    "nothing": Loss(lambda of: of, lambda file: file.data),
}


def at_random(seed: int) -> Loss:
    dice = random.Random(seed)
    return Loss(lambda of: dice.randint(0, of), lambda file: dice.choice(CONTENTS)(file))


class Disk:
    """The folder after the calls that have been applied."""

    def __init__(self) -> None:
        self.root = Folder()

    def apply(self, call: Call) -> None:
        match call.name:
            case "create":
                self._set(call.path, File())
            case "folder":
                self._set(call.path, Folder())
            case "write":
                file = self._file(call.path)
                before = file.data[: call.offset].ljust(call.offset, b"\0")
                file.data = before + call.data + file.data[call.offset + len(call.data) :]
            case "truncate":
                file = self._file(call.path)
                file.data = file.data[: call.offset].ljust(call.offset, b"\0")
            case "remove":
                self._set(call.path, None)
            case "link":
                self._set(call.second, self._find(call.path))
            case "rename":
                self._rename(call)
            case "sync":
                found = self._find(call.path)
                if isinstance(found, Folder):
                    found.sync()
                else:
                    found.synced = found.data
            case "sync all":
                self._sync(self.root)
            case other:
                raise AssertionError(f"the log says {other} of {call.path}")

    def after(self, loss: Loss, target: Path) -> None:
        """Write to `target` what a power loss leaves."""
        _write(deepcopy(self.root), loss, target)

    def files(self) -> dict[str, bytes]:
        """All files, as every process sees them while there is power."""
        return {path: file.data for path, file in _walk(self.root)}

    def _rename(self, call: Call) -> None:
        found = self._find(call.path)
        (one, name), (other, after) = self._place(call.path), self._place(call.second)
        if one is other:
            one.change(**{name: None, after: found})
        else:
            one.change(**{name: None})
            other.change(**{after: found})

    def _sync(self, folder: Folder) -> None:
        folder.sync()
        for found in folder.names.values():
            if isinstance(found, Folder):
                self._sync(found)
            else:
                found.synced = found.data

    def _find(self, path: str) -> File | Folder:
        found: File | Folder = self.root
        for part in PurePosixPath(path).parts:
            assert isinstance(found, Folder)
            found = found.names[part]
        return found

    def _file(self, path: str) -> File:
        found = self._find(path)
        assert isinstance(found, File), path
        return found

    def _place(self, path: str) -> tuple[Folder, str]:
        where = PurePosixPath(path)
        folder = self._find(str(where.parent))
        assert isinstance(folder, Folder)
        return folder, where.name

    def _set(self, path: str, what: File | Folder | None) -> None:
        if path != ".":
            folder, name = self._place(path)
            folder.change(**{name: what})


def _write(folder: Folder, loss: Loss, target: Path) -> None:
    target.mkdir(parents=True)
    kept = loss.changes(len(folder.since))
    for name, found in (folder.since[kept - 1] if kept else folder.synced).items():
        if isinstance(found, Folder):
            _write(found, loss, target / name)
        else:
            (target / name).write_bytes(loss.content(found))


def _walk(folder: Folder, before: str = "") -> list[tuple[str, File]]:
    found = []
    for name, what in folder.names.items():
        found += _walk(what, f"{before}{name}/") if isinstance(what, Folder) else [(before + name, what)]
    return found
