"""What a report can draw: plain data, which sweep.json holds as {"kind": "curves", ...}. `drawing` draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedray.core import config as configuration
from fedray.core.config import Source, kind_of, kinds, plain

BANDS = ("range", "sd")


class Figure:
    """Anything that a report can draw."""

    def described(self) -> dict[str, Any]:
        """What JSON holds of it."""
        return {"kind": kind_of(self, KINDS), **plain(self)}


@dataclass(frozen=True)
class Curves(Figure):
    """Metrics over the rounds: a line a group, mean over its runs, with a band (least to most, or a standard deviation each way).

    The seed model's score, where there is one, is round 0.
    """

    metrics: tuple[str, ...]
    title: str = ""
    smooth: float = 0.0  # weight of the past in a moving average: 0.8
    last: int | None = None  # only so many rounds at the end
    log: bool = False
    baseline: str | float | None = None  # a dashed line: "seed" (the seed model), the score of a group by its label, or a number
    band: str = "range"

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ValueError("metrics: name at least one, such as dev/wer")
        if not 0 <= self.smooth < 1:
            raise ValueError(f"smooth: a weight from 0 to below 1, not {self.smooth}")
        if self.band not in BANDS:
            raise ValueError(f"band: choose from {', '.join(BANDS)}, not {self.band!r}")


@dataclass(frozen=True)
class Trend(Figure):
    """A result against a key that is a number, with the least and the most of the runs: a line for each value of another key, and of
    what else the sweep sweeps."""

    key: str
    metric: str = "test/wer"
    by: str | None = None
    log: bool = False  # the key's axis
    percent: bool = False  # the key is a share, shown in percent
    title: str = ""
    baseline: str | float | None = None


@dataclass(frozen=True)
class Bars(Figure):
    """A result of each group, with its bootstrap interval, or the least and the most of its runs where nothing can be drawn."""

    metric: str = "test/wer"
    title: str = ""


@dataclass(frozen=True)
class Scatter(Figure):
    """For random searches: a result against each key, a point a run."""

    keys: tuple[str, ...]
    metric: str = "dev/wer"
    log: bool | None = None  # the keys' axes; None: where the values span more than a factor of 30
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
class Own(Figure):
    """The score of each client's own model, sorted (`evaluation.own_final`); where what all share was scored alone too, that in grey."""

    metric: str = "own/test/wer"
    title: str = ""

    def __post_init__(self) -> None:
        if not self.metric.startswith("own/") or self.metric.count("/") != 2:
            raise ValueError(f"metric: one of clients' own models, such as own/test/wer, not {self.metric!r}")


@dataclass(frozen=True)
class Phases(Figure):
    """Where the time of a round goes."""

    title: str = ""


@dataclass(frozen=True)
class Participation(Figure):
    """How many clients took part in how many rounds."""

    title: str = ""


@dataclass(frozen=True)
class Retrievals(Figure):
    """FedMem: what each k, lambda and temperature costs on the clients' own dev (`algorithm.costs`), mean over clients and runs."""

    title: str = ""


KINDS: dict[str, type[Figure]] = {
    "curves": Curves,
    "trend": Trend,
    "bars": Bars,
    "scatter": Scatter,
    "speakers": Speakers,
    "own": Own,
    "phases": Phases,
    "participation": Participation,
    "retrievals": Retrievals,
}


@dataclass(frozen=True)
class _Section:
    figure: Any = kinds(KINDS, None)


def from_description(description: Mapping[str, Any], where: str) -> Figure:
    """The figure again. ValueError with `where` it stands, for a kind or a field that there is not."""
    section = configuration.build(_Section, Source({"figure": dict(description)}, {"": where}))
    if section.figure is None:
        raise ValueError(f"{where}: a figure has a kind: {', '.join(KINDS)}")
    return section.figure
