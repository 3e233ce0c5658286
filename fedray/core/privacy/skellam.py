"""Distributed differential privacy: clients send whole numbers, and the sum of their Skellam noise hides each of them.

Agarwal, Kairouz, Liu. The Skellam Mechanism for Differentially Private Federated Learning. NeurIPS 2021; scaling and
conditional rounding as in Kairouz, Liu, Steinke. The Distributed Discrete Gaussian Mechanism for Federated Learning
with Secure Aggregation. ICML 2021. Each client

1. rotates its update, so that no number stands out: random signs, then an orthonormal transform (`rotation`);
2. multiplies it by `scale`, rounds each number up or down at random, without bias, and rounds again if the rounded
   norm is above `rounded_bound`;
3. adds its share of the noise. Sums of Skellam numbers are Skellam, so a simulation draws the cohort's noise as one.

Sums are modulo 2^bits. Sums of whole numbers are exact in any order.
"""

from __future__ import annotations

import functools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from fedray.core.privacy.rotation import norm, rotate, rotate_back, rounded, shape_for
from fedray.core.privacy.settings import Skellam
from fedray.core.types import Vector

BETA = math.exp(-0.5)  # at most this share of roundings is drawn again, the papers' choice
FINE = 50  # whole numbers: from this deviation on, the divergence is Gaussian to 0.1 % (theorem 3.5 of the paper)
# Above this mean of both Poisson numbers, their difference is drawn as a rounded normal number: it has the same
# variance, and an excess kurtosis of 5e-13. Near 1e14 (`bits` of 27 and more) numpy's Poisson numbers are wrong.
LARGE = 1e12
MARGIN = 1e-4  # relative: how far above its bound the norm of a clipped and rotated float32 vector may be
Numbers = npt.NDArray[np.uint32]
Signs = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Encoding:
    """Encodes updates of `size` numbers with a norm of at most `bound` as numbers of `bits` bits, and decodes sums.

    The standard deviation of the noise of `shares` clients together is `noise` times the bound of a rounded update. The
    guarantee of this noise holds if at least `shares` clients answer.
    """

    size: int
    bound: float  # C, above 0
    noise: float  # z, 0 or more
    cohort: int  # clients of a round
    shares: int  # clients whose noise together is enough
    bits: int
    deviations: float  # k: standard deviations of the sum that fit into `bits`

    def __post_init__(self) -> None:
        assert self.size > 0 and self.bound > 0 and self.noise >= 0 and self.shares > 0, self
        if self.deviations * self._deviation(0.0) >= self.half:
            raise ValueError(
                f"privacy.bits={self.bits} is too few for {self.size:,} numbers of {self.cohort:,} clients with noise "
                f"{self.noise:g}: raise bits, or lower privacy.deviations ({self.deviations:g})"
            )

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of the rotation."""
        return shape_for(self.size)

    @property
    def length(self) -> int:
        """How many numbers travel: `size`, and at most a few percent more for the rotation."""
        return math.prod(self.shape)

    @property
    def half(self) -> int:
        """2^(bits - 1): sums from -half to half - 1 do not wrap around."""
        return 1 << (self.bits - 1)

    @functools.cached_property
    def scale(self) -> float:
        """The factor s before rounding, the largest at which k deviations of the sum fit: k sqrt(V(s)) = 2^(bits - 1).

        With n clients, d numbers and the rounded bound B(s), V(s) = (n s C)^2 / d + n / 4 + (z B(s))^2 n / shares
        bounds the mean variance of the sum's numbers. Its terms are n equal updates after rotation, rounding, and
        noise. The rotation may give single numbers twice the mean of the first term.
        """
        most = self.half / self.bound * math.sqrt(self.length)  # here one update alone would have deviation `half`
        return float(scipy.optimize.brentq(lambda s: self.deviations * self._deviation(s) - self.half, 0.0, most))

    @property
    def rounded_bound(self) -> float:
        """B: the largest norm of an update after scaling and rounding, in whole numbers."""
        return self._rounded(self.scale)

    @property
    def inflation(self) -> float:
        """The factor by which rounding raises the bound, and with it the noise: B / (s C), at least 1."""
        return self.rounded_bound / (self.scale * self.bound)

    def deviation(self, clients: int) -> float:
        """Standard deviation of the noise of `clients` clients in each number of the decoded sum."""
        return math.sqrt(self._variance(self.scale, clients)) / self.scale

    def signs(self, generator: np.random.Generator) -> Signs:
        """The random signs of a round's rotation, [length]: the same for all clients of the round."""
        return generator.integers(0, 2, self.length).astype(np.float32) * 2 - 1

    def encode(self, delta: Vector, signs: Signs, generator: np.random.Generator) -> Numbers:
        """Encode a clipped update as numbers modulo 2^bits, without noise: uint32 [length]. `generator`: to round."""
        padded = np.zeros(self.length, np.float32)
        np.multiply(delta, signs[: self.size], out=padded[: self.size])
        rotated = rotate(padded.reshape(self.shape)).ravel()
        length = norm(rotated)
        assert length <= self.bound * (1 + MARGIN), f"the update's norm is {length}, above its bound {self.bound}"
        # float32 may leave the norm slightly above the bound, which would be many whole numbers at a fine scale.
        factor, most = self.scale * self.bound / max(length, self.bound), self.rounded_bound**2
        while True:
            numbers, squares = rounded(rotated, factor, self.bits, generator)
            if squares <= most:
                return numbers

    def noise_of(self, clients: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """The noise in the sum of `clients` clients, [length]: one draw, distributed like the sum of theirs."""
        mean = self._variance(self.scale, clients) / 2
        if mean > LARGE:
            return np.rint(math.sqrt(2 * mean) * generator.standard_normal(self.length)).astype(np.int64)
        with ThreadPoolExecutor(2) as threads:  # a draw takes longer than all other work of the driver in a round
            one, other = threads.map(lambda drawn: drawn.poisson(mean, self.length), generator.spawn(2))
        return np.asarray(one - other)

    def decode(self, total: npt.NDArray[np.unsignedinteger | np.signedinteger], signs: Signs) -> Vector:
        """Decode a sum of encoded updates and noise, possibly wrapped around, to a sum of updates, float32 [size]."""
        rotated = rotate_back((self._centred(total) / self.scale).reshape(self.shape)).ravel()
        decoded: Vector = (rotated * signs)[: self.size].astype(np.float32)
        return decoded

    def norm(self, total: npt.NDArray[np.unsignedinteger | np.signedinteger]) -> float:
        """The Euclidean norm of a sum, which the rotation does not change."""
        return norm(self._centred(total)) / self.scale

    def _centred(self, total: npt.NDArray[np.unsignedinteger | np.signedinteger]) -> npt.NDArray[np.float64]:
        """The sum as numbers from -half to half - 1, float64 [length]."""
        return self._modulo(total + self.half).astype(np.float64) - self.half

    def _modulo(self, numbers: npt.NDArray[np.unsignedinteger | np.signedinteger]) -> Numbers:
        return numbers.astype(np.uint32) & np.uint32(2 * self.half - 1)

    def _rounded(self, scale: float) -> float:
        """Kairouz et al., Theorem 1: the largest norm after rounding, which at least 1 - BETA of the roundings keep."""
        norm, root = scale * self.bound, math.sqrt(self.length)
        likely = norm**2 + root**2 / 4 + math.sqrt(2 * math.log(1 / BETA)) * (norm + root / 2)
        return min(norm + root, math.sqrt(likely))

    def _variance(self, scale: float, clients: int) -> float:
        return (self.noise * self._rounded(scale)) ** 2 * clients / self.shares

    def _deviation(self, scale: float) -> float:
        """Standard deviation of a number in the sum, sqrt(V(scale))."""
        updates = (self.cohort * scale * self.bound) ** 2 / self.length
        return math.sqrt(updates + self.cohort / 4 + self._variance(scale, self.cohort))


def planned(settings: Skellam, noise: float, size: int, cohort: int) -> Encoding:
    """The encoding of a round of at least one client: a sum that can be opened has at least the noise of z.

    ValueError: the sum does not fit, or the noise is only a few whole numbers large, which the account does not cover.
    The noise is not checked with `as_if`: the larger federation would have other whole numbers than the simulation.
    """
    enough = settings.secure(cohort).fewest
    plan = Encoding(size, settings.clip.norm, noise, cohort, enough, settings.bits, settings.deviations)
    if settings.as_if.cohort is None and 0 < (deviation := noise * plan.rounded_bound) < FINE:
        raise ValueError(
            f"privacy.bits={settings.bits} is too few for noise {noise:g} of {cohort:,} clients: the noise has a "
            f"standard deviation of {deviation:.3g} whole numbers, and below {FINE:g} it hides less than epsilon says: "
            "raise bits"
        )
    return plan
