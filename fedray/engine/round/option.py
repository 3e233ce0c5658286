"""What changes rounds of plain averaging: private rounds, device time, audits. `fedray.engine.options` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedray.core.types import Broadcast
from fedray.engine.lane.lane import Lane
from fedray.engine.round.downlink import Posted
from fedray.engine.round.outcome import Draw, Outcome
from fedray.runs.folder import Progress, RunFolder


class Option:
    """Hooks of a round, in the order in which `Rounds` calls them. Each leaves the round as it is.

    An option keeps nothing between rounds that a checkpoint lacks: what it needs again is in `Progress`.
    """

    def words(self) -> str | None:
        """What to tell the user before the first round."""
        return None

    def resume(self, progress: Progress) -> None:
        """Continue from a checkpoint."""

    def draw(self, progress: Progress) -> Draw | None:
        """Who takes part in the next round; None: as without this option."""
        return None

    def guard(self, lanes: Sequence[Lane], progress: Progress, broadcast: Broadcast, cohort: int) -> Sequence[Lane]:
        """The lanes of a round of `cohort` clients, with what their updates must keep to."""
        return lanes

    def posted(self, lane: Lane) -> Posted | None:
        """The broadcast that a lane trains from; None: that of its round."""
        return None

    def finish(self, progress: Progress, outcome: Outcome, broadcast: Broadcast) -> None:
        """Change what the lanes gave: the mean, columns of the round's row, totals, what the next round needs."""

    def lost(self) -> None:
        """Objects in the object store were lost: forget all that are there."""

    def results(self, progress: Progress, folder: RunFolder) -> Mapping[str, Any]:
        """What to add to results.json at the end of the run."""
        return {}
