"""How clients of a private round clip and encode their updates before sending them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from fedray.core.privacy.clipping import Clipping, Flags
from fedray.core.privacy.mechanism import rotation
from fedray.core.privacy.settings import ClipSettings
from fedray.core.privacy.skellam import Encoding
from fedray.core.seeds import numpy_generator
from fedray.core.types import Layer, Update, Vector


@dataclass(frozen=True)
class Guard:
    """The privacy settings of a round: bounds of an update's groups, its `size`, and the encoding if there is one."""

    clip: ClipSettings
    bounds: tuple[float, ...]
    size: int
    encoding: Encoding | None
    sent: int | None  # bytes of an update as sent; None: those that the algorithm sends
    seed: int  # of the run
    round: int


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
