"""The devices of all clients, as vectors over client_ids()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedray.core.devices.availability import Availability
from fedray.core.devices.settings import ClassDevices
from fedray.core.devices.trips import Load, Trip
from fedray.core.seeds import numpy_generator

Floats = npt.NDArray[np.float64]
COLUMNS = ("seconds", "down", "up", "latency", "watts", "radio", "lost")  # see DeviceClass


@dataclass(frozen=True)
class Devices:
    """What each client's device can do: a row of numbers, times the device's own factors.

    A row is a class, or a row of a table. Each draw uses one named generator for all clients, in the order of
    client_ids(), so a million devices take a fraction of a second.
    """

    row: npt.NDArray[np.int32]  # the row of each client
    slow: Floats  # of each client: the factor on its seconds of computing
    narrow: Floats  # of each client: the factor on its seconds of transfer
    columns: Mapping[str, Floats]  # column -> a number for each row
    classes: tuple[str, ...]
    class_of_row: npt.NDArray[np.int32]  # the position of each row's class in `classes`
    availability: Availability

    def __len__(self) -> int:
        return len(self.row)

    def class_of(self, client: int) -> str:
        """The name of a client's class."""
        return self.classes[int(self.class_of_row[self.row[client]])]

    def lost(self, client: int) -> float:
        """The probability that a client's device gives up on a trip."""
        return float(self.columns["lost"][self.row[client]])

    def phases(self, client: int, load: Load) -> tuple[float, float, float, float]:
        """Seconds of latency, download, computing and upload of a trip."""
        row, columns, narrow = self.row[client], self.columns, float(self.narrow[client])
        return (
            float(columns["latency"][row]),
            8 * load.down * narrow / float(columns["down"][row]),
            load.utterances * float(self.slow[client]) * float(columns["seconds"][row]),
            8 * load.up * narrow / float(columns["up"][row]),
        )

    def watt_hours(self, trip: Trip) -> float:
        """Watt hours of a trip, up to the point where it ends."""
        return self.energy(trip.client, *trip.spent())

    def energy(self, client: int, compute: float, transfer: float) -> float:
        """Watt hours of so many seconds of computing and of transfer."""
        row = self.row[client]
        watts, radio = float(self.columns["watts"][row]), float(self.columns["radio"][row])
        return (watts * compute + radio * transfer) / 3600


def of_classes(
    settings: ClassDevices, seed: int, population: int, availability: Availability, values: Sequence[str] | None = None
) -> Devices:
    """Devices of the classes of a configuration. `values`: the class of each client, if `by` is set.

    ValueError names a value without a class.
    """
    names, classes = tuple(settings.classes), tuple(settings.classes.values())
    if values is None:
        shares = np.cumsum([one.share for one in classes])
        draws = numpy_generator(seed, "devices", "class").random(population) * shares[-1]
        row = np.minimum(shares.searchsorted(draws, "right"), len(names) - 1).astype(np.int32)
    else:
        places = {name: place for place, name in enumerate(names)}
        for value in values:
            if value not in places:
                raise ValueError(
                    f"devices.by: no class is named {value!r}, which is the {settings.by} of a client: add it to "
                    "devices.classes"
                )
        row = np.array([places[value] for value in values], np.int32)
    factors = [
        np.exp(settings.spread * numpy_generator(seed, "devices", name).standard_normal(population))
        if settings.spread
        else np.broadcast_to(1.0, population)
        for name in ("compute", "network")
    ]
    rows = [(one.seconds, one.down, one.up, one.latency, one.watts, one.radio, one.lost) for one in classes]
    columns = dict(zip(COLUMNS, np.array(rows, np.float64).T, strict=True))
    own = np.arange(len(names), dtype=np.int32)
    return Devices(row, factors[0], factors[1], columns, names, own, availability)


def rows_of(seed: int, population: int, rows: int, reuse: bool, what: str) -> npt.NDArray[np.int32]:
    """Draw the row of each client at random, each row at most once if that is possible.

    ValueError: there are fewer rows than clients, and `reuse` is not set. `what`: the rows, in words.
    """
    if rows < population and not reuse:
        raise ValueError(
            f"there are {rows:,} {what} for {population:,} clients: set devices.reuse=true, which lets several "
            "clients share one"
        )
    generator = numpy_generator(seed, "devices", "rows")
    turns = [generator.permutation(rows) for _ in range(-(-population // rows))]
    return np.concatenate(turns)[:population].astype(np.int32)


def of_rows(
    row: npt.NDArray[np.int32], columns: Mapping[str, Floats], classes: Sequence[str], availability: Availability
) -> Devices:
    """Devices of a table. `row`: of each client, from `rows_of`; `classes`: the class of each row."""
    one = np.broadcast_to(1.0, len(row))
    names, of_row = np.unique(np.array(classes, dtype=np.str_), return_inverse=True)
    columns = {**columns, "lost": np.zeros(len(classes))}
    return Devices(row, one, one, columns, tuple(names.tolist()), of_row.astype(np.int32), availability)


def jain(amounts: npt.ArrayLike) -> float:
    """Jain's index of fairness: (sum x)^2 / (n sum x^2), from 1 / n to 1; 1 if nobody has anything.

    Jain, Chiu, Hawe. A Quantitative Measure of Fairness and Discrimination. DEC-TR-301, 1984.
    """
    values = np.asarray(amounts, np.float64)
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (values.size * squares) if squares else 1.0
