"""MOON: clients pull their representation towards the global model's, and away from that of their last model.

Li, He, Song. Model-Contrastive Federated Learning. CVPR 2021. arXiv:2103.16257, algorithm 1.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients                                      # the paper: all
        on each client i in S_t, with w_i^{t-1} its last model:
            w_i <- theta_t
            for each batch (x, y) of E epochs:
                z, z_glob, z_prev <- R(x; w_i), R(x; theta_t), R(x; w_i^{t-1})
                l_con <- -log( exp(sim(z, z_glob) / tau) / (exp(sim(z, z_glob) / tau) + exp(sim(z, z_prev) / tau)) )
                w_i   <- w_i - eta grad[ CE(w_i(x), y) + mu l_con ]
            keep w_i; Delta_i <- w_i - theta_t
        theta_{t+1} <- ServerOpt(theta_t, -sum_i n_i / n  Delta_i, eta)

sim is the cosine. R is the input of the model's last layer [ours]: the paper puts a projection head of two layers, with
256 outputs, between the two. A client's first w_i^{t-1} is theta_t [ours], for which l_con has no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from fedray.algorithms.base import FederatedSGD, SGDSettings, Trained, trained
from fedray.core.algorithm import Setup
from fedray.core.ranges import Amount, Positive
from fedray.core.types import Client, Received
from fedray.data.features.dataset import Batch
from fedray.training.classification import Classification
from fedray.training.local import LocalModel, Teacher
from fedray.training.optimizers import ClientSettings
from fedray.training.task import Targets

FORWARD = 1 / 3  # the share of a training pass that a teacher's forward pass takes


@dataclass(frozen=True)
class MOONSettings(SGDSettings):
    """Settings of MOON."""

    mu: Amount = 5.0  # weight of the contrastive loss; the paper's best: 5 on CIFAR-10, 1 on its two other data sets
    temperature: Positive = 0.5  # tau
    client: ClientSettings = field(default_factory=lambda: ClientSettings(lr=0.01, batch=64, epochs=10, clip=None))


class MOON(FederatedSGD):
    """A client's state holds its last model."""

    Settings = MOONSettings
    settings: MOONSettings

    @classmethod
    def check_setup(cls, settings: MOONSettings, setup: Setup) -> None:
        if not issubclass(setup.task_class, Classification):
            raise ValueError("algorithm.kind moon trains classifiers: set task.kind=classification")

    def client_train(self, client: Client, received: Received) -> Trained:
        w_i, targets, tau = self.local_model(received), self.task.targets(client.data), self.settings.temperature
        last = received.params if client.state is None else client.state["last"]
        glob, prev = w_i.teacher(), Teacher(self.task, last, received.device)

        def contrastive(model: LocalModel, x: Batch, y: Targets) -> Tensor:
            classes = torch.as_tensor(y, device=model.device)
            (z, logits), (z_glob, _), (z_prev, _) = (
                one.call(represented, x.features, x.lengths) for one in (model, glob, prev)
            )
            near = torch.stack([cosine_similarity(z, other) for other in (z_glob, z_prev)], 1) / tau
            l_con = cross_entropy(near, torch.zeros_like(classes))
            return cross_entropy(logits, classes) + self.settings.mu * l_con

        losses = w_i.fit(client.data, targets, self.local_settings(received), client.seed, loss=contrastive)
        return trained(w_i, client.data, losses, state={"last": w_i.params()})

    def passes(self) -> float:
        return super().passes() * (1 + 2 * FORWARD)


def represented(model: nn.Module, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The inputs [B, width] and the outputs [B, classes] of the model's last layer, `out` or what its `head` names."""
    inputs: list[Tensor] = []
    last = model.get_submodule(getattr(model, "head", "out"))
    hook = last.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    try:
        logits = model(features, lengths)
        return inputs[0], logits
    finally:
        hook.remove()
