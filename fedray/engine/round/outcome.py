"""Who takes part in a round, and the result of the round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedray.core.sums import PartialSum
from fedray.core.types import Update
from fedray.engine.lane.aggregation import Aggregate
from fedray.engine.lane.lane import PHASES, Failure, Lane, LaneResult


@dataclass(frozen=True)
class Draw:
    """Who takes part in a round."""

    chosen: Sequence[str]  # all of them get the broadcast
    answering: Sequence[str]
    lanes: Sequence[Lane]  # of those that answer
    lost: bool = False  # too few answer in time: the round changes nothing


@dataclass
class Outcome:
    """The result of a round's lanes, merged in lane order, and what the run's options add to it."""

    draw: Draw
    partial: PartialSum  # metrics
    aggregate: Aggregate
    lanes: list[LaneResult]
    server: Update | None
    down_bytes: int
    settings: Mapping[str, float]  # of the broadcast
    cohort: int  # clients whose part in the run ends in this round: they answered, or never will
    dropped: int  # of these, without an answer
    row: dict[str, float | None] = field(default_factory=dict)  # columns of the round's row
    totals: dict[str, float] = field(default_factory=dict)  # totals of the run after the round
    progress: dict[str, Any] = field(default_factory=dict)  # fields of `Progress` after the round
    tables: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)  # rows of tables in the run folder

    @property
    def failures(self) -> list[Failure]:
        return [failure for lane in self.lanes for failure in lane.failures]

    @property
    def succeeded(self) -> int:
        return sum(len(lane.reports) for lane in self.lanes)

    def times(self) -> dict[str, float]:
        """Seconds by phase, summed over the client actors, as columns of the round's row."""
        return {f"time/{phase}_actors_s": sum(lane.seconds[phase] for lane in self.lanes) for phase in PHASES}
