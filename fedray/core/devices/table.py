"""The devices of all clients, as vectors over client_ids()."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedray.core.devices.availability import Availability
from fedray.core.devices.trips import Load, Trip


@dataclass(frozen=True)
class Devices:
    """What each client's device can do: a row of the columns, times factors of the device itself.

    Rows are classes, or the rows of a table.
    """

    row: npt.NDArray[np.int32]  # of each client
    slow: npt.NDArray[np.float64]  # of each client: the factor of its seconds of computing
    narrow: npt.NDArray[np.float64]  # of each client: the factor of its seconds of transfer
    columns: dict[str, npt.NDArray[np.float64]]  # seconds, down, up, latency, watts, radio, lost: a number for each row
    classes: tuple[str, ...]  # names of classes
    of_row: npt.NDArray[np.int32]  # the class of each row
    availability: Availability

    def class_of(self, client: int) -> str:
        """The name of a client's class."""
        raise NotImplementedError

    def phases(self, client: int, load: Load) -> tuple[float, float, float, float]:
        """Seconds of latency, download, computing and upload."""
        raise NotImplementedError

    def watt_hours(self, trip: Trip) -> float:
        """The energy of a trip, as far as it gets."""
        raise NotImplementedError
