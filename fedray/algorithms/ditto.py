"""Ditto: every client keeps a personal model near the global one.

Li, Hu, Beirami, Smith. Ditto: Fair and Robust Federated Learning Through Personalization. ICML 2021, algorithm 1.

    on each client i, once:  v_i <- theta_0
    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            Delta_i <- SGD(theta_t, D_i, E epochs, eta) - theta_t                       # as in FedAvg
            v_i     <- SGD on  F_i(v) + lambda / 2 ||v - theta_t||^2  from v_i, `personal_epochs` epochs
        theta_{t+1} <- ServerOpt(theta_t, -sum_i n_i / n Delta_i, eta_g)

The score is the mean over the personal models v_i (`evaluation.personal_every`, `personal_final`). `client.clip` bounds
the gradient of F_i alone. A client's first v_i is the theta_t of its first cohort [ours]; before that it
has no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, personal_scores, trained
from fedray.core.metrics import Metrics
from fedray.core.ranges import Amount, Count
from fedray.core.seeds import derive
from fedray.core.types import Client, Evaluation, Received
from fedray.training.local import LocalModel


@dataclass(frozen=True)
class DittoSettings(SGDSettings):
    """Settings of Ditto."""

    pull: Amount = 0.1  # lambda, the pull of a personal model towards the global one
    personal_epochs: Count = 1  # epochs of a client's personal model in each of its rounds


class Ditto(FederatedSGD):
    """A client's state holds its personal model v_i."""

    Settings = DittoSettings
    settings: DittoSettings

    def client_train(self, client: Client, received: Received) -> Trained:
        settings, targets = self.local_settings(received), self.task.targets(client.data)
        w = self.local_model(received)
        theta_t = w.flat.weights.clone()
        losses = w.fit(client.data, targets, settings, client.seed)
        done = trained(w, client.data, losses)
        start = received.params if client.state is None else client.state["v"]
        v = LocalModel(self.task, start, received.device, self.settings.buffers == "frozen", received.work)

        def pulled(gradient: Tensor, weights: Tensor) -> None:
            gradient.add_(weights - theta_t, alpha=self.settings.pull)

        personal = replace(settings, epochs=self.settings.personal_epochs)
        personal_losses = v.fit(client.data, targets, personal, derive(client.seed, "personal"), pulled)
        metrics = done.update.metrics + Metrics(personal_loss=personal_losses.total("loss"))
        return Trained(v, replace(done.update, metrics=metrics, state={"v": v.params()}), own=w.own())

    def passes(self) -> float:
        return super().passes() + self.settings.personal_epochs

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        """Score v_i."""
        assert client.state is not None
        return personal_scores(self.task, client.state["v"], received, data, final)
