"""The interface of parallel work.

Packages below the engine receive a `Parallel` from their caller; the engine's runs on Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Parallel(Protocol):
    """A parallel map."""

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item], what: str) -> Iterator[Result]:
        """Yield `function(item)` in the order of `items`. The progress bar shows `what`. `function` must pickle."""


def serial(function: Callable[[Item], Result], items: Sequence[Item], what: str = "") -> Iterator[Result]:
    """A `Parallel` that works in the caller's process, one item after the other."""
    for item in items:
        yield function(item)
