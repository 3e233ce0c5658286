"""The mechanism of a run: noise in the sum of a round's clipped updates, and bounds that adapt.

The seeds are named, so a simulation repeats its noise. A deployment must draw noise that nobody can repeat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedray.core.privacy.clipping import Bounds, Clipping
from fedray.core.privacy.settings import Local, Private
from fedray.core.seeds import Name, numpy_generator
from fedray.core.types import Vector

COUNT_SHARE = 20  # the noise of an adaptive bound's count is a cohort / 20 (Andrew et al., 2021)


@dataclass(frozen=True)
class Released:
    """What a round releases, and what the run's row says of it."""

    mean: Vector  # of the cohort's updates, with noise
    bounds: Bounds  # of the next round
    row: Mapping[str, float]


@dataclass(frozen=True)
class Mechanism:
    """A kind of privacy, with the numbers that follow from the run.

    `noise`: z, the standard deviation of the noise in the sum of updates, as a multiple of the bound C. `cohort`: the
    expected clients of a round, by which the sum is divided whoever answers. `weights`: w_0 .. w_(p-1), the share that
    the draw of each of the last rounds has in a round's noise.
    """

    settings: Private
    noise: float
    cohort: float
    weights: tuple[float, ...] = (1.0,)

    @property
    def claimed(self) -> float:
        """The clients of a round of the federation that the run stands for."""
        return self.settings.as_if.cohort or self.cohort

    @property
    def count_noise(self) -> float:
        """sigma_b: standard deviation, in clients, of the noise of each group's count of clients within their bound."""
        return self.settings.clip.count_noise or self.claimed / COUNT_SHARE

    def release(
        self,
        total: Vector | None,
        clipping: Clipping,
        bounds: Bounds,
        clipped: npt.NDArray[np.int64],
        answered: int,
        seed: Name,
        round: int,
    ) -> Released:
        """The mean of a round's updates, with noise.

        `total`: the sum of the clipped updates; None: nobody answered, and there is noise all the same. `clipped`: for
        each group, the clients whose updates were scaled down. `seed`: of the run; with the round it names the noise.
        """
        deviation = self.deviation(bounds, answered)
        noise: Vector = np.float32(deviation) * self.draw(clipping.size, seed, round)
        signal = np.zeros_like(noise) if total is None else total
        mean: Vector = (signal + noise) / np.float32(self.cohort)
        row = {"privacy/noise_std": deviation / self.cohort}
        if norm := _norm(noise):
            row["privacy/snr"] = _norm(signal) / norm
        row |= shown("bound", clipping.names, bounds)
        row |= shown("clipped", clipping.names, clipped / max(answered, 1))
        return Released(mean, self.adapted(bounds, answered - clipped, answered, seed, round), row)

    def deviation(self, bounds: Bounds, answered: int) -> float:
        """The standard deviation of the noise in the sum's numbers. Local: each client that answered adds noise."""
        one = self.noise * self.cohort / self.claimed * float(np.sqrt(np.square(bounds).sum()))
        return one * math.sqrt(answered) if isinstance(self.settings, Local) else one

    def draw(self, size: int, seed: Name, round: int) -> Vector:
        """The noise of a round: its own draw of standard deviation 1 times w_0, and those of rounds before it."""
        noise = np.zeros(size, np.float32)
        for back, weight in enumerate(self.weights[: round + 1]):
            generator = numpy_generator(seed, "privacy noise", round - back)
            noise += np.float32(weight) * generator.standard_normal(size, np.float32)
        return noise

    def adapted(self, bounds: Bounds, within: npt.NDArray[np.int64], answered: int, seed: Name, round: int) -> Bounds:
        """The bounds of the next round: C <- C exp(-eta (b~ - gamma)), b~ the noisy share of clients within C.

        A client adds 1/2 or -1/2 to the count, so that whoever does not answer adds nothing.
        """
        clip = self.settings.clip
        if clip.kind == "fixed":
            return bounds
        noise = numpy_generator(seed, "privacy count", round).standard_normal(len(bounds))
        share = (within - answered / 2) / self.cohort + self.count_noise * noise / self.claimed + 0.5
        return bounds * np.exp(-clip.step * (share - clip.quantile))


def shown(name: str, groups: Sequence[str], values: npt.NDArray[np.float64]) -> dict[str, float]:
    """A value of each group as columns of a row: `privacy/NAME|GROUP`, or `privacy/NAME` for the only group."""
    if len(groups) == 1:
        return {f"privacy/{name}": float(values[0])}
    return {f"privacy/{name}|{group}": float(value) for group, value in zip(groups, values, strict=True)}


def _norm(vector: Vector) -> float:
    return float(np.sqrt(np.square(vector, dtype=np.float64).sum()))
