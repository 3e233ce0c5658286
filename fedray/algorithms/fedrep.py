"""FedRep: clients fit a head of their own to the shared representation, then improve the representation.

Collins, Hassani, Mokhtari, Shakkottai. Exploiting Shared Representations for Personalized Federated Learning. ICML
2021. arXiv:2102.07078, algorithm 1.

    phi, h_i <- theta_0, on every client i
    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            h_i   <- SGD on f_i(h, phi_t) over h from h_i, `head_epochs` epochs      # phi_t fixed; h_i stays
            phi_i <- SGD on f_i(h_i, phi) over phi from phi_t, E epochs              # h_i fixed
        phi_{t+1} <- ServerOpt(phi_t, -mean_i (phi_i - phi_t), eta)

The strategy computes the mean: `uniform` in the paper. `personal` names the head. `client.clip` bounds the gradient of
head and representation together [ours]; the paper clips nothing. The score is that of the personal models (phi, h_i).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.ranges import Count
from fedray.core.seeds import derive
from fedray.core.types import Client, Received
from fedray.training.optimizers import ClientSettings


@dataclass(frozen=True)
class FedRepSettings(SGDSettings):
    """Settings of FedRep."""

    personal: list[str] = field(default_factory=lambda: ["head"])  # the head h_i, which stays with each client
    head_epochs: Count = 10  # passes over the client's data that fit its head, before those of the representation
    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.01, batch=10, clip=None))


class FedRep(FederatedSGD):
    """Clients keep h_i."""

    Settings = FedRepSettings
    settings: FedRepSettings
    judged_personally = True

    def client_train(self, client: Client, received: Received) -> Trained:
        settings, targets = self.local_settings(received), self.task.targets(client.data)
        w_i, shared = self.local_model(received), self.task.layout.trainable  # phi comes first in a gradient

        def of_head(gradient: Tensor, weights: Tensor) -> None:
            gradient[:shared] = 0

        def of_representation(gradient: Tensor, weights: Tensor) -> None:
            gradient[shared:] = 0

        fitted = replace(settings, epochs=self.settings.head_epochs)
        w_i.fit(client.data, targets, fitted, derive(client.seed, "head"), of_head)
        losses = w_i.fit(client.data, targets, settings, client.seed, of_representation)
        return trained(w_i, client.data, losses)

    def passes(self) -> float:
        return super().passes() + self.settings.head_epochs
