"""Small populations of devices whose trip times can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedray.core.devices.availability import Anytime, Availability, Windows, windows_of
from fedray.core.devices.clock import Clock
from fedray.core.devices.settings import BufferedClock, ClassDevices, DeviceClass, RoundsClock
from fedray.core.devices.state import ClockState, Step
from fedray.core.devices.table import Devices, of_classes, of_rows
from fedray.core.devices.trips import SECOND, Load, Trip


def load(client: int, first: bool) -> Load:
    """The load of a trip that transfers no bytes and computes one utterance."""
    return Load(0, 0, 1.0)


def devices(seconds: Sequence[float], availability: Availability | None = None, **columns: float) -> Devices:
    """Devices whose client i computes for `seconds[i]` [s]. `columns`: other numbers of all devices; rates: 8 bit/s."""
    size = len(seconds)
    numbers = {"down": 8.0, "up": 8.0, "latency": 0.0, "watts": 0.0, "radio": 0.0} | columns
    table = {"seconds": np.array(seconds, np.float64)} | {name: np.full(size, value) for name, value in numbers.items()}
    made = of_rows(np.arange(size, dtype=np.int32), table, ["all"] * size, availability or Anytime())
    made.columns["lost"][:] = columns.get("lost", 0.0)  # type: ignore[index]
    return made


def spread(
    population: int, sigma: float, seed: int = 0, availability: Availability | None = None, **of: float
) -> Devices:
    """Devices of one class; the median device takes 60 s per utterance."""
    numbers = {"seconds": 60.0, "down": 1e6, "up": 1e6} | of
    settings = ClassDevices({"phone": DeviceClass(**numbers)}, spread=sigma)
    return of_classes(settings, seed, population, availability or Anytime())


def windows(*each: Sequence[tuple[float, float]], period: float | None = None) -> Windows:
    """Windows in which client i can take part: (start, end) of `each[i]` [s]."""
    rows = [(f"{client:03d}", *window) for client, own in enumerate(each) for window in own]
    names, starts, ends = zip(*rows, strict=True)
    return windows_of(list(names), np.array(starts, np.float64), np.array(ends, np.float64), period)[1]


def clock(settings: RoundsClock | BufferedClock, of: Devices, size: int = 1, **options: object) -> Clock:
    return Clock(settings, of, names(len(of)), 0, size, **options)  # type: ignore[arg-type]


def names(population: int) -> list[str]:
    return [f"client-{i:03d}" for i in range(population)]


def played(clock: Clock, steps: int, store: bool = False) -> list[Step]:
    """Play `steps` steps. `store`: convert the state to arrays and back after each. Clients report 1 example."""
    state, found = clock.start(), []
    for number in range(steps):
        step, state = clock.simulate(state, number, load, frozenset())
        state = clock.heard(state, step, {trip.client: {"examples": 1.0, "loss": 1.0} for trip in step.arrived})
        state = ClockState.of(state.arrays()) if store else state
        found.append(step)
    return found


def clients(trips: Sequence[Trip]) -> list[int]:
    return [trip.client for trip in trips]


def ends(trips: Sequence[Trip]) -> list[float]:
    return [trip.end / SECOND for trip in trips]
