"""REVERB-FL: after each aggregation the server trains on a reserve set, also on features moved to mislead the model.

Peechara, Sahay. REVERB-FL: Server-Side Adversarial and Reserve-Enhanced Federated Learning for Robust Audio
Classification. 2025 (arXiv 2512.13647).

    for t = 0 .. T - 1:
        S_t <- a sample of the clients, some of them hostile
        on each client i in S_t:
            Delta_i <- SGD(theta_t, D_i, E epochs, eta_C^t) - theta_t
        theta   <- ServerOpt(theta_t, -Delta, eta)              # Delta by any strategy
        theta_{t+1} <- SGD(theta, D_R, one epoch, eta_S)        # on the reserve set, in batches (x, y) of
            loss(x, y)                                          # radius = 0
            (loss(x, y) + loss(x + radius sign(grad_x loss), y)) / 2

D_R is the server's labelled data (`data.server`, in the paper about 5 %). The moved features are those of one step of
the fast gradient sign method [ours]. The paper also trains on D_R before clients do: `pretrain` does it once, before
the first round [ours].
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedray.algorithms.base import FederatedSGD, ServerSGDSettings, Trained, trained
from fedray.core.ranges import Amount
from fedray.core.types import Client, FederatedData, Received, Server, ServerState
from fedray.data.features.dataset import Batch
from fedray.training.local import LocalModel
from fedray.training.server_pass import after_pass
from fedray.training.task import Targets


@dataclass(frozen=True)
class ReverbSettings(ServerSGDSettings):
    """Settings of REVERB-FL. `server` has those of the pass over the reserve set."""

    radius: Amount = 0.1  # how far each feature is moved; 0: train on clean features alone


class Reverb(FederatedSGD):
    """Clients keep no state."""

    Settings = ReverbSettings
    settings: ReverbSettings

    def check(self, data: FederatedData) -> None:
        if data.server() is None:
            raise ValueError("algorithm.kind reverb trains on a reserve set of the server: set data.server")

    def client_train(self, client: Client, received: Received) -> Trained:
        targets, theta_i = self.task.targets(client.data), self.local_model(received)
        losses = theta_i.fit(client.data, targets, self.local_settings(received), client.seed)
        return trained(theta_i, client.data, losses)

    def server_finish(self, server: Server, state: ServerState) -> ServerState:
        settings = self.settings
        loss = self.moved_loss if settings.radius else None
        factor = settings.server_factor(server.round, self.rounds)
        return after_pass(self.task, server, state, settings.server, settings.buffers == "frozen", factor, loss)

    def moved_loss(self, model: LocalModel, batch: Batch, targets: Targets) -> Tensor:
        """The mean of the losses of clean and of moved features."""
        features = batch.features.detach().requires_grad_()
        clean = model.task_loss(replace(batch, features=features), targets)
        (gradient,) = torch.autograd.grad(clean, features, retain_graph=True)
        moved = features.detach() + self.settings.radius * gradient.sign()
        return (clean + model.task_loss(replace(batch, features=moved), targets)) / 2
