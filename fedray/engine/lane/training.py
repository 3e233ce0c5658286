"""The jobs that train and prepare a lane: clients are hydrated, trained and checked one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, final

from fedray.core.sums import WeightedSum
from fedray.core.types import Broadcast, Vector
from fedray.engine.jobs.deaths import Death
from fedray.engine.jobs.job import Job, Reference, Result_co, Workplace
from fedray.engine.lane.aggregation import Take, aggregation_of
from fedray.engine.lane.book import LaneBook
from fedray.engine.lane.lane import Lane, LaneResult

Updates = list[tuple[Vector, float]]  # flat updates with their log-weights


@dataclass(frozen=True)
class LaneJob(Job[Result_co]):
    """A job on the clients of a lane. Abstract."""

    lane: Lane

    @property
    def kind(self) -> str:
        new = any(version is None for _, version in self.lane.clients)  # clients that may have to be prepared
        return f"{type(self).__name__}{' of new clients' * new}{' with scores' * bool(self.lane.personal)}"

    @property
    def alone(self) -> bool:
        return self.lane.alone

    def after_death(self, node: str, death: Death, warn: Callable[[str], None]) -> Self:
        return replace(self, lane=self.lane.after_death(node, death, warn))

    def unmarked(self) -> Self:
        return replace(self, lane=replace(self.lane, marker=None))

    def at_work(self, node: str) -> str:
        client = self.lane.client_at_work(node)
        what = f"client {client}" if client is not None else "before its first client"
        return f"lane {self.lane.number}, {what}"


@final
@dataclass(frozen=True)
class TrainLane(LaneJob[LaneResult]):
    """Train a lane's clients. Their updates are summed, or held if the strategy must see the whole cohort."""

    def run(
        self, workplace: Workplace, broadcast: Broadcast, first: Broadcast | None, take: Take | None = None
    ) -> LaneResult:
        """`first`: the broadcast of round 0, if clients prepare. `take`: takes the updates instead of this actor."""
        algorithm, book = workplace.program.algorithm, LaneBook.of(workplace, self.lane, broadcast, first)
        total = book.result.partial.updates
        take = take or aggregation_of(algorithm.strategy).taker(self.lane, workplace.holder, total)
        while not book.closed:
            # An error ends the iterator and fails the clients in training; the algorithm is called again for the rest.
            with book.blaming_clients():
                for update in algorithm.lane_update(book.clients(), book.received):
                    book.accept(update, take)
                    del update  # so that the next client's can have its memory
                book.close(take)
        return book.finished()


@final
@dataclass(frozen=True)
class TrainKept(LaneJob[tuple[Reference, LaneResult]]):
    """Train a lane's clients, and keep the sum of their updates in the object store."""

    @property
    def keeps(self) -> bool:
        return True

    def run(
        self, workplace: Workplace, broadcast: Broadcast, first: Broadcast | None
    ) -> tuple[WeightedSum, LaneResult]:
        result = TrainLane(self.lane).run(workplace, broadcast, first)
        total, result.partial.updates = result.partial.updates, WeightedSum()
        return total, result


@final
@dataclass(frozen=True)
class TrainClient(LaneJob[tuple[Reference, LaneResult]]):
    """Train one client on its dedicated actor. Its update stays in the object store for `GatherLane`.

    A client that failed has no update.
    """

    @property
    def keeps(self) -> bool:
        return True

    def run(self, workplace: Workplace, broadcast: Broadcast, first: Broadcast | None) -> tuple[Updates, LaneResult]:
        updates: Updates = []
        result = TrainLane(self.lane).run(
            workplace, broadcast, first, lambda client, update, log_weight: updates.append((update, log_weight))
        )
        return updates, result


@final
@dataclass(frozen=True)
class GatherLane(Job[Any]):
    """Sum or hold, in lane order, the updates that a lane's clients trained on their dedicated actors.

    `kept`: keep the sum in the object store.
    """

    lane: Lane
    kept: bool

    @property
    def keeps(self) -> bool:
        return self.kept

    def run(self, workplace: Workplace, *clients: Updates) -> WeightedSum | tuple[WeightedSum, None]:
        total = WeightedSum()
        take = aggregation_of(workplace.program.algorithm.strategy).taker(self.lane, workplace.holder, total)
        for (client, _), updates in zip(self.lane.clients, clients, strict=True):
            for update, log_weight in updates:
                take(client, update, log_weight)
        return (total, None) if self.kept else total


@final
@dataclass(frozen=True)
class PrepareLane(LaneJob[LaneResult]):
    """Prepare clients without training them. Their states become version 0."""

    def run(self, workplace: Workplace, first: Broadcast) -> LaneResult:
        received = workplace.receive(first, 0)
        book = LaneBook(workplace, self.lane, received, received)
        for client in book.clients():
            if client.state is not None:
                book.result.written[client.id] = workplace.program.states.save(client.id, 0, client.state)
        return book.finished()
