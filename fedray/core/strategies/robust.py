"""Rules that a minority of faulty or hostile clients can change only a little. They ignore the number of examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.ranges import Count, Minority, Positive
from fedray.core.strategies.base import Block, Coordinatewise, Distances, Pairwise, TwoPhase, Weights, part
from fedray.core.types import Layer, Vector


@dataclass(frozen=True)
class Median(Coordinatewise):
    """The median of each parameter (Yin et al., ICML 2018); for an even cohort, the mean of the two middle values."""

    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def combine(self, values: Block) -> Vector:
        return _middle(values, (len(values) - 1) // 2)


@dataclass(frozen=True)
class TrimmedMean(Coordinatewise):
    """The mean of each parameter without its floor(trim * |S|) largest and smallest values (Yin et al., ICML 2018)."""

    trim: Minority = 0.1  # share of the cohort that is cut at either end
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def combine(self, values: Block) -> Vector:
        return _middle(values, min(part(self.trim, len(values)), (len(values) - 1) // 2))


def _middle(values: Block, dropped: int) -> Vector:
    """The mean of each column without its `dropped` largest and smallest values.

    Computed in float64, so that the mean lies between the smallest and the largest value that is left.
    """
    ordered = np.sort(values, axis=0)
    total = np.zeros(values.shape[1])
    for row in ordered[
        dropped : len(values) - dropped
    ]:  # not sum(axis=0): numpy adds in another order if a block is one column
        total += row
    mean: Vector = (total / (len(values) - 2 * dropped)).astype(np.float32)
    return mean


@dataclass(frozen=True)
class Krum(Pairwise):
    """The update with the smallest score: the sum of its m - f - 2 smallest squared distances to other updates.

    Blanchard et al., NeurIPS 2017. Of m clients, f = floor(byzantine * m) may be faulty. `select` above 1 is
    Multi-Krum: the unweighted mean of the `select` best updates, or of all updates in a smaller cohort. The rule needs
    m >= 2f + 3: smaller cohorts lower f to floor((m - 3) / 2), and 1 or 2 clients all have the same weight. Ties go to
    the first id.
    """

    byzantine: Minority = 0.2  # share of the cohort that may be faulty
    select: Count = 1  # updates whose mean is taken; 1: Krum, above 1: Multi-Krum
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def weigh(
        self, distances: Distances, clients: Sequence[str], reports: Mapping[str, Mapping[str, float]]
    ) -> Weights:
        count = len(clients)
        if count < 3:
            return dict.fromkeys(clients, 1.0)
        f = min(part(self.byzantine, count), (count - 3) // 2)
        scores = {}
        for place, client in enumerate(clients):
            others = np.sort(np.delete(distances[place], place))
            scores[client] = math.fsum(others[: count - f - 2])
        best = set(sorted(clients, key=lambda client: (scores[client], client))[: self.select])
        return {client: 1.0 for client in clients if client in best}


@dataclass(frozen=True)
class GeometricMedian(Pairwise):
    """RFA: the point with the smallest sum of distances to the updates, by smoothed Weiszfeld iterations.

    Pillutla, Kakade, Harchaoui. Robust Aggregation for Federated Learning. IEEE Transactions on Signal Processing 2022.
    Every iterate is a weighted mean of the updates, so its distances follow from those between updates. All clients
    count the same: the paper weighs them by examples, which an attacker reports itself [ours].
    """

    iterations: Count = 100  # of Weiszfeld's algorithm; few leave far outliers a part, and each costs next to nothing
    smoothing: Positive = 1e-6  # smallest distance to an update that counts
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def weigh(
        self, distances: Distances, clients: Sequence[str], reports: Mapping[str, Mapping[str, float]]
    ) -> Weights:
        shares = np.full(len(clients), 1 / len(clients))
        for _ in range(self.iterations):
            near = 1 / np.maximum(self.smoothing, _from_mean(distances, shares))
            shares = near / near.sum()
        return dict(zip(clients, shares.tolist(), strict=True))


@dataclass(frozen=True)
class CentredClipping(Pairwise):
    """v <- v + mean of (update - v), each clipped to `radius`.

    Karimireddy, He, Jaggi. Learning from History for Byzantine Robust Optimization. ICML 2021. The paper starts from
    the last round's v, with momentum on the clients; here v starts from the update with the smallest sum of distances
    to the others, and nothing is kept between rounds [ours].
    """

    radius: Positive | None = None  # the longest way from v that counts; null: the median distance from v
    iterations: Count = 3  # steps of v
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def weigh(
        self, distances: Distances, clients: Sequence[str], reports: Mapping[str, Mapping[str, float]]
    ) -> Weights:
        sums = [math.fsum(row) for row in np.sqrt(distances)]
        first = min(range(len(clients)), key=lambda place: (sums[place], clients[place]))
        shares = np.eye(len(clients))[first]
        for _ in range(self.iterations):
            far = _from_mean(distances, shares)
            radius = float(np.median(far)) if self.radius is None else self.radius
            steps = np.minimum(1, np.divide(radius, far, out=np.ones(len(far)), where=far > 0)) / len(clients)
            shares = (1 - steps.sum()) * shares + steps
        return dict(zip(clients, shares.tolist(), strict=True))


def _from_mean(distances: Distances, shares: Distances) -> Distances:
    """The distance of each update from the mean with these weights, which sum to 1, float64 [clients].

    |sum_j s_j u_j - u_i|^2 = sum_j s_j d_ij - 1/2 sum_jk s_j s_k d_jk, with the squared distances d.
    """
    to_all = (distances * shares).sum(axis=1)
    far: Distances = np.sqrt(np.maximum(0, to_all - (to_all * shares).sum() / 2))
    return far


@dataclass(frozen=True)
class FLTrust(TwoPhase):
    """sum_i TS_i |g_0| / |u_i| u_i / sum_i TS_i with the trust TS_i = max(0, cos(u_i, g_0)).

    Cao, Fang, Liu, Gong. FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping. NDSS 2021. g_0 is what
    the server trains on its own labelled data beside the clients; `algorithm.server` has its settings.
    """

    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping
    against = "server"
    absolute = True

    def probe(self, delta: Vector, mean: Vector, layers: Sequence[Layer]) -> Mapping[str, float]:
        update, trusted = delta[: mean.size].astype(np.float64), mean[: delta.size]
        products = {"product": update * trusted, "update": np.square(update), "server": np.square(trusted, dtype=float)}
        return {name: float(values.sum()) for name, values in products.items()}

    def weigh(self, probes: Mapping[str, Mapping[str, float]], reports: Mapping[str, Mapping[str, float]]) -> Weights:
        lengths = {client: math.sqrt(probe["update"] * probe["server"]) for client, probe in probes.items()}
        trust = {
            client: max(0.0, probe["product"]) / lengths[client] if lengths[client] else 0.0
            for client, probe in probes.items()
        }
        whole = math.fsum(trust.values())
        return {
            client: trust[client] / whole * math.sqrt(probe["server"] / probe["update"])
            for client, probe in probes.items()
            if trust[client]
        }
