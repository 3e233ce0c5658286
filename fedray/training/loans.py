"""Which of a process' models are in use: two models of one client never share their weights."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from itertools import count


class Loans:
    """Numbers that are lent to objects, by key. A number is free again when nothing refers to its object any more."""

    def __init__(self) -> None:
        self._lent: dict[Hashable, set[int]] = {}

    def free(self, key: Hashable) -> int:
        """The lowest number that is not lent."""
        lent = self._lent.get(key, ())
        return next(number for number in count() if number not in lent)

    def lend(self, key: Hashable, holder: object) -> int:
        """Lend the lowest free number to an object."""
        number, lent = self.free(key), self._lent.setdefault(key, set())
        lent.add(number)
        weakref.finalize(holder, lent.discard, number).atexit = False
        return number
