"""What an actor keeps between jobs: updates, in memory or on local disk, and the state of a dedicated client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from fedray.core.types import State, Vector
from fedray.engine.work import States
from fedray.storage import serialize, temporary
from fedray.storage.temporary import private


def scratch(run: str) -> Path:
    """A folder on this machine for temporary files of a run, which only this user can enter (else RunError)."""
    return private() / run


class Holder:
    """The updates of lanes of one round, by client, in the order of arrival."""

    def __init__(self, folder: Path, limit: float) -> None:
        """`limit`: bytes in memory; further updates go to files in `folder`."""
        self.folder, self.limit = folder, limit
        self._round = -1
        self._lanes: dict[int, dict[str, Vector]] = {}
        self._bytes = 0
        self._lock: FileLock | None = None  # while there are files

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
        if self._lock is None:
            self._lock = temporary.own(self.folder)
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
        if self._lock is not None:
            temporary.disown(self.folder, self._lock)
            self._lock = None


class DedicatedStates:
    """The states of a dedicated actor's client: the newest is kept in memory, so it is not read again."""

    def __init__(self, store: States) -> None:
        self._store = store
        self._newest: dict[str, tuple[int, State]] = {}

    def load(self, client: str, version: int) -> State:
        """A state. The kept copy is returned once, since an algorithm may change it in place; then from the store."""
        newest = self._newest.pop(client, None)
        return newest[1] if newest is not None and newest[0] == version else self._store.load(client, version)

    def save(self, client: str, version: int, state: State) -> None:
        self._store.save(client, version, state)
        self._newest[client] = version, serialize.plain(state)
