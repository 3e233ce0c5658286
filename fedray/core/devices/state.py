"""The state of the clock between two steps, and the result of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedray.core.devices.oort import OortState
from fedray.core.devices.trips import ARRIVES, FATES, Trip

Arrays = dict[str, npt.NDArray[np.int64] | npt.NDArray[np.float64]]
OPEN, OORT = "open/", "oort/"  # prefixes of the names of vectors
FLOATS = ("work", "latency", "down", "compute", "up")  # the fields of a trip that are not integers


@dataclass(frozen=True, eq=False)
class ClockState:
    """All that the clock needs between two steps."""

    now: int = 0  # us
    open: tuple[Trip, ...] = ()  # trips under way, sorted; none between two rounds
    oort: OortState | None = None  # what `sampling: oort` has learnt about clients

    def arrays(self) -> Arrays:
        """The state as vectors of int64 or float64, of different lengths."""
        arrays: Arrays = {"now": np.array([self.now], np.int64)}
        for place, name in enumerate(Trip._fields):
            values = [FATES.index(trip.fate) if name == "fate" else trip[place] for trip in self.open]
            arrays[OPEN + name] = np.array(values, np.float64) if name in FLOATS else np.array(values, np.int64)
        if self.oort is not None:
            arrays |= {OORT + name: np.atleast_1d(np.array(value)) for name, value in vars(self.oort).items()}
        return arrays

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> ClockState:
        """Rebuild the state from what `arrays` returned."""
        columns = {name: arrays[OPEN + name].tolist() for name in Trip._fields}
        columns["fate"] = [FATES[fate] for fate in columns["fate"]]
        trips = tuple(map(Trip, *columns.values()))
        oort: dict[str, Any] = {name.removeprefix(OORT): arrays[name] for name in arrays if name.startswith(OORT)}
        if oort:
            oort |= {"percent": float(oort["percent"][0]), "gains": tuple(oort["gains"].tolist())}
        return cls(int(arrays["now"][0]), trips, OortState(**oort) if oort else None)


@dataclass(frozen=True)
class Step:
    """What happens until the server's model changes: a round, or a step of the buffered clock."""

    number: int  # from 0; also the version of the model that trips of this step start from
    started: int  # us; when the previous step ended
    ended: int  # us; when the next model is ready
    # trips that start in this step, in order, with the ends that they have if nobody stops them: the model is sent to
    # these clients
    begun: tuple[Trip, ...]
    arrived: tuple[Trip, ...]  # in order of arrival: these clients are trained
    lost: tuple[Trip, ...]  # their devices gave up, or left when their windows ended
    late: tuple[Trip, ...]  # stopped when the round ended
    aborted: tuple[Trip, ...]  # stopped because they were too far behind
    complete: bool  # False: too few arrived, and the model stays as it is

    def behind(self, trip: Trip) -> int:
        """How many steps an arrival's model is behind the newest model."""
        return self.number - trip.version

    def used(self, trip: Trip) -> bool:
        """Whether the update of a trip that ends in this step counts."""
        return self.complete and trip.fate == ARRIVES

    def decided(self) -> tuple[Trip, ...]:
        """The trips that end in this step, whatever their fate."""
        return self.arrived + self.lost + self.late + self.aborted
