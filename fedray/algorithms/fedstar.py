"""FedSTAR: federated self-training of audio classifiers, on clients that have labelled little of what they have.

Tsouvalas, Saeed, Ozcelebi. Federated Self-Training for Semi-Supervised Audio Recognition. 2021.

    theta_0 <- random weights, or pre-trained ones                          # model.init; see fedray.training.contrastive
    for t = 0 .. T - 1:
        tau_t <- last - (last - first) / 2 (1 + cos(pi t / T))              # the threshold rises from `first` to `last`
        S_t <- a sample of the clients
        on each client i in S_t, with D_L^i labelled and D_U^i unlabelled:
            theta_i <- theta_t
            for each of E passes over D_U^i, a batch u of it with as large a batch l of D_L^i, which repeats:
                z_l, z_u <- f(x_l; theta_i), f(x_u; theta_i)                # one forward pass, in training mode
                y_u  <- argmax softmax(z_u / temperature)                   # a constant
                kept <- max softmax(z_u / temperature) > tau_t
                theta_i <- Adam(theta_i, grad[ CE(z_l, y_l) + beta / |u| sum_{j in u, kept} CE(z_j, y_j) ], eta_C)
            Delta_i <- theta_i - theta_t,  n_i <- |D_L^i| + |D_U^i|
        theta_{t+1} <- ServerOpt(theta_t, -sum_i n_i / n  Delta_i, eta)

Adam starts afresh each round. A client without unlabelled clips makes E passes over its labelled ones; one without labelled clips learns
from its pseudo-labels alone. A fixed threshold: first = last. beta = 0 keeps the steps and leaves the pseudo-labels out.
Ours: `labelled_batch` sets the size of l, which is worth it where D_L^i is smaller than u and would only be computed several times over.
Baselines: the supervised federation is FedAvg with `labelled_only`, the central model `sl`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedray.core.algorithm import Parts
from fedray.core.config import kinds, positive
from fedray.core.metrics import Metrics
from fedray.core.schedules import SCHEDULES
from fedray.core.types import Broadcast, Change, Client, FederatedData, Received, Server, ServerState, Update
from fedray.training.classification import Classification
from fedray.training.federated import TaskAlgorithm, check_labelled, initial_model, mixed, own_model, report
from fedray.training.local import ClientSettings
from fedray.training.self_training import self_train


@dataclass(frozen=True)
class ThresholdSettings:
    """tau: how probable a pseudo-label must be, in the first round and, half a cosine later, behind the last."""

    first: float = 0.5
    last: float = 0.9

    def __post_init__(self) -> None:
        for name in ("first", "last"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"threshold.{name}: {getattr(self, name)} is a probability, from 0 to 1")

    def at(self, round: int, rounds: int) -> float:
        return self.last - (self.last - self.first) / 2 * (1 + math.cos(math.pi * round / rounds))


@dataclass(frozen=True)
class FedSTARSettings:
    beta: float = 0.5  # weight of the pseudo-labels' loss
    temperature: float = 4.0
    threshold: ThresholdSettings = field(default_factory=ThresholdSettings)
    labelled_batch: int | None = None  # of each step (null: as many as unlabelled ones, as in the paper)
    schedule: Any = kinds(SCHEDULES, "constant")
    client: ClientSettings = field(default_factory=lambda: ClientSettings(1e-3, 32, 1, None, "adam", 1e-4))  # batch: of unlabelled clips

    def __post_init__(self) -> None:
        positive(temperature=self.temperature, labelled_batch=self.labelled_batch)
        if self.beta < 0:
            raise ValueError(f"beta must not be below 0, not {self.beta}")


class FedSTAR(TaskAlgorithm):
    Settings = FedSTARSettings
    settings: FedSTARSettings
    task: Classification

    def __init__(self, settings: FedSTARSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        if not isinstance(self.task, Classification):
            raise ValueError("algorithm.kind fedstar teaches classifiers: set task.kind=classification")

    def check(self, data: FederatedData) -> None:
        check_labelled(data, "algorithm.kind fedstar")

    def init(self, server: Server) -> ServerState:
        return initial_model(self.task, server)

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        settings = self.settings
        eta_c = settings.client.lr * settings.schedule.factor(round, self.rounds)
        return Broadcast(state.params, {"lr/client": eta_c, "threshold": settings.threshold.at(round, self.rounds)})

    def client_update(self, client: Client, received: Received) -> Update:
        settings, flat, device = self.settings, self.task.flat(received.device), received.device
        flat.load(received.params)
        weights = (settings.beta, settings.temperature, received.settings["threshold"], received.settings["lr/client"])
        metrics = self_train(self.task, client.data, settings.client, *weights, client.seed, device, settings.labelled_batch)
        return Update(flat.difference(received.params, buffers=True), report(client.data, metrics), metrics)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, 0.0))

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        return own_model(self, client, received, data)
