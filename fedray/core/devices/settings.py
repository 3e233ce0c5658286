"""The sections `devices` and `clock` of a configuration: which devices clients have, and how the server waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fedray.core.devices.availability import AVAILABILITY
from fedray.core.devices.staleness import STALENESS, Staleness
from fedray.core.ranges import Amount, Count, Natural, Part, Positive, Range, Ranged, Share, one_of
from fedray.core.settings import kinds

AtLeastOne = Annotated[float, Range(1)]


@dataclass(frozen=True)
class DeviceClass(Ranged):
    """A class of devices. Speeds and rates are those of its median device."""

    seconds: Positive  # seconds of one pass of training over one utterance
    down: Positive  # bits per second from the server to a device
    up: Positive  # bits per second from a device to the server
    share: Positive = 1.0  # share of the devices, relative to the shares of the other classes
    latency: Amount = 0.0  # seconds from the choice of a client until its download begins
    watts: Amount = 0.0  # power while a device computes
    radio: Amount = 0.0  # power, in watts, while a device receives or sends
    lost: Part = 0.0  # probability that a device gives up during a trip, at a random moment


@dataclass(frozen=True)
class NoDevices:
    """Clients take no time."""


@dataclass(frozen=True)
class ClassDevices(Ranged):
    """Devices of a few classes. Devices of one class differ by random factors."""

    classes: dict[str, DeviceClass]  # name -> what the devices of a class can do
    spread: Amount = 0.0  # sigma of the log-normal factors of a device: one for its computing, one for its network
    by: str | None = None  # a column of the manifest that names the class of each client; null: classes by their shares
    availability: Any = kinds(AVAILABILITY, "always")  # when devices can take part
    draw: Natural = 0  # another number gives clients other devices, and leaves all other draws as they are

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.classes:
            raise ValueError("classes must name at least one class of devices")


@dataclass(frozen=True)
class TableDevices(Ranged):
    """Devices from a file, one per row. Clients get rows at random."""

    # a Parquet file with the columns device (a name), seconds, down, up, latency, watts, radio (as in a class), and,
    # if there is one, class
    file: str
    reuse: bool = False  # whether several clients may have the same row, if there are fewer rows than clients
    availability: Any = kinds(AVAILABILITY, "always")  # when devices can take part
    draw: Natural = 0  # another number gives clients other devices, and leaves all other draws as they are


DEVICES: dict[str, type] = {"none": NoDevices, "classes": ClassDevices, "table": TableDevices}


@dataclass(frozen=True)
class RoundsClock(Ranged):
    """Rounds: the server chooses a cohort, and waits for it."""

    # how many clients are chosen, as a multiple of the cohort, at most all; the round ends when the cohort has arrived
    over: AtLeastOne = 1.0
    deadline: Positive | None = None  # seconds after which a round ends; null: it waits for the last client
    quorum: Share = 0.0  # share of the cohort that must arrive, or the round is lost
    # discard | partial: clients that would miss the deadline do the share of their work that fits
    late: str = one_of(("discard", "partial"))
    server_seconds: Amount = 0.0  # seconds that the server takes between two rounds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.late == "partial" and self.deadline is None:
            raise ValueError("late=partial needs a deadline: set clock.deadline")


@dataclass(frozen=True)
class BufferedClock(Ranged):
    """Asynchronous: the server takes a step after every few arrivals, whatever model they started from.

    Nguyen et al. Federated Learning with Buffered Asynchronous Aggregation (FedBuff). AISTATS 2022.
    """

    concurrency: Count  # clients that are on a trip at any moment
    buffer: Count  # arrivals after which the server takes a step
    # arrival: a client that arrives is replaced at once | step: clients are replaced when there is a new model
    refill: str = one_of(("arrival", "step"))
    staleness: Staleness = kinds(STALENESS, "polynomial")  # how much an update that started from an old model counts
    most: Natural = 20  # steps that an update may be behind; a trip that would be further behind is aborted
    server_seconds: Amount = 0.0  # seconds of a step, during which arrivals wait

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffer > self.concurrency:
            raise ValueError(
                f"buffer is {self.buffer}, but only concurrency={self.concurrency} clients train at once: a step could "
                "wait forever"
            )


CLOCKS: dict[str, type] = {"rounds": RoundsClock, "buffered": BufferedClock}
