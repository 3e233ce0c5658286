"""What the updates of a private round must keep to."""

from __future__ import annotations

from dataclasses import dataclass

from fedray.core.privacy.settings import ClipSettings
from fedray.core.privacy.skellam import Encoding


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
