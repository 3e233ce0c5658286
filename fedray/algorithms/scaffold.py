"""SCAFFOLD: clients correct their drift by control variates.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. SCAFFOLD: Stochastic Controlled Averaging for Federated Learning.
ICML 2020, algorithm 1, option II.

    c, c_i <- 0
    for t = 0 .. T - 1:
        S_t <- a sample of the N clients
        on each client i in S_t:
            y_i    <- theta_t
            for K steps:  y_i <- y_i - eta_l (g_i(y_i) - c_i + c)
            c_i^+  <- c_i - c + (theta_t - y_i) / (K eta_l)
            send  Delta_i = y_i - theta_t  and  dc_i = c_i^+ - c_i;  c_i <- c_i^+
        theta_{t+1} <- ServerOpt(theta_t, -mean_i Delta_i, eta_g)
        c           <- c + |S_t| / N  mean_i dc_i

The strategy computes the means: `uniform` in the paper. `client.clip` bounds g_i alone. Control variates cover the
trainable parameters that travel; averaged running statistics of batch norm have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.types import Broadcast, Change, Client, Received, ServerState


@dataclass(frozen=True)
class ScaffoldSettings(SGDSettings):
    """Settings of SCAFFOLD."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client.optimizer != "sgd":
            raise ValueError(
                f"client.optimizer must be sgd, not {self.client.optimizer!r}: c_i is a mean of SGD's gradients"
            )


class Scaffold(FederatedSGD):
    """A client's state holds its control variate c_i, the server's state c."""

    Settings = ScaffoldSettings
    settings: ScaffoldSettings
    sends_more = True

    def begin(self, theta_0: ServerState, seed: int) -> ServerState:
        return replace(theta_0, extra={**theta_0.extra, "c": np.zeros(self.task.layout.trainable, np.float32)})

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return replace(super().broadcast(state, round), vectors={"c": np.asarray(state.extra["c"])})

    def sends(self, broadcast: Broadcast) -> Sequence[int]:
        return (*super().sends(broadcast), broadcast.vectors["c"].size)

    def client_train(self, client: Client, received: Received) -> Trained:
        c, eta_l = received.vectors["c"], received.settings["lr/client"]
        c_i = np.zeros_like(c) if client.state is None else np.asarray(client.state["c"])
        y_i, targets = self.local_model(received), self.task.targets(client.data)
        correction = torch.from_numpy(c - c_i).to(received.device)

        def corrected(gradient: Tensor, weights: Tensor) -> None:
            gradient[: c.size].add_(correction)

        losses = y_i.fit(client.data, targets, self.local_settings(received), client.seed, corrected)
        dc_i = -c - y_i.delta()[: c.size] / np.float32(y_i.steps * eta_l)
        done = trained(y_i, client.data, losses, state={"c": c_i + dc_i})
        return replace(done, update=replace(done.update, vectors={"c": dc_i}))

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        stepped = super().server_update(state, change, round)
        if not change.answered:
            return stepped
        share = np.float32(change.answered / change.population)
        return replace(stepped, extra={**stepped.extra, "c": state.extra["c"] + share * change.vectors["c"]})
