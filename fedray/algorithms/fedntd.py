"""FedNTD: clients keep what the global model knows of the classes other than a clip's own.

Lee, Jeong, Shin, Bae, Yun. Preservation of the Global Knowledge by Not-True Distillation in Federated Learning. NeurIPS
2022. arXiv:2106.03097.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            w_i <- theta_t
            for each batch (x, y) of E epochs:
                q, q_t <- softmax over all classes but y of the logits w_i(x) / tau, theta_t(x) / tau
                w_i    <- w_i - eta grad[ CE(w_i(x), y) + beta KL(q_t || q) ]
            Delta_i <- w_i - theta_t
        theta_{t+1} <- ServerOpt(theta_t, -sum_i n_i / n  Delta_i, eta)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.algorithm import Setup
from fedray.core.ranges import Amount, Positive
from fedray.core.types import Client, Received
from fedray.data.features.dataset import Batch
from fedray.training.classification import Classification
from fedray.training.local import LocalModel
from fedray.training.optimizers import ClientSettings
from fedray.training.task import Targets

FORWARD = 1 / 3  # the share of a training pass that a teacher's forward pass takes


@dataclass(frozen=True)
class FedNTDSettings(SGDSettings):
    """Settings of FedNTD."""

    beta: Amount = 1.0  # weight of the distillation
    temperature: Positive = 1.0  # tau
    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.01, batch=50, epochs=5, clip=None))


class FedNTD(FederatedSGD):
    """Clients keep no state."""

    Settings = FedNTDSettings
    settings: FedNTDSettings

    @classmethod
    def check_setup(cls, settings: FedNTDSettings, setup: Setup) -> None:
        if not issubclass(setup.task_class, Classification):
            raise ValueError("algorithm.kind fedntd trains classifiers: set task.kind=classification")

    def client_train(self, client: Client, received: Received) -> Trained:
        w_i, targets = self.local_model(received), self.task.targets(client.data)
        theta_t, tau = w_i.teacher(), self.settings.temperature

        def distilled(model: LocalModel, x: Batch, y: Targets) -> Tensor:
            classes, logits = torch.as_tensor(y, device=model.device), model.logits(x)
            q, q_t = (log_softmax(not_true(z, classes) / tau, 1) for z in (logits, theta_t.logits(x)))
            kept = kl_div(q, q_t, reduction="batchmean", log_target=True)
            return cross_entropy(logits, classes) + self.settings.beta * kept

        losses = w_i.fit(client.data, targets, self.local_settings(received), client.seed, loss=distilled)
        return trained(w_i, client.data, losses)

    def passes(self) -> float:
        return super().passes() * (1 + FORWARD)


def not_true(logits: Tensor, classes: Tensor) -> Tensor:
    """The logits [batch, classes - 1] of all classes but each clip's own, from [batch, classes]."""
    others = torch.ones_like(logits, dtype=torch.bool).scatter(1, classes[:, None], False)
    return logits[others].view(len(logits), -1)
