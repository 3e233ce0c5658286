"""The virtual clock: who arrives when. It trains nothing and knows nothing of models.

Time is an integer number of microseconds from 0, which is midnight. Everything follows from names, so that a run that
resumes from a state plays the same trips.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedray.core.devices.oort import OortState, Report
from fedray.core.devices.settings import BufferedClock, RoundsClock
from fedray.core.devices.table import Devices
from fedray.core.devices.trips import Load, Trip

Arrays = dict[str, npt.NDArray[np.int64] | npt.NDArray[np.float64]]


@dataclass(frozen=True)
class ClockState:
    """All that the clock needs between two steps."""

    now: int = 0  # us
    open: tuple[Trip, ...] = ()  # trips under way, sorted; none between two rounds
    oort: OortState | None = None  # what `sampling: oort` has learnt of clients

    def arrays(self) -> Arrays:
        """The state as vectors of int64 or float64, of different lengths."""
        raise NotImplementedError

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> ClockState:
        """The state from what `arrays` returned."""
        raise NotImplementedError


@dataclass(frozen=True)
class Step:
    """What happens until the server's model changes: a round, or a step of the buffered clock."""

    number: int  # from 0; also the version of the model that trips of this step start from
    started: int  # us; the moment at which the step before ended
    ended: int  # us; the moment at which the next model is there
    begun: tuple[Trip, ...]  # trips that start in this step, in their order: these clients get the model
    arrived: tuple[Trip, ...]  # in order of arrival: these clients are trained
    lost: tuple[Trip, ...]  # their devices gave up, or left
    late: tuple[Trip, ...]  # stopped when the round ended
    aborted: tuple[Trip, ...]  # stopped because they were too far behind
    complete: bool  # False: too few arrive, the model stays as it is

    def behind(self, trip: Trip) -> int:
        """How many steps an arrival's model is behind."""
        return self.number - trip.version


class Clock:
    """Plays the steps of a run.

    `ids`: client_ids(); a client is named by its position there. `size`: clients of a cohort, `cohort.count(population)`
    (rounds). `sampling`: of `cohort`: uniform, weighted or oort. `cost`: the cost of a client by its position, for
    weighted cohorts.
    """

    def __init__(
        self,
        settings: RoundsClock | BufferedClock,
        devices: Devices,
        ids: Sequence[str],
        seed: int,
        size: int,
        sampling: str = "uniform",
        cost: Callable[[int], float] | None = None,
    ) -> None:
        raise NotImplementedError

    def start(self) -> ClockState:
        """The state before the first step."""
        raise NotImplementedError

    def play(
        self, state: ClockState, number: int, load: Callable[[int, bool], Load], seen: Container[int]
    ) -> tuple[Step, ClockState]:
        """Step `number`, and the state after it.

        `load(client, first)`: what a trip of the client moves and computes; `first`: its first trip. `seen`: clients
        that arrived in an earlier step. ValueError: nobody is available for seven days.
        """
        raise NotImplementedError

    def heard(self, state: ClockState, step: Step, reports: Mapping[int, Report]) -> ClockState:
        """The state after what the clients of a step report. It changes for `sampling: oort` only.

        A client that fails has no report.
        """
        raise NotImplementedError
