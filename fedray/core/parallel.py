"""What lower floors do in parallel they do through a function of this shape that is handed to them (the engine's runs on Ray)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Parallel(Protocol):
    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any], what: str) -> Iterator[Any]:
        """Yield `function(item)` in the order of `items`. `what` names the work in the progress bar; `function` must pickle."""


def serial(function: Callable[[Item], Result], items: Sequence[Item], what: str = "") -> Iterator[Result]:
    for item in items:
        yield function(item)
