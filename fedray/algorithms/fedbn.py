"""FedBN: every client keeps its own norms; all other parameters are averaged.

Li, Jiang, Zhang, Kamp, Dou. FedBN: Federated Learning on Non-IID Features via Local Batch Normalization. ICLR 2021.
arXiv:2102.07623.

    w, b_k <- theta_0, on every client k
    for t = 0 .. T - 1:
        S_t <- a sample of the clients                                      # the paper: all
        on each client k in S_t:
            (w_k, b_k) <- SGD on F_k from (w_t, b_k), E epochs              # b_k stays on the client
        w_{t+1} <- ServerOpt(w_t, -mean_k (w_k - w_t), eta)

b: the scales and shifts of all norms, and the running statistics of batch norm. In the paper's models all norms are
batch norms; here group and layer norms stay too [ours]. The strategy computes the mean: `uniform` in the paper.
`personal` may name more that stays. The score is that of the personal models (w, b_k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.types import Client, Received
from fedray.training.optimizers import ClientSettings


@dataclass(frozen=True)
class FedBNSettings(SGDSettings):
    """Settings of FedBN."""

    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.01, batch=32, clip=None))


class FedBN(FederatedSGD):
    """Clients keep their norms."""

    Settings = FedBNSettings
    settings: FedBNSettings
    judged_personally = True

    def personal_patterns(self) -> Sequence[str]:
        if not (norms := self.task.norms()):
            raise ValueError(
                f"algorithm.kind fedbn keeps norms on the clients, and {self.task.model_class.__name__} has none: "
                "choose another model, such as audio_cnn, conformer or crdnn"
            )
        return [f"{name}.*" for name in norms] + self.settings.personal

    def client_train(self, client: Client, received: Received) -> Trained:
        targets, w_k = self.task.targets(client.data), self.local_model(received)
        losses = w_k.fit(client.data, targets, self.local_settings(received), client.seed)
        return trained(w_k, client.data, losses)
