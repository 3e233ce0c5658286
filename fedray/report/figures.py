"""Descriptions of figures: plain data, stored in sweep.json as {"kind": "curves", ...}; `drawing` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedray.config.schema import build, plain
from fedray.config.source import Source
from fedray.core.ranges import Part, Ranged, one_of
from fedray.core.settings import kind_of, kinds
from fedray.report.words import of_clients, unit

# What curves are drawn over -> the label of the axis.
AXES = {
    "round": "round",
    "hours": "virtual hours",
    "device_hours": "hours of all devices",
    "energy": "energy of all devices (Wh)",
    "visits": "visits of clients",
    "steps": "gradient steps",
    "bytes": "traffic (GB)",
}
COUNTED = ("round", "visits", "steps")  # axes of whole numbers


class Figure:
    """The description of one figure."""

    def described(self) -> dict[str, Any]:
        """The description as a JSON object."""
        return {"kind": kind_of(self, KINDS), **plain(self)}

    def parts(self) -> list[Figure]:
        """The figures to draw for it, one per picture."""
        return [self]


@dataclass(frozen=True)
class Curves(Figure, Ranged):
    """Metrics over the rounds: a line per group, the mean over its runs, with a band (range, or one SD each way).

    Metrics of several units get a picture each. Round 0 is the seed model, if it was scored. `over` puts each round at
    what the runs had spent by then: "visits" of clients, gradient "steps", "bytes"; with devices also virtual "hours",
    "device_hours" and "energy".
    """

    metrics: tuple[str, ...]
    title: str = ""
    smooth: Part = 0.0  # weight of the past in a moving average, such as 0.8
    last: int | None = None  # show this many rounds at the end; None: all
    log: bool = False
    # A dashed line: at the seed model's score ("seed"), at the score of the group with this label, or at a number.
    baseline: str | float | None = None
    band: str = one_of(("range", "sd"))
    over: str = one_of(AXES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.metrics:
            raise ValueError("metrics: name at least one, such as dev/wer")

    def parts(self) -> list[Figure]:
        units = dict.fromkeys(map(unit, self.metrics))
        return [replace(self, metrics=tuple(name for name in self.metrics if unit(name) == each)) for each in units]


@dataclass(frozen=True)
class Trend(Figure):
    """A metric against a numeric key of the configuration, with the range over runs.

    One line per value of the key `by` and of the other swept keys.
    """

    key: str
    metric: str = "test/wer"
    by: str | None = None
    log: bool = False  # logarithmic axis of the key
    percent: bool = False  # the key is a share: show it in percent
    title: str = ""
    baseline: str | float | None = None


@dataclass(frozen=True)
class Bars(Figure):
    """A metric of each group with its bootstrap interval, or the range over runs if there are no predictions."""

    metric: str = "test/wer"
    title: str = ""


@dataclass(frozen=True)
class Scatter(Figure):
    """For random searches: a metric against each key, a point per run."""

    keys: tuple[str, ...]
    metric: str = "dev/wer"
    log: bool | None = None  # logarithmic axes of the keys; None: if the values span more than a factor of 30
    title: str = ""

    def __post_init__(self) -> None:
        if not self.keys:
            raise ValueError("keys: name at least one, such as algorithm.alpha")


@dataclass(frozen=True)
class Speakers(Figure):
    """The rate of each speaker, sorted: who gains, and who is left behind."""

    metric: str = "test/wer"
    title: str = ""


@dataclass(frozen=True)
class Personal(Figure):
    """Each client's personal score, sorted, with the score of the shared model alone in grey.

    The run needs `evaluation.personal_final`.
    """

    metric: str = "personal/test/wer"
    title: str = ""

    def __post_init__(self) -> None:
        if not of_clients(self.metric):
            raise ValueError(f"metric: choose a personal score, such as personal/test/wer, not {self.metric!r}")


@dataclass(frozen=True)
class Phases(Figure):
    """The time of a round by phase."""

    title: str = ""


@dataclass(frozen=True)
class Participation(Figure):
    """A histogram of the number of rounds that a client took part in."""

    title: str = ""


@dataclass(frozen=True)
class Labels(Figure):
    """The rate of each label, such as a dialect: who gains, and who loses."""

    metric: str = "test/wer"
    title: str = ""


@dataclass(frozen=True)
class Trips(Figure):
    """How the trips of devices end, and how long they take, by class of devices."""

    title: str = ""


@dataclass(frozen=True)
class Staleness(Figure):
    """A histogram of staleness: how many rounds behind the model was that an update started from."""

    title: str = ""


@dataclass(frozen=True)
class Fairness(Figure):
    """The shares of updates that count and of devices, by class of devices, with Jain's index."""

    title: str = ""


@dataclass(frozen=True)
class Retrievals(Figure):
    """FedMem: the dev score of each k, lambda and temperature (`algorithm.costs`), mean over clients and runs."""

    title: str = ""


@dataclass(frozen=True)
class Audits(Figure):
    """How well an attacker guesses: the true-positive rate against the false-positive rate, from `audit`."""

    title: str = ""


@dataclass(frozen=True)
class Inversions(Figure):
    """True log-mels and what an attacker reconstructs of them from updates, from `audit.kind=inversion`."""

    title: str = ""


KINDS: dict[str, type[Figure]] = {
    "curves": Curves,
    "trend": Trend,
    "bars": Bars,
    "scatter": Scatter,
    "speakers": Speakers,
    "personal": Personal,
    "phases": Phases,
    "participation": Participation,
    "labels": Labels,
    "trips": Trips,
    "staleness": Staleness,
    "fairness": Fairness,
    "retrievals": Retrievals,
    "audits": Audits,
    "inversions": Inversions,
}


@dataclass(frozen=True)
class _Section:
    figure: Figure = kinds(KINDS)


def from_description(description: Mapping[str, Any], where: str) -> Figure:
    """The figure of a description by `described`. ValueError, beginning with `where`: an unknown kind or field."""
    section = build(_Section, Source({"figure": dict(description)}, {"": where}))
    return section.figure
