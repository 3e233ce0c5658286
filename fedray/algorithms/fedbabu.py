"""FedBABU: the federation trains the body alone, under a random head; each client then fine-tunes its own model.

Oh, Kim, Yun. FedBABU: Toward Enhanced Representation for Federated Image Classification. ICLR 2022. arXiv:2106.06042.

    body, head <- theta_0                                             # the head is never trained in the federation
    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            body_i <- SGD on F_i(body, head) over the body, E epochs
        body_{t+1} <- ServerOpt(body_t, -sum_i n_i / n  (body_i - body_t), eta)
    # evaluation, on each client:
    (body_i, head_i) <- SGD on F_i from (body_T, head), `finetune_epochs` epochs       # or the head alone: `finetune`

`personal` names the head, which does not travel. `client.clip` bounds the gradient of body and head together [ours];
the paper clips nothing. The score is that of the fine-tuned models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, personal_scores, trained
from fedray.core.ranges import Count, one_of
from fedray.core.types import Client, Evaluation, Received
from fedray.training.optimizers import ClientSettings


@dataclass(frozen=True)
class FedBABUSettings(SGDSettings):
    """Settings of FedBABU."""

    personal: list[str] = field(default_factory=lambda: ["head"])  # the head
    finetune: str = one_of(("all", "head"))  # what a client fine-tunes before its model is scored: all | head
    finetune_epochs: Count = 5  # passes over the client's data
    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.1, batch=50, epochs=4, clip=None))


class FedBABU(FederatedSGD):
    """Clients keep the head, which stays that of theta_0."""

    Settings = FedBABUSettings
    settings: FedBABUSettings
    judged_personally = True

    def client_train(self, client: Client, received: Received) -> Trained:
        targets, w_i, shared = self.task.targets(client.data), self.local_model(received), self.task.layout.trainable

        def of_body(gradient: Tensor, weights: Tensor) -> None:
            gradient[shared:] = 0

        losses = w_i.fit(client.data, targets, self.local_settings(received), client.seed, of_body)
        return trained(w_i, client.data, losses)

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        """Score the model after the client has fine-tuned it."""
        targets, w_i, shared = self.task.targets(client.data), self.local_model(received), self.task.layout.trainable

        def of_head(gradient: Tensor, weights: Tensor) -> None:
            gradient[:shared] = 0

        settings = replace(self.local_settings(received), epochs=self.settings.finetune_epochs)
        w_i.fit(client.data, targets, settings, client.seed, of_head if self.settings.finetune == "head" else None)
        return personal_scores(self.task, w_i.params(), received, data, final)
