"""Rules that weigh up whom the mean forgets: clients with a large loss (q-FFL), or groups of clients (AFL)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedray.core.ranges import Amount, Positive
from fedray.core.strategies.base import Grouped, TwoPhase, Weights
from fedray.core.types import Layer, Vector
from fedray.core.vectors import norm

PREFIX = "lambda/"  # of the keys under which AFL keeps the weights of groups


@dataclass(frozen=True)
class QFair(TwoPhase):
    """q-FedAvg: sum_i F_i^q Delta_i / sum_i (F_i^q + q F_i^(q-1) L |Delta_i|^2), with L = 1 / `lr`.

    Li, Sanjabi, Beirami, Smith. Fair Resource Allocation in Federated Learning. ICLR 2020. q = 0 is the plain mean;
    a larger q makes losses more equal, and steps shorter. F_i is the mean loss of client i while it trains; the
    paper's is that of the model as it arrives [ours].
    """

    q: Amount = 1.0  # 0: all clients alike; larger values favour clients with a large loss
    lr: Positive = 0.1  # the clients' learning rate, the inverse of the paper's L
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping
    against = ""
    absolute = True

    def probe(self, delta: Vector, mean: Vector, layers: Sequence[Layer]) -> Mapping[str, float]:
        return {"norm": norm(delta)}

    def weigh(self, probes: Mapping[str, Mapping[str, float]], reports: Mapping[str, Mapping[str, float]]) -> Weights:
        losses = {client: max(reports[client]["loss"], 1e-10) for client in probes}
        largest = max(losses.values())  # cancels, and keeps the powers from overflow
        powers = {client: (loss / largest) ** self.q for client, loss in losses.items()}
        whole = math.fsum(
            powers[client] * (1 + self.q / losses[client] * probe["norm"] ** 2 / self.lr)
            for client, probe in probes.items()
        )
        return {client: power / whole for client, power in powers.items()}


@dataclass(frozen=True)
class Agnostic(Grouped):
    """AFL: sum_g lambda_g Delta_g, Delta_g the mean by examples within group g; lambda climbs towards large losses.

    Mohri, Sivek, Suresh. Agnostic Federated Learning. ICML 2019. After each round lambda_g grows by `step` times the
    group's mean loss, and lambda is projected onto the simplex. Groups that a cohort lacks keep their lambda until the
    projection, and have no part in its change.
    """

    step: Positive = 0.1  # gamma_lambda, the learning rate of the groups' weights
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def weigh(
        self, reports: Mapping[str, Mapping[str, float]], groups: Mapping[str, str], kept: Mapping[str, float]
    ) -> tuple[Weights, dict[str, float]]:
        names = sorted(set(groups.values()))
        shares = {name: kept.get(PREFIX + name, 1 / len(names)) for name in names}
        mine = {client: max(report["examples"], 0.0) for client, report in reports.items()}
        examples, losses = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        for client, report in reports.items():
            examples[groups[client]] += mine[client]
            losses[groups[client]] += mine[client] * report["loss"]
        weights = {
            client: shares[groups[client]] * count / examples[groups[client]] for client, count in mine.items() if count
        }
        climbed = [
            shares[name] + (self.step * losses[name] / examples[name] if examples[name] else 0.0) for name in names
        ]
        return weights, {PREFIX + name: share for name, share in zip(names, on_simplex(climbed), strict=True)}


def on_simplex(values: Sequence[float]) -> list[float]:
    """The nearest point whose coordinates are at least 0 and sum to 1 (Duchi et al., ICML 2008)."""
    ordered = np.sort(np.asarray(values, np.float64))[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    return [max(0.0, value - float(threshold)) for value in values]
