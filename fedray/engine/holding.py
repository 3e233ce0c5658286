"""What an actor keeps between jobs: updates, in memory or on local disk, and the state of a dedicated client."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from fedray.core.types import RunError, State, Vector
from fedray.engine.work import States
from fedray.runs.client_states import Written
from fedray.storage import serialize


def scratch(run: str) -> Path:
    """A folder on this machine for temporary files of a run, in a folder that only this user can enter.

    RunError: that folder is another user's, or a link, so that others could read or replace what is written there.
    """
    root = Path(tempfile.gettempdir()) / f"fedray-{os.getuid()}"
    with suppress(FileExistsError):
        root.mkdir(mode=0o700)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise RunError(f"{root} is no folder of this user: remove it, or set TMPDIR to a folder of your own")
    if found.st_mode & 0o077:  # made by an earlier version
        root.chmod(0o700)
    return root / run


class Holder:
    """The updates of lanes of one round, by client, in the order of arrival."""

    def __init__(self, folder: Path, limit: float) -> None:
        """`limit`: bytes in memory; further updates go to files in `folder`."""
        self.folder, self.limit = folder, limit
        self._round = -1
        self._lanes: dict[int, dict[str, Vector]] = {}
        self._bytes = 0

    def open(self, round: int, lane: int) -> Callable[[str, Vector], None]:
        """Begin a lane without updates; returns a function that holds an update. Other rounds' updates are dropped."""
        if round != self._round:
            self.clear()
            self._round = round
        updates = self._lanes[lane] = {}

        def keep(client: str, delta: Vector) -> None:
            if self._bytes + delta.nbytes > self.limit:
                delta = self._spill(lane, len(updates), delta)
            else:
                self._bytes += delta.nbytes
                delta = np.array(delta)  # a copy: the algorithm may reuse its array
            updates[client] = delta

        return keep

    def _spill(self, lane: int, number: int, delta: Vector) -> Vector:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self._round}-{lane}-{number}.f32"
        delta.tofile(path)
        return np.memmap(path, dtype=np.float32, mode="r", shape=delta.shape)

    def updates(self, round: int, lane: int) -> dict[str, Vector]:
        """The updates of a lane by client."""
        assert round == self._round, "the updates of this round are not held here"
        return self._lanes[lane]

    def clear(self) -> None:
        """Drop all updates and their files."""
        self._lanes, self._bytes = {}, 0
        shutil.rmtree(self.folder, ignore_errors=True)


class DedicatedStates:
    """The states of a dedicated actor's client: the newest is kept in memory, so it is not read again."""

    def __init__(self, store: States) -> None:
        self._store = store
        self._newest: dict[str, tuple[Written, State]] = {}

    def load(self, client: str, written: Written) -> State:
        """A state. The kept copy is returned once, since an algorithm may change it in place; then from the store."""
        newest = self._newest.pop(client, None)
        return newest[1] if newest is not None and newest[0] == written else self._store.load(client, written)

    def save(self, client: str, version: int, state: State) -> Written:
        written = self._store.save(client, version, state)
        self._newest[client] = written, serialize.plain(state)
        return written

    def sync(self, written: Mapping[str, Written]) -> None:
        self._store.sync(written)
