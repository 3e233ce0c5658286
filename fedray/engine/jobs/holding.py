"""What an actor keeps between jobs: updates, in memory or on local disk, and the state of a dedicated client."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from fedray.core.types import RunError, State, Vector
from fedray.engine.jobs.work import StateStore
from fedray.runs.client_states import Written
from fedray.storage import serialize, temporary
from fedray.storage.temporary import private


def scratch(run: str) -> Path:
    """A folder on this machine for a run's temporary files. Only this user can enter it (else RunError)."""
    return private() / run


@contextmanager
def local_disk(folder: Path) -> Iterator[None]:
    """Raise RunError if a run's temporary files cannot be written to this machine's disk."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{folder} on {socket.gethostname()}: temporary files cannot be written: {error.strerror or error}. Make "
            "room there or set TMPDIR to a folder on a larger disk; if updates that wait for the whole cohort fill it, "
            "raise engine.hold_gb, which keeps more of them in memory. Then continue with `fedray resume`"
        ) from error


@dataclass(frozen=True)
class Spilled:
    """The place of an update in the holder's file, counted in numbers from the beginning."""

    start: int
    stop: int


class Holder:
    """The updates of lanes of one round, by client, in the order of arrival."""

    def __init__(self, folder: Path, limit: float) -> None:
        """`limit`: bytes in memory. Further updates share one file in `folder`, since only so many may be open."""
        self.folder, self.limit = folder, limit
        self._round = -1
        self._lanes: dict[int, dict[str, Vector | Spilled]] = {}
        self._bytes = 0
        self._spilled = 0  # numbers in the file
        self._file: Vector | None = None  # the file, mapped
        self._lock: FileLock | None = None  # while there is a file

    def open(self, round: int, lane: int) -> Callable[[str, Vector], None]:
        """Begin a lane without updates; returns a function that holds an update. Other rounds' updates are dropped.

        That function raises RunError if the disk is full.
        """
        if round != self._round:
            self.clear()
            self._round = round
        updates = self._lanes[lane] = {}

        def keep(client: str, delta: Vector) -> None:
            if self._bytes + delta.nbytes > self.limit:
                updates[client] = self._spill(delta)
            else:
                self._bytes += delta.nbytes
                updates[client] = np.array(delta)  # a copy: the algorithm may reuse its array

        return keep

    def updates(self, round: int, lane: int) -> dict[str, Vector]:
        """The updates of a lane by client."""
        assert round == self._round, "the updates of this round are not held here"
        held = self._lanes[lane].items()
        return {client: self._read(one) if isinstance(one, Spilled) else one for client, one in held}

    def clear(self) -> None:
        """Drop all updates and their file."""
        self._lanes, self._bytes, self._spilled, self._file = {}, 0, 0, None
        if self._lock is not None:
            temporary.disown(self.folder, self._lock)
            self._lock = None

    @property
    def _path(self) -> Path:
        return self.folder / f"{self._round}.f32"

    def _spill(self, delta: Vector) -> Spilled:
        with local_disk(self.folder):
            if self._lock is None:
                self._lock = temporary.own(self.folder)
            with self._path.open("ab") as file:
                file.write(np.ascontiguousarray(delta, np.float32).data)
        span = Spilled(self._spilled, self._spilled + delta.size)
        self._spilled = span.stop
        return span

    def _read(self, span: Spilled) -> Vector:
        if self._file is None or len(self._file) < span.stop:
            with local_disk(self.folder):
                self._file = np.memmap(self._path, dtype=np.float32, mode="r")
        return self._file[span.start : span.stop]


class DedicatedStates:
    """The states of a dedicated actor's client: the newest is kept in memory, so it is not read again."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._newest: dict[str, tuple[Written, State]] = {}

    def load(self, client: str, written: Written) -> State:
        """Load a state. The copy in memory is returned only once, since an algorithm may change it in place."""
        newest = self._newest.pop(client, None)
        return newest[1] if newest is not None and newest[0] == written else self._store.load(client, written)

    def save(self, client: str, version: int, state: State) -> Written:
        written = self._store.save(client, version, state)
        self._newest[client] = written, serialize.plain(state)
        return written

    def sync(self, written: Mapping[str, Written]) -> None:
        self._store.sync(written)
