"""FedPer: every client keeps its own last layers; the layers below them are averaged.

Arivazhagan, Aggarwal, Singh, Choudhary. Federated Learning with Personalization Layers. 2019. arXiv:1912.00818.

    W_B, W_P^j <- theta_0, on every client j
    for t = 0 .. T - 1:
        S_t <- a sample of the clients                                      # the paper: all
        on each client j in S_t:
            (W_B^j, W_P^j) <- SGD on F_j from (W_B, W_P^j), E epochs        # W_P^j stays on the client
        W_B <- ServerOpt(W_B, -sum_j n_j / n  (W_B^j - W_B), eta)

`personal` names W_P, the personalization layers: here the classifier, the paper's K_P = 1. All clients start from one
W_P [ours]; the paper draws each. The score is that of the personal models (W_B, W_P^j).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.types import Client, Received
from fedray.training.optimizers import ClientSettings


@dataclass(frozen=True)
class FedPerSettings(SGDSettings):
    """Settings of FedPer."""

    personal: list[str] = field(default_factory=lambda: ["head"])  # W_P, the layers that stay with each client
    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.01, batch=128, epochs=4, clip=None))


class FedPer(FederatedSGD):
    """Clients keep W_P."""

    Settings = FedPerSettings
    settings: FedPerSettings
    judged_personally = True

    def client_train(self, client: Client, received: Received) -> Trained:
        targets, w_j = self.task.targets(client.data), self.local_model(received)
        losses = w_j.fit(client.data, targets, self.local_settings(received), client.seed)
        return trained(w_j, client.data, losses)
