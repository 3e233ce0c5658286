"""The range of a number in settings, as part of its type: `dropout: Part = 0.1`.

The schema and `Ranged` refuse a number outside its range, and the configuration reference shows the range. Relations
between settings are checked in the `__post_init__` of their dataclass.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints


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
Minority = Annotated[float, Range(0, 0.5, "most")]  # a share below a half
SomeShare = Annotated[float, Range(0, 1, "least")]  # a share above 0


def range_of(hint: Any) -> Range | None:
    """The range in a type, such as `Part` or `Count | None`."""
    return next(_ranges(hint), None)


@functools.lru_cache
def ranges(cls: type) -> dict[str, Range | None]:
    """Field -> the range of its numbers."""
    return {name: range_of(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}


class Ranged:
    """A frozen dataclass of settings, whose numbers must lie in the ranges of their types (else ValueError)."""

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, limits in ranges(cls).items():
            if limits is not None:
                value = getattr(self, name)
                for number in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(number, int | float) and number not in limits:
                        raise ValueError(f"{name} must be {limits}, not {number}")


def _ranges(hint: Any) -> Iterator[Range]:
    if get_origin(hint) is Annotated:
        yield from (extra for extra in hint.__metadata__ if isinstance(extra, Range))
    for inner in get_args(hint):
        yield from _ranges(inner)
