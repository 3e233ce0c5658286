"""FedDyn: each client's loss gets a linear and a quadratic term, so that all clients come to agree on one model.

Acar, Zhao, Navarro, Mattina, Whatmough, Saligrama. Federated Learning Based on Dynamic Regularization. ICLR 2021.
arXiv:2111.04263, algorithm 1.

    h, g_k <- 0
    for t = 0 .. T - 1:
        S_t <- a sample of the m clients
        on each client k in S_t:
            theta_k <- SGD on  L_k(theta) - <g_k, theta> + alpha / 2 ||theta - theta_t||^2  from theta_t, E epochs
            g_k     <- g_k - alpha (theta_k - theta_t)                # the gradient of L_k at theta_k
        h           <- h - alpha |S_t| / m  mean_k (theta_k - theta_t)
        theta_{t+1} <- mean_k theta_k - h / alpha

The strategy computes the means: `uniform` in the paper. The last line is a step of ServerOpt, with lr 1 in the paper.
`client.clip` bounds the gradient of L_k alone. h and g_k cover the trainable parameters that travel; averaged running
statistics of batch norm have neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, mixed, trained
from fedray.core.ranges import Positive
from fedray.core.types import Change, Client, Received, ServerState
from fedray.training.optimizers import ClientSettings


@dataclass(frozen=True)
class FedDynSettings(SGDSettings):
    """Settings of FedDyn."""

    alpha: Positive = 0.01  # weight of the quadratic term; the paper tries 0.1, 0.01 and 0.001
    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.1, batch=50, epochs=5, clip=None))


class FedDyn(FederatedSGD):
    """A client's state holds g_k, the server's state h."""

    Settings = FedDynSettings
    settings: FedDynSettings
    unscaled = True  # h is the mean of the g_k, which clients change by their updates as they are

    def begin(self, theta_0: ServerState, seed: int) -> ServerState:
        return replace(theta_0, extra={**theta_0.extra, "h": np.zeros(self.task.layout.trainable, np.float32)})

    def client_train(self, client: Client, received: Received) -> Trained:
        alpha, n = self.settings.alpha, self.task.layout.trainable
        g_k = np.zeros(n, np.float32) if client.state is None else np.asarray(client.state["g"])
        theta_k, targets = self.local_model(received), self.task.targets(client.data)
        theta_t, linear = theta_k.flat.weights[:n].clone(), torch.tensor(g_k, device=received.device)

        def dynamic(gradient: Tensor, weights: Tensor) -> None:
            gradient[:n].add_(weights[:n] - theta_t, alpha=alpha).sub_(linear)

        losses = theta_k.fit(client.data, targets, self.local_settings(received), client.seed, dynamic)
        state = {"g": g_k - np.float32(alpha) * theta_k.delta()[:n]}
        return trained(theta_k, client.data, losses, state=state)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        if not change.answered:
            return state
        delta, alpha = mixed(change, 0.0), np.float32(self.settings.alpha)
        h = state.extra["h"] - alpha * np.float32(change.answered / change.population) * delta[: state.extra["h"].size]
        delta[: h.size] -= h / alpha
        stepped = self.server_step(state, delta)
        return replace(stepped, extra={**stepped.extra, "h": h})
