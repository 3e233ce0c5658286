"""Updates that wait on their holder until the whole cohort has been seen: in memory up to a limit, beyond it in files on local disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedray.core import serialize
from fedray.core.strategies import Weights
from fedray.core.sums import LayeredSum
from fedray.core.types import Layer, State, Vector
from fedray.engine.work import States


def scratch(run: str) -> Path:
    """A folder of this machine for what a run needs while it goes on, and nobody afterwards."""
    return Path(tempfile.gettempdir()) / f"fedray-{os.getuid()}" / run


class Holder:
    """The updates of lanes of one round, by client, in the order in which they came."""

    def __init__(self, folder: Path, limit: float) -> None:
        """`limit`: bytes kept in memory."""
        self.folder, self.limit = folder, limit
        self._round = -1
        self._lanes: dict[int, dict[str, Vector]] = {}
        self._bytes = 0

    def open(self, round: int, lane: int) -> Callable[[str, Vector], None]:
        """Begin to hold a lane, from nothing; what is held of other rounds goes."""
        if round != self._round:
            self.clear()
            self._round = round
        updates = self._lanes[lane] = {}

        def keep(client: str, delta: Vector) -> None:
            if self._bytes + delta.nbytes > self.limit:
                delta = self._spill(lane, len(updates), delta)
            else:
                self._bytes += delta.nbytes
                delta = np.array(delta)  # the algorithm may go on using its own
            updates[client] = delta

        return keep

    def _spill(self, lane: int, number: int, delta: Vector) -> Vector:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self._round}-{lane}-{number}.f32"
        delta.tofile(path)
        return np.memmap(path, dtype=np.float32, mode="r", shape=delta.shape)

    def updates(self, round: int, lane: int) -> dict[str, Vector]:
        assert round == self._round, "the updates of this round are not held here"
        return self._lanes[lane]

    def block(self, round: int, lane: int, start: int, stop: int) -> Vector:
        """The numbers [start, stop) of all of a lane's updates, [clients, stop - start]."""
        return np.stack([delta[start:stop] for delta in self.updates(round, lane).values()])

    def probe(self, probe: Callable[..., Any], round: int, lane: int, mean: Vector, layers: tuple[Layer, ...]) -> dict[str, Any]:
        """The strategy's scalars of a lane's clients."""
        return {client: dict(probe(delta, mean, layers)) for client, delta in self.updates(round, lane).items()}

    def fold(self, round: int, lane: int, weights: Weights, layers: tuple[Layer, ...]) -> LayeredSum:
        """The weighted sum of a lane's updates; clients without a weight are left out."""
        total = LayeredSum(layers)
        for client, delta in self.updates(round, lane).items():
            if client in weights:
                total.add(delta, weights[client])
        return total

    def clear(self) -> None:
        self._lanes, self._bytes = {}, 0
        shutil.rmtree(self.folder, ignore_errors=True)


class OwnStates:
    """The states of an actor's own client: as they were written last, without reading them again."""

    def __init__(self, store: States) -> None:
        self._store = store
        self._newest: dict[str, tuple[int, State]] = {}

    def load(self, client: str, version: int) -> State:
        """A state that an algorithm may change in place: it is handed out once, then read from the store."""
        newest = self._newest.pop(client, None)
        return newest[1] if newest is not None and newest[0] == version else self._store.load(client, version)

    def save(self, client: str, version: int, state: State) -> None:
        self._store.save(client, version, state)
        self._newest[client] = version, serialize.plain(state)
