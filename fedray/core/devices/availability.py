"""When devices can take part: a pure function of device and time.

Times are microseconds since midnight of the first day.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
import numpy.typing as npt

from fedray.core.devices.trips import SECOND
from fedray.core.ranges import Amount, Positive, Range, Ranged
from fedray.core.seeds import numpy_generator

Integers = npt.NDArray[np.int64]
HOUR = 3600 * SECOND
DAY = 24 * HOUR
Hour = Annotated[float, Range(0, 24, "most")]
DayLength = Annotated[float, Range(0, 24, "least")]
LATEST = 1e11  # s, the latest time in windows from a file
FOREVER = 2**62  # us; the end of a window without end, and the period of windows that come once


class Availability(ABC):
    """The windows of time in which each client's device can take part."""

    @abstractmethod
    def until(self, client: int, now: int) -> int | None:
        """The end of the client's window around `now`; None: it cannot take part."""

    @abstractmethod
    def within(self, start: int, end: int) -> Integers | None:
        """The clients with a window that overlaps [start, end), in order; None: everybody."""

    @abstractmethod
    def share(self, now: int) -> float:
        """The approximate share of the clients that can take part."""

    @abstractmethod
    def following(self, now: int, without: Container[int]) -> tuple[int, list[int]] | None:
        """The next moment after `now` when windows of clients not in `without` begin, and the clients; None: never."""


class Anytime(Availability):
    """Every device can take part at any time."""

    def until(self, client: int, now: int) -> int:
        return FOREVER

    def within(self, start: int, end: int) -> None:
        return None

    def share(self, now: int) -> float:
        return 1.0

    def following(self, now: int, without: Container[int]) -> None:
        return None


@dataclass(frozen=True)
class Windows(Availability):
    """Windows that repeat with a period. A device has one or more, and each client has a device.

    Windows are stored device by device, sorted by their start. The windows of a device neither overlap nor touch.
    """

    device: npt.NDArray[np.int32]  # the device of each client
    first: npt.NDArray[np.int32]  # the position of each device's first window, and last the number of all windows
    start: Integers  # us, of each window, in [0, period)
    length: Integers  # us, of each window, above 0
    period: int = FOREVER  # us

    def until(self, client: int, now: int) -> int | None:
        device = self.device[client]
        low, high = self.first[device], self.first[device + 1]
        if high - low == 1:
            window = low
        else:  # the last window that has begun; before the first one, the last of the previous period
            begun = int(self.start[low:high].searchsorted(now % self.period, "right"))
            window = low + (begun - 1) % (high - low)
        length = int(self.length[window])
        if length >= self.period:
            return FOREVER
        since = (now - int(self.start[window])) % self.period
        return now + length - since if since < length else None

    def within(self, start: int, end: int) -> Integers:
        low = start % self.period
        high, ends = low + end - start, self.start + self.length
        here = (self.start < high) & (ends > low)
        here |= (ends > low + self.period) | (self.start + self.period < high)  # of the previous period or the next
        if len(here) >= len(self.first):  # several windows per device
            counts = np.concatenate([[0], np.cumsum(here)])
            here = counts[self.first[1:]] > counts[self.first[:-1]]
        return np.flatnonzero(here[self.device])

    def share(self, now: int) -> float:
        starts, ends, at = self._sorted.starts, self._sorted.ends, now % self.period
        begun, ended = int(starts.searchsorted(at, "right")), int(ends.searchsorted(at, "right"))
        return (begun - ended + self._sorted.wrapped) / (len(self.first) - 1)

    def following(self, now: int, without: Container[int]) -> tuple[int, list[int]] | None:
        starts, owners = self._sorted.starts, self._sorted.owners
        base, here = now - now % self.period, int(starts.searchsorted(now % self.period, "right"))
        turns = ((0, range(here, len(starts))), (self.period if self.period < FOREVER else None, range(here)))
        for turn, positions in turns:
            if turn is None:
                break
            moment, found = -1, list[int]()
            for position in positions:
                if found and int(starts[position]) != moment:
                    break
                moment = int(starts[position])
                found += [client for client in self._clients_of(int(owners[position])) if client not in without]
            if found:
                return base + turn + moment, found
        return None

    def _clients_of(self, device: int) -> list[int]:
        places = self._sorted.places
        clients: list[int] = self._sorted.clients[places[device] : places[device + 1]].tolist()
        return clients

    @cached_property
    def _sorted(self) -> _Sorted:
        order = np.argsort(self.start, kind="stable")
        owners = np.repeat(np.arange(len(self.first) - 1, dtype=np.int32), np.diff(self.first))[order]
        clients = np.argsort(self.device, kind="stable").astype(np.int32)
        places = self.device[clients].searchsorted(np.arange(len(self.first), dtype=np.int32)).astype(np.int32)
        ends = self.start + self.length
        wrapped = int((ends > self.period).sum())
        ends[ends > self.period] -= self.period
        return _Sorted(self.start[order], owners, np.sort(ends), wrapped, clients, places)


@dataclass(frozen=True)
class _Sorted:
    """Windows by their start and by their end, and the clients of each device."""

    starts: Integers
    owners: npt.NDArray[np.int32]  # the devices of `starts`
    ends: Integers
    wrapped: int  # windows that reach into the next period
    clients: npt.NDArray[np.int32]  # by device
    places: npt.NDArray[np.int32]  # where the clients of each device begin, and last the number of all clients


@dataclass(frozen=True)
class Always:
    """Every device can take part at any time."""


@dataclass(frozen=True)
class Nightly(Ranged):
    """Each device can take part once a day: at night, while it is charged. The run begins at midnight."""

    start: Hour = 23.0  # hours after midnight at which the windows begin on average
    spread: Amount = 2.0  # hours, the standard deviation of their starts over devices
    hours: DayLength = 7.0  # hours, the average length of the windows
    hours_spread: Amount = 1.0  # hours, the standard deviation of their lengths

    def windows(self, seed: int, population: int) -> Windows:
        """Draw a window for each client, with one generator for all clients in the order of client_ids()."""
        generator = numpy_generator(seed, "devices", "nightly")
        start = self.start + self.spread * generator.standard_normal(population)
        hours = self.hours + self.hours_spread * generator.standard_normal(population)
        return Windows(
            device=np.arange(population, dtype=np.int32),
            first=np.arange(population + 1, dtype=np.int32),
            start=np.rint(start * HOUR).astype(np.int64) % DAY,
            length=np.rint(np.clip(hours, 1 / 60, 24) * HOUR).astype(np.int64),
            period=DAY,
        )


@dataclass(frozen=True)
class TableAvailability(Ranged):
    """Windows from a file. Devices of a table have the windows of their name; other devices get windows at random."""

    file: str  # a Parquet file with the columns device (a name), start_s and end_s (seconds from midnight): windows
    period_s: Positive | None = None  # seconds after which all windows repeat; null: they come once


AVAILABILITY: dict[str, type] = {"always": Always, "nightly": Nightly, "table": TableAvailability}


def windows_of(
    names: list[str], start_s: npt.NDArray[np.float64], end_s: npt.NDArray[np.float64], period_s: float | None
) -> tuple[list[str], Windows]:
    """The names of the devices of a table, sorted, and their windows: client i has device i.

    `names`: the device of each window. ValueError names a device whose windows are wrong.
    """
    devices, owner = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
    if len(names) and max(np.abs(start_s).max(), np.abs(end_s).max()) > LATEST:
        raise ValueError(f"windows must begin and end within {LATEST:.0e} seconds")
    if period_s is not None and period_s > LATEST:
        raise ValueError(f"period_s must be at most {LATEST:.0e} seconds, not {period_s:g}")
    period = FOREVER if period_s is None else round(period_s * SECOND)
    start, end = (np.rint(np.asarray(times) * SECOND).astype(np.int64) for times in (start_s, end_s))

    def check(wrong: npt.NDArray[np.bool_], what: str) -> None:
        if wrong.any():
            where = int(np.flatnonzero(wrong)[0])
            seconds = f"{start[where] / SECOND:g} s to {end[where] / SECOND:g} s"
            raise ValueError(f"the window of device {str(devices[owner[where]])!r} from {seconds} {what}")

    check(end <= start, "ends before it has begun")
    check((start < 0) | (start >= period), f"must begin at 0 s or later, and before the period ends ({period_s} s)")
    order = np.lexsort((start, owner))
    owner, start, end = owner[order].astype(np.int64), start[order], end[order]
    first = owner.searchsorted(np.arange(len(devices) + 1)).astype(np.int32)
    following = np.roll(start, -1)
    last = first[1:] - 1
    following[last] = start[first[:-1]] + period
    alone = np.diff(first)[owner] == 1
    check((end >= following) & ~(alone & (end == following)), "overlaps or touches the next one: join them")
    return devices.tolist(), Windows(np.arange(len(devices), dtype=np.int32), first, start, end - start, period)
