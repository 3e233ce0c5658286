"""Who takes part in a round, and the result of the round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedray.core.sums import PartialSum
from fedray.core.types import Update
from fedray.engine.lane.aggregation import Aggregate
from fedray.engine.lane.lane import PHASES, Failure, Lane, LaneResult
from fedray.engine.options.virtual import SimulatedRound


@dataclass(frozen=True)
class Draw:
    """Who takes part in a round."""

    chosen: Sequence[str]  # all of them get the broadcast
    lanes: Sequence[Lane]  # of those that answer
    canaries: Sequence[str] = ()  # the canaries that answer, in an audit by directions: they are in no lane
    simulated: SimulatedRound | None = None  # with `devices`: what the clock has simulated

    @property
    def lost(self) -> bool:
        """Whether too few clients arrive in time, so that the round changes nothing."""
        return self.simulated is not None and not self.simulated.step.complete


@dataclass
class Outcome:
    """The result of a round's lanes, merged in lane order."""

    partial: PartialSum  # metrics
    aggregate: Aggregate
    lanes: list[LaneResult]
    server: Update | None
    cohort: int
    dropped: int
    down_bytes: int
    settings: Mapping[str, float]  # of the broadcast
    canaries: Sequence[str] = ()  # of an audit by directions
    simulated: SimulatedRound | None = None  # with `devices`: what the clock has simulated
    private: dict[str, float] = field(default_factory=dict)  # bounds of the next private round, for `Progress`
    private_row: Mapping[str, float] = field(default_factory=dict)  # columns of the round's row on privacy

    @property
    def lost(self) -> bool:
        """Whether too few clients arrived in time, so that the round changes nothing."""
        return self.simulated is not None and not self.simulated.step.complete

    @property
    def failures(self) -> list[Failure]:
        return [failure for lane in self.lanes for failure in lane.failures]

    @property
    def succeeded(self) -> int:
        return sum(len(lane.reports) for lane in self.lanes)

    def times(self) -> dict[str, float]:
        """Seconds by phase, summed over the client actors, as columns of the round's row."""
        return {f"time/{phase}_actors_s": sum(lane.seconds[phase] for lane in self.lanes) for phase in PHASES}
