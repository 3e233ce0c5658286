"""The kinds of strategies: what each is asked, and when. A strategy weighs, the engine sums."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedray.core.types import Layer, Vector

Block = npt.NDArray[np.float32]  # [clients, parameters]
Distances = npt.NDArray[np.float64]  # [clients, clients]
Weights = Mapping[str, float | Mapping[str, float]]  # client -> one weight, or one for each layer by name; absent = 0

COLUMNS = 1024  # taken at once by squared_distances, so that the rows of 100 clients stay in the cache


class Strategy(ABC):  # noqa: B024 - its kinds differ in what they are asked
    """The root of all strategies. `clip_norm` bounds each update's Euclidean norm before anything else sees it."""

    clip_norm: float | None = None

    def clip(self, delta: Vector) -> Vector:
        if self.clip_norm is None:
            return delta
        norm = math.sqrt(float(np.square(delta, dtype=np.float64).sum()))  # not by BLAS, whose bits depend on its threads
        return delta if norm <= self.clip_norm else delta * np.float32(self.clip_norm / norm)


class OnePass(Strategy):
    """Weights that follow from a client's own report: updates are folded at once and forgotten."""

    @abstractmethod
    def log_weight(self, report: Mapping[str, float]) -> float:
        """The natural logarithm of the client's weight; only ratios within a cohort matter. -inf leaves the client out."""


class TwoPhase(Strategy):
    """Weights that follow from scalars of the whole cohort: the mean goes down, scalars come up, weights go down, the holders fold."""

    @abstractmethod
    def probe(self, delta: Vector, mean: Vector, layers: Sequence[Layer]) -> Mapping[str, float]:
        """Scalars of one update, made where it lies. `mean` is the unweighted mean of the cohort's updates."""

    @abstractmethod
    def weigh(self, probes: Mapping[str, Mapping[str, float]], reports: Mapping[str, Mapping[str, float]]) -> Weights:
        """Weights from everyone's probes and reports, clients in lane order; runs on the driver. Only ratios within a layer matter."""


class Coordinatewise(Strategy):
    """A rule for each parameter on its own, over all clients: updates come in blocks of parameters."""

    @abstractmethod
    def combine(self, values: Block) -> Vector:
        """float32 [clients, block] -> float32 [block]. The bits must not depend on how the vector is cut into blocks."""


class Pairwise(Strategy):
    """Weights that follow from the distances between all updates of the cohort."""

    @abstractmethod
    def weigh(self, distances: Distances, clients: Sequence[str], reports: Mapping[str, Mapping[str, float]]) -> Weights:
        """Weights from squared Euclidean distances, float64 [clients, clients]; `clients` in lane order; runs on the driver."""


def squared_distances(values: Block) -> Distances:
    """Of one block, float32 [clients, block] -> float64 [clients, clients]: symmetric, diagonal 0; blocks add up to those of the vectors.

    By differences: |a|^2 + |b|^2 - 2ab would cancel, and the bits of a matrix product by BLAS depend on its threads.
    """
    count = len(values)
    result = np.zeros((count, count))
    for start in range(0, values.shape[1], COLUMNS):
        rows = values[:, start : start + COLUMNS].astype(np.float64, order="C")
        buffer = np.empty_like(rows)
        for i in range(count - 1):
            differences = np.subtract(rows[i + 1 :], rows[i], out=buffer[i + 1 :])
            result[i, i + 1 :] += np.square(differences, out=differences).sum(axis=1)
    return result + result.T  # one of the two is 0


def part(share: float, clients: int) -> int:
    """floor(share * clients) of the decimal number that was written: 0.29 of 100 are 29, although 0.29 * 100 is just below."""
    return math.floor(share * clients + 1e-9)


def below_half(**values: float) -> None:
    """A check for a dataclass' own: each must be a share of a cohort's minority."""
    for name, value in values.items():
        if not 0 <= value < 0.5:
            raise ValueError(f"{name} is a share of the cohort: it must be at least 0 and below 0.5, not {value}")
