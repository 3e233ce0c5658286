"""The range of a number in settings, as part of its type: `dropout: Part = 0.1`. The words that a text may be.

The schema and `Ranged` refuse a number outside its range, and the configuration reference shows the range. `Ranged`
refuses other words. Relations between settings are checked in the `__post_init__` of their dataclass.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, TypeGuard, get_args, get_origin, get_type_hints


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
WhisperSeconds = Annotated[float, Range(0.02)]  # a window of Whisper's encoder: at least one of its positions
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


def one_of(words: Iterable[str], default: str | None = None) -> str:
    """A field of a `Ranged` dataclass that holds one of these words, by default the first."""
    known = tuple(words)
    found: str = field(default=default or known[0], metadata={"words": known})
    return found


@functools.lru_cache
def words(cls: type) -> dict[str, tuple[str, ...]]:
    """Field -> the words that it may hold, for the fields that `one_of` made."""
    return {f.name: f.metadata["words"] for f in fields(cls) if "words" in f.metadata} if is_dataclass(cls) else {}


class Ranged:
    """A frozen dataclass of settings. ValueError: a number is outside the range of its type, or a word is unknown."""

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, limits in ranges(cls).items():
            if limits is not None:
                value = getattr(self, name)
                for number in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(number, int | float) and number not in limits:
                        raise ValueError(f"{name} must be {limits}, not {number}")
        for name, known in words(cls).items():
            if (word := getattr(self, name)) not in known:
                wanted = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}"
                raise ValueError(f"{name} must be {wanted}, not {word!r}")


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, which a Boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ranges(hint: Any) -> Iterator[Range]:
    if get_origin(hint) is Annotated:
        yield from (extra for extra in hint.__metadata__ if isinstance(extra, Range))
    for inner in get_args(hint):
        yield from _ranges(inner)
