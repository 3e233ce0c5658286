"""What the clients of a private round hold to before an update leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.privacy.clipping import Clipping, Flags
from fedray.core.privacy.settings import ClipSettings
from fedray.core.types import Layer, Update, Vector


@dataclass(frozen=True)
class Guard:
    """What the clients of a lane hold to: a bound for each group of their updates of `size` numbers."""

    clip: ClipSettings
    bounds: tuple[float, ...]
    size: int

    def clipping(self, layers: Sequence[Layer]) -> Clipping:
        """How updates are cut into groups. `layers`: the algorithm's."""
        return Clipping(self.clip, layers, self.size)

    def protect(self, update: Update, clipping: Clipping) -> tuple[Vector, Flags]:
        """The clipped delta, and which groups were clipped. ValueError: the update tells more than its delta."""
        if update.vectors:
            names = ", ".join(update.vectors)
            raise ValueError(f"the update sends {names} beside its delta, which `privacy` does not cover")
        if update.delta.size != self.size:
            raise ValueError(f"the update has {update.delta.size:,} numbers, a private update has {self.size:,}")
        return clipping.clip(update.delta, np.asarray(self.bounds))
