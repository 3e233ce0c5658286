"""The mechanism of a run: noise in the sum of a round's clipped updates, and bounds that adapt.

Noise is seeded by name, so a simulation repeats its noise. A deployment must draw noise that nobody can repeat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedray.core.privacy.clipping import Bounds, Clipping
from fedray.core.privacy.guarantee import Guarantee, scaled
from fedray.core.privacy.settings import Local, Private, Skellam
from fedray.core.privacy.skellam import Encoding, Numbers, Signs, planned
from fedray.core.seeds import Name, numpy_generator
from fedray.core.types import Vector

ROOM = 1 << 29  # bytes for the draws of the last rounds; if they do not fit, they are drawn again
COUNT_SHARE = 20  # the noise in the count for an adaptive bound is cohort / 20 (Andrew et al., 2021)


@dataclass(frozen=True)
class Gathered:
    """What the clients of a round have sent."""

    total: Vector | Numbers | None  # the sum of clipped updates, or of whole numbers; None: nobody answered
    clipped: npt.NDArray[np.int64]  # for each group, the clients whose updates were scaled down
    answered: int  # clients that answered
    cohort: int  # clients, including those that did not answer


@dataclass(frozen=True)
class Released:
    """What a round releases, and its columns in the row of metrics.jsonl."""

    mean: Vector | None  # of the cohort's updates, with noise; None: secure aggregation could not open their sum
    bounds: Bounds  # of the next round
    row: Mapping[str, float]


@dataclass(frozen=True)
class Mechanism:
    """A kind of privacy, with the numbers that follow from the run.

    `noise`: z, the standard deviation of the noise in the sum of updates, as a multiple of the bound C. `cohort`: the
    expected number of clients in a round, by which the sum is divided whoever answers. `weights`: w_0 .. w_(p-1), the
    weights of the last rounds' draws in a round's noise. `guarantee`: its account; None only in tests. `kept`: the
    draws of the last rounds; a mechanism made by `replace` has the same dictionary.
    """

    settings: Private
    noise: float
    cohort: float
    weights: tuple[float, ...] = (1.0,)
    guarantee: Guarantee | None = None
    kept: dict[tuple[int, Name, int], Vector] = field(default_factory=dict, compare=False, repr=False)

    @property
    def claimed(self) -> float:
        """How many clients a round has in the federation that the run stands for."""
        return self.settings.as_if.cohort or self.cohort

    def simulated_noise(self, groups: int) -> float:
        """z in the simulation: the mean of the simulated cohort gets the noise of the claimed cohort's mean.

        With adaptive bounds, the noisy counts of all groups use a part of z and leave (z^-2 - H (2 sigma_b)^-2)^(-1/2)
        (Andrew et al., 2021). ValueError: they leave nothing.
        """
        noise = self.noise
        if self.settings.clip.kind == "adaptive" and noise:
            left = noise**-2 - groups * (2 * self.count_noise) ** -2
            if left <= 0:
                raise ValueError(
                    f"the noisy counts of {groups} adaptive bounds spend more than noise {noise:.4g} allows: raise "
                    "privacy.clip.count_noise, or set privacy.clip.layers=global"
                )
            noise = left**-0.5
        return noise * scaled(self.settings, self.cohort)

    @property
    def count_noise(self) -> float:
        """sigma_b: standard deviation, in clients, of the noise of each group's count of clients within their bound."""
        return self.settings.clip.count_noise or self.claimed / COUNT_SHARE

    def encoding(self, size: int, cohort: int) -> Encoding | None:
        """Skellam: how updates of `size` numbers become whole numbers in a round of `cohort` clients.

        None: another kind, or an empty cohort. ValueError: the sum does not fit.
        """
        if not isinstance(skellam := self.settings, Skellam) or not cohort:
            return None
        return planned(skellam, self.simulated_noise(1), size, cohort)

    def release(self, gathered: Gathered, clipping: Clipping, bounds: Bounds, seed: Name, round: int) -> Released:
        """The mean of a round's updates, with noise. `seed`: the run's; seed and round name the noise."""
        answered = gathered.answered
        row = shown("bound", clipping.names, bounds)
        row |= shown("clipped", clipping.names, gathered.clipped / max(answered, 1))
        if isinstance(self.settings, Skellam):
            mean, more = self._opened(self.settings, gathered, clipping.size, seed, round)
        else:
            mean, more = self._noisy(gathered, clipping.size, bounds, seed, round)
        if self.settings.clip.kind == "fixed":
            return Released(mean, bounds, more | row)
        share = self.share_within(answered - gathered.clipped, answered, seed, round)
        row |= shown("within", clipping.names, share)
        return Released(mean, self.adapted(bounds, share), more | row)

    def _noisy(
        self, gathered: Gathered, size: int, bounds: Bounds, seed: Name, round: int
    ) -> tuple[Vector, dict[str, float]]:
        deviation = self.deviation(bounds, gathered.answered)
        noise: Vector = np.float32(deviation) * self.draw(size, seed, round)
        spread = deviation * self.growth(round)
        signal = np.zeros_like(noise) if gathered.total is None else gathered.total.astype(np.float32, copy=False)
        norm = float(np.sqrt(np.square(signal, dtype=np.float64).sum()))
        return (signal + noise) / np.float32(self.cohort), self._row(spread, norm, size)

    def _opened(
        self, settings: Skellam, gathered: Gathered, size: int, seed: Name, round: int
    ) -> tuple[Vector | None, dict[str, float]]:
        """The mean of whole numbers; None if secure aggregation cannot open the sum. The clients' noise is one draw."""
        encoding, secure = self.encoding(size, gathered.cohort), settings.secure(gathered.cohort)
        here = np.arange(gathered.cohort) < gathered.answered  # who answers makes no difference on a random ring
        ring = numpy_generator(seed, "privacy ring", round)
        if encoding is None or gathered.total is None or not secure.opens(here, ring):
            return None, {"privacy/opened": 0.0}
        total = gathered.total.astype(np.int64)
        noise = encoding.noise_of(gathered.answered, numpy_generator(seed, "privacy noise", round))
        signs = rotation(encoding, seed, round)
        row = self._row(encoding.deviation(gathered.answered), encoding.norm(total), size)
        return encoding.decode(total + noise, signs) / np.float32(self.cohort), row | {"privacy/opened": 1.0}

    def _row(self, deviation: float, norm: float, size: int) -> dict[str, float]:
        """A round's noise in each of `size` numbers of the mean, and the norm of the signal over that of the noise."""
        row = {"privacy/noise_std": deviation / self.cohort}
        return row | {"privacy/snr": norm / (deviation * math.sqrt(size))} if deviation else row

    def growth(self, round: int) -> float:
        """Standard deviation of a round's noise over that of its own draw: earlier draws are in it (`weights`)."""
        return float(np.sqrt(np.square(self.weights[: round + 1]).sum()))

    def deviation(self, bounds: Bounds, answered: int) -> float:
        """Standard deviation of the noise in each number of the sum. Local: each client that answered adds noise."""
        one = self.simulated_noise(len(bounds)) * float(np.sqrt(np.square(bounds).sum()))
        return one * math.sqrt(answered) if isinstance(self.settings, Local) else one

    def draw(self, size: int, seed: Name, round: int) -> Vector:
        """The noise of a round: the weighted sum of its own draw (standard deviation 1) and those of earlier rounds."""
        noise = np.zeros(size, np.float32)
        for back, weight in enumerate(self.weights[: round + 1]):
            noise += np.float32(weight) * self._drawn(size, seed, round - back)
        return noise

    def _drawn(self, size: int, seed: Name, round: int) -> Vector:
        """The draw that a round's name seeds. The draws of the last rounds stay in `kept` if they fit into `ROOM`."""
        name = (size, seed, round)
        if (drawn := self.kept.get(name)) is None:
            drawn = numpy_generator(seed, "privacy noise", round).standard_normal(size, np.float32)
            if 1 < len(self.weights) <= ROOM / drawn.nbytes:
                for old in [old for old in self.kept if old[:2] != name[:2] or old[2] + len(self.weights) <= round]:
                    del self.kept[old]
                self.kept[name] = drawn
        return drawn

    def share_within(
        self, within: npt.NDArray[np.int64], answered: int, seed: Name, round: int
    ) -> npt.NDArray[np.float64]:
        """b~, the share of clients within the bound of each group, with noise: float64 [groups].

        A client adds 1/2 or -1/2 to the count, so that whoever does not answer adds nothing.
        """
        noise = numpy_generator(seed, "privacy count", round).standard_normal(len(within))
        return (within - answered / 2) / self.cohort + self.count_noise * noise / self.claimed + 0.5

    def adapted(self, bounds: Bounds, share: npt.NDArray[np.float64]) -> Bounds:
        """The bounds of the next round: C <- C exp(-eta (b~ - gamma)); `share`: b~."""
        clip = self.settings.clip
        return bounds * np.exp(-clip.step * (share - clip.quantile))


def shown(name: str, groups: Sequence[str], values: npt.NDArray[np.float64]) -> dict[str, float]:
    """A value of each group as columns of a row: `privacy/NAME|GROUP`, or `privacy/NAME` if there is one group."""
    if len(groups) == 1:
        return {f"privacy/{name}": float(values[0])}
    return {f"privacy/{name}|{group}": float(value) for group, value in zip(groups, values, strict=True)}


def rotation(encoding: Encoding, seed: Name, round: int) -> Signs:
    """Skellam: the signs by which all clients of a round rotate their updates."""
    return encoding.signs(numpy_generator(seed, "privacy rotation", round))
