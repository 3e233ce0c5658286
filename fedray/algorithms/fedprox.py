"""FedProx: FedAvg with clients held near the broadcast model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated Optimization in Heterogeneous Networks. MLSys 2020.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            w_i     <- SGD on  F_i(w) + mu / 2 ||w - theta_t||^2  from theta_t, E epochs
            Delta_i <- w_i - theta_t
        theta_{t+1} <- ServerOpt(theta_t, -sum_i n_i / n Delta_i, eta)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.ranges import Positive
from fedray.core.types import Client, Received


@dataclass(frozen=True)
class FedProxSettings(SGDSettings):
    """Settings of FedProx."""

    mu: Positive = 0.01  # weight of the proximal term, mu / 2 times the squared distance to the broadcast


class FedProx(FederatedSGD):
    """`client.clip` bounds the gradient of F_i alone."""

    Settings = FedProxSettings
    settings: FedProxSettings

    def client_train(self, client: Client, received: Received) -> Trained:
        targets, w = self.task.targets(client.data), self.local_model(received)
        theta_t = w.flat.weights.clone()

        def proximal(gradient: Tensor, weights: Tensor) -> None:
            gradient.add_(weights - theta_t, alpha=self.settings.mu)

        losses = w.fit(client.data, targets, self.local_settings(received), client.seed, proximal)
        return trained(w, client.data, losses)
