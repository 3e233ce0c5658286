"""A tree of sums: those of neighbouring lanes are merged while other lanes are still at work.

Its shape, and with it the order of additions, follows from the number of lanes alone: any actors give the same bits.
Large sums stay in the object store and are merged by actors. Small ones come with the lanes' results, and the driver
merges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, final

from fedray.core.types import Vector
from fedray.engine.jobs.job import Job, Reference, Worker, Workers, Workplace

FAN_IN = 8  # neighbours that are merged at once
LIGHT_BYTES = 1e6  # of a sum: lighter ones are faster through the driver than as jobs


class Sum(Protocol):
    """What a tree adds."""

    total: Vector | None

    def merge(self, other: Self) -> None: ...


S = TypeVar("S", bound=Sum)


def large(numbers: int) -> bool:
    """Whether a sum of so many numbers stays in the object store."""
    return 4 * numbers > LIGHT_BYTES


class Spot(NamedTuple):
    """A place in the tree, and the key of the job that merges the sums below it. Lanes are at level 0."""

    level: int
    at: int


@dataclass(frozen=True)
class Kept:
    """A sum in the object store, on a node of the cluster."""

    reference: Reference
    node: str


@final
@dataclass(frozen=True)
class Merge(Job[tuple[Reference, None]]):
    """The sum of the inputs, in their order."""

    @property
    def keeps(self) -> bool:
        return True

    def run(self, workplace: Workplace, first: Sum, *others: Sum) -> tuple[Sum, None]:
        for other in others:
            first.merge(other)
        return first, None


class Tree(Generic[S]):
    """The sums of `lanes` lanes that are there so far: of lanes, and of subtrees in their place."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.bytes = 0  # of sums that came to the driver
        self._sums: dict[Spot, S | Kept | None] = {}
        self._widths = [lanes]
        while self._widths[-1] > 1:
            self._widths.append(-(-self._widths[-1] // FAN_IN))

    def total(self, pool: Workers) -> tuple[S | None, int]:
        """The sum of all lanes (None: none has one), and the bytes that came to the driver. Lost: a node has died."""
        root = self._sums.get(Spot(len(self._widths) - 1, 0))
        total: S | None = pool.fetch(root.reference) if isinstance(root, Kept) else root
        if isinstance(root, Kept) and total is not None:
            self.bytes += _bytes(total)
        return total, self.bytes

    def then(self, key: Any, result: Any, worker: Worker) -> dict[Any, Merge]:
        """Add what a job returned to the pool: the sum of the lane `key`, or of a `Spot`."""
        spot = key if isinstance(key, Spot) else Spot(0, key)
        if isinstance(result, tuple):
            return self.add(spot, Kept(result[0], worker.node))
        self.bytes += _bytes(result)
        return self.add(spot, result)

    def missing(self) -> set[int]:
        """The lanes that no sum covers."""
        return set(range(self.lanes)).difference(*map(self._below, self._sums))

    def ready(self) -> dict[Spot, Merge]:
        """The jobs that can run now."""
        parents = {self._parent(spot) for spot in self._sums if spot.level < len(self._widths) - 1}
        return {spot: job for parent in parents for spot, job in self._grow(parent)}

    def add(self, spot: Spot, part: S | Kept | None) -> dict[Spot, Merge]:
        """Add the sum of a lane or of a job that is done (None: it has none); returns the jobs that can run now."""
        for child in self._children(spot):
            self._sums.pop(child, None)
        self._sums[spot] = part
        return dict(self._grow(self._parent(spot))) if spot.level < len(self._widths) - 1 else {}

    def lose(self, living: Iterable[str]) -> None:
        """Forget the sums on nodes other than these. Their lanes are `missing` then."""
        gone = [spot for spot, part in self._sums.items() if isinstance(part, Kept) and part.node not in {*living}]
        for spot in gone:
            del self._sums[spot]

    def _grow(self, spot: Spot) -> Iterator[tuple[Spot, Merge]]:
        """Merge the children of a place once all are there, here or by a job."""
        children = self._children(spot)
        if any(child not in self._sums for child in children):
            return
        parts = [part for child in children if (part := self._sums[child]) is not None]
        if len(parts) > 1 and isinstance(parts[0], Kept):
            inputs = tuple(part.reference for part in parts if isinstance(part, Kept))
            assert len(inputs) == len(parts), "either all sums are kept, or none"
            yield spot, Merge(inputs=inputs, near=parts[-1].node if isinstance(parts[-1], Kept) else None)
            return
        total: Any = parts[0] if parts else None
        for part in parts[1:]:
            total.merge(part)
        yield from self.add(spot, total).items()

    def _children(self, spot: Spot) -> list[Spot]:
        if not spot.level:
            return []
        start = spot.at * FAN_IN
        return [Spot(spot.level - 1, at) for at in range(start, min(start + FAN_IN, self._widths[spot.level - 1]))]

    def _parent(self, spot: Spot) -> Spot:
        return Spot(spot.level + 1, spot.at // FAN_IN)

    def _below(self, spot: Spot) -> range:
        """The lanes below a place."""
        width = FAN_IN**spot.level
        return range(spot.at * width, min((spot.at + 1) * width, self.lanes))


def _bytes(part: Sum) -> int:
    return 0 if part.total is None else part.total.nbytes
