"""The range of a number in settings, as part of its type: `dropout: Part = 0.1`.

The schema refuses a number outside its range, and the configuration reference shows the range. Relations between
settings are checked in the `__post_init__` of their dataclass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin


@dataclass(frozen=True)
class Range:
    """The numbers from `least` to `most`, without the ends that are `open`: "", "least", "most" or "both"."""

    least: float
    most: float = math.inf
    open: str = ""

    def __contains__(self, value: float) -> bool:
        above = value > self.least if self.open in ("least", "both") else value >= self.least
        return above and (value < self.most if self.open in ("most", "both") else value <= self.most)

    def __str__(self) -> str:
        low = f"above {self.least:g}" if self.open in ("least", "both") else f"at least {self.least:g}"
        if self.most == math.inf:
            return low
        return f"{low} and {'below' if self.open in ('most', 'both') else 'at most'} {self.most:g}"


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, open="least")]
Amount = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Part = Annotated[float, Range(0, 1, "most")]  # a share below 1
Fraction = Annotated[float, Range(0, 1, "both")]  # a share above 0 and below 1
SomeShare = Annotated[float, Range(0, 1, "least")]  # a share above 0


def range_of(hint: Any) -> Range | None:
    """The range in a type, such as `Part` or `Count | None`."""
    return next(_ranges(hint), None)


def _ranges(hint: Any) -> Iterator[Range]:
    if get_origin(hint) is Annotated:
        yield from (extra for extra in hint.__metadata__ if isinstance(extra, Range))
    for inner in get_args(hint):
        yield from _ranges(inner)
