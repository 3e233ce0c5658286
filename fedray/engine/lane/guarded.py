"""How updates leave the clients of a private round: clipped and encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from fedray.core.algorithm import Algorithm
from fedray.core.packing import Packing
from fedray.core.privacy.clipping import Clipping, Flags
from fedray.core.privacy.mechanism import rotation
from fedray.core.seeds import numpy_generator
from fedray.core.types import Layer, Update, Vector
from fedray.engine.lane.guard import Guard
from fedray.engine.lane.lane import Lane, LaneResult
from fedray.engine.lane.outgoing import Outgoing


class Guarded:
    """A guard with what it computes once per lane."""

    def __init__(self, guard: Guard, layers: Sequence[Layer]) -> None:
        self.guard = guard
        self._clipping = Clipping(guard.clip, layers, guard.size)
        self._bounds = np.asarray(guard.bounds)
        self._signs = None if guard.encoding is None else rotation(guard.encoding, guard.seed, guard.round)

    def protect(self, update: Update, client: str) -> tuple[Vector, Flags]:
        """The clipped and encoded update, and which groups were clipped.

        An encoding pads it to uint32 [encoding.length]; only sums of encoded updates can be decoded. ValueError: the
        update has vectors besides its delta, or the wrong size.
        """
        guard = self.guard
        if update.vectors:
            names = ", ".join(update.vectors)
            raise ValueError(f"the update sends {names} in addition to its delta, which `privacy` does not cover")
        if update.delta.size != guard.size:
            raise ValueError(f"the update has {update.delta.size:,} numbers, a private update has {guard.size:,}")
        delta, clipped = self._clipping.clip(update.delta, self._bounds)
        if guard.encoding is None or self._signs is None:
            return delta, clipped
        generator = numpy_generator(guard.seed, "privacy rounding", guard.round, client)
        return cast(Vector, guard.encoding.encode(delta, self._signs, generator)), clipped


class PrivateOutgoing(Outgoing):
    """All updates weigh the same, since what a client trained on must not show."""

    def __init__(self, lane: Lane, algorithm: Algorithm, guard: Guard, layers: Sequence[Layer]) -> None:
        super().__init__(lane, algorithm)
        self._guarded = Guarded(guard, layers)
        self._clipped: Flags | None = None  # the groups of the newest update that were clipped

    def log_weight(self, report: Mapping[str, float]) -> float:
        return 0.0

    def flat(self, update: Update, packing: Packing, client: str) -> Vector:
        flat, self._clipped = self._guarded.protect(update, client)
        return flat

    def bytes(self, sent: int) -> int:
        fixed = self._guarded.guard.sent
        return sent if fixed is None else fixed

    def taken(self, result: LaneResult) -> None:
        assert self._clipped is not None
        result.clipped = self._clipped.astype(np.int64) + (0 if result.clipped is None else result.clipped)


def outgoing(lane: Lane, algorithm: Algorithm, layers: Sequence[Layer]) -> Outgoing:
    """How the updates of a lane leave its clients."""
    return Outgoing(lane, algorithm) if lane.guard is None else PrivateOutgoing(lane, algorithm, lane.guard, layers)
