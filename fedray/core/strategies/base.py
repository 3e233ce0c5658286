"""The kinds of strategies: the inputs of each, and when it runs. A strategy weighs, the engine sums."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedray.core.ranges import Positive, Ranged
from fedray.core.types import Layer, Vector
from fedray.core.vectors import norm

Block = npt.NDArray[np.float32]  # [clients, parameters]
Distances = npt.NDArray[np.float64]  # [clients, clients]
Weights = Mapping[str, float | Mapping[str, float]]  # client -> one weight, or one for each layer by name; absent = 0

COLUMNS = 1024  # per step of squared_distances: so the rows of 100 clients fit into the processor's cache


class Strategy(Ranged, ABC):
    """The base class of all strategies.

    `clip_norm` bounds the Euclidean norm of the weights in each client's delta, not that of running statistics or of
    the update's vectors. Clipping comes before everything else. In the arguments below, `delta` is the flat update:
    the delta, then the update's vectors, each of which is one more layer, `vectors/NAME`.
    """

    absolute: ClassVar[bool] = False  # the change is the sum of w_i * delta_i, not their mean; one weight a client
    clip_norm: Positive | None = None

    def clip(self, delta: Vector, weights: int | None = None) -> Vector:
        """delta with its weights scaled down to `clip_norm` if their norm is larger.

        `weights`: how many of delta's first numbers are weights; running statistics follow. None: all.
        """
        if self.clip_norm is None:
            return delta
        length = norm(delta[:weights])
        if length <= self.clip_norm:
            return delta
        clipped = delta.copy()
        clipped[:weights] *= np.float32(self.clip_norm / length)
        return clipped


class OnePass(Strategy):
    """Each client's weight follows from its report alone: the engine adds updates to a sum at once."""

    @abstractmethod
    def log_weight(self, report: Mapping[str, float]) -> float:
        """The natural logarithm of the client's weight. -inf: the client has no weight.

        Only ratios of weights within a cohort matter.
        """


class TwoPhase(Strategy):
    """Weights follow from scalars of the whole cohort.

    The actors that hold the updates receive the plain mean and return scalars of each update (`probe`). The driver
    turns these into weights (`weigh`), and the actors sum their updates with these weights.
    """

    # What `probe` compares an update with: "mean", the plain mean | "server", the delta that the server trained beside
    # the clients | "", nothing.
    against: ClassVar[str] = "mean"

    @abstractmethod
    def probe(self, delta: Vector, mean: Vector, layers: Sequence[Layer]) -> Mapping[str, float]:
        """Scalars of one update, computed on its actor. `mean`: what `against` says; empty if nothing."""

    @abstractmethod
    def weigh(self, probes: Mapping[str, Mapping[str, float]], reports: Mapping[str, Mapping[str, float]]) -> Weights:
        """Weights from all clients' probes and reports, in lane order. Runs on the driver.

        Unless they are `absolute`, only ratios of weights within a layer matter.
        """


class Grouped(Strategy):
    """Weights follow from the groups of the cohort's clients, and from what the strategy kept of earlier rounds."""

    @abstractmethod
    def weigh(
        self, reports: Mapping[str, Mapping[str, float]], groups: Mapping[str, str], kept: Mapping[str, float]
    ) -> tuple[Weights, dict[str, float]]:
        """(weights, what it keeps for the next round) from the reports of the cohort. Runs on the driver.

        `groups`: client -> its group, for all clients of the federation (`data.groups`). `kept`: {} in the first round.
        """


class Coordinatewise(Strategy):
    """A rule that combines each parameter over all clients: updates come in blocks of parameters."""

    @abstractmethod
    def combine(self, values: Block) -> Vector:
        """Combine a float32 [clients, block] to a float32 [block]. The bits must not depend on the cut into blocks."""


class Pairwise(Strategy):
    """Weights follow from the distances between all updates of the cohort."""

    @abstractmethod
    def weigh(
        self, distances: Distances, clients: Sequence[str], reports: Mapping[str, Mapping[str, float]]
    ) -> Weights:
        """Weights from squared Euclidean distances, float64 [clients, clients]. Runs on the driver.

        `clients`: their ids, in lane order.
        """


def squared_distances(values: Block) -> Distances:
    """The squared distances between all rows of a block: float32 [clients, block] -> float64 [clients, clients].

    The matrix is symmetric with diagonal 0. The sum over all blocks is the matrix of the whole vectors. It is
    computed from differences: |a|^2 + |b|^2 - 2ab would cancel, and the bits of a matrix product by BLAS depend on the
    number of its threads.
    """
    count = len(values)
    result = np.zeros((count, count))
    for start in range(0, values.shape[1], COLUMNS):
        rows = values[:, start : start + COLUMNS].astype(np.float64, order="C")
        buffer = np.empty_like(rows)
        for i in range(count - 1):
            differences = np.subtract(rows[i + 1 :], rows[i], out=buffer[i + 1 :])
            result[i, i + 1 :] += np.square(differences, out=differences).sum(axis=1)
    return result + result.T  # the lower triangle of result is 0


def part(share: float, clients: int) -> int:
    """floor(share * clients) for the decimal number that was configured: 0.29 of 100 is 29, not floor(28.999...)."""
    return math.floor(share * clients + 1e-9)
