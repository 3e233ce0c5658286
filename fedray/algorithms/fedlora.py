"""FedLoRA: federated tuning of low-rank adapters on a frozen recogniser; only the adapters travel.

Du, Zhang, Yue, Huang, Zhang, Xu, Xu, Chen. Communication-Efficient Personalized Federated Learning for Speech-to-Text
Tasks. ICASSP 2024.

    theta^0 <- the server's model, which travels to each client once    # H bytes
    delta^0 <- A drawn, B = 0, on the named projections                 # h bytes
    # or until dev stops improving: evaluation.patience
    for t = 0 .. T - 1:
        S_t <- a sample of the clients (the paper: all)
        on each client c in S_t:
            # theta^0 frozen; the client keeps Adam's moments
            delta_c <- Adam(delta^t, D_c, E epochs)
        delta^{t+1} <- ServerOpt(delta^t, sum_c n_c / n  (delta_c - delta^t))
    theta_g <- theta^0 + alpha / r B A

`averaging: factors` averages A and B separately, as in the paper. The mean of the products is not the product of the
means; from a common delta^t they differ in second-order terms only. With `product` the server averages B A and takes
the nearest A and B of the same rank for the next round [ours]. With `lora.rank` 0 there are no adapters: the whole
model is trained and travels, as in the paper's FedAvg. With one client that has all data, the adapters and
the whole model are the paper's two central models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedray.algorithms.base import TaskAlgorithm, TaskSettings, Trained, mixed, trained
from fedray.core.algorithm import Parts, Setup
from fedray.core.metrics import Metrics
from fedray.core.ranges import one_of
from fedray.core.seeds import derive
from fedray.core.server_optimizers import SGD
from fedray.core.types import Broadcast, Change, Client, Layer, Received, ServerState, Vector
from fedray.models.adapters import LoRASettings, rate_factors
from fedray.training import adaptation
from fedray.training.local import LocalModel
from fedray.training.task import Task
from fedray.training.warm_up import ScaledAdamW, WarmUpSettings, no_later


@dataclass(frozen=True)
class FedLoRASettings(TaskSettings):
    """Settings of FedLoRA."""

    lora: LoRASettings = field(default_factory=LoRASettings)
    # factors: A and B separately | product: B A, as large as the weights; an SVD per weight
    averaging: str = one_of(("factors", "product"))
    client: WarmUpSettings = field(default_factory=WarmUpSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.averaging == "product" and not self.lora.rank:
            raise ValueError("averaging=product averages adapters, and lora.rank=0 has none")
        if self.averaging == "product" and self.personal:
            raise ValueError("averaging=product averages A and B together: set personal=[] or averaging=factors")
        if self.averaging == "product" and self.lora.whole:
            raise ValueError("averaging=product averages adapters alone: set lora.whole=[] or averaging=factors")
        if self.client.b_factor != 1 and not self.lora.rank:
            raise ValueError("client.b_factor applies to adapters, and lora.rank=0 has none: set client.b_factor=1")


class FedLoRA(TaskAlgorithm):
    """A client's state holds Adam's moments."""

    Settings = FedLoRASettings
    settings: FedLoRASettings

    @classmethod
    def check_setup(cls, settings: FedLoRASettings, setup: Setup) -> None:
        if settings.averaging == "product" and not isinstance(setup.server_optimizer, SGD):
            raise ValueError(
                "algorithm.averaging=product steps on products, which have no moments: set server_optimizer.kind=sgd"
            )

    def __init__(self, settings: FedLoRASettings, parts: Parts) -> None:
        self.backbone: Task = parts.task  # without adapters
        adapted = self.backbone.with_adapters(settings.lora) if settings.lora.rank else self.backbone
        super().__init__(settings, replace(parts, task=adapted))
        self.tuned = self.task.layout.trainable  # raises ValueError when `lora.targets` match no weight
        ratio = settings.client.b_factor
        self.factors = rate_factors(self.task.layout.training, ratio) if ratio != 1 else None

    @property
    def seed_task(self) -> Task:
        return self.backbone if self.settings.lora.rank else self.task

    def begin(self, theta_0: ServerState, seed: int) -> ServerState:
        """Attach delta^0 to theta^0, which changes no output."""
        if not self.settings.lora.rank:
            return theta_0
        return ServerState(adaptation.attach(self.backbone, self.task, theta_0.params, seed))

    def paced_by(self) -> str | None:
        return "the decay of the learning rate" if self.settings.client.decay == "cosine" else None

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, constant=self.task.layout.size - self.tuned)

    def client_train(self, client: Client, received: Received) -> Trained:
        settings, kept, targets = self.settings.client, client.state or {}, self.task.targets(client.data)
        delta_c = LocalModel(self.task, received.params, received.device, frozen=True, work=received.work)
        a_round = settings.epochs * math.ceil(len(client.data) / settings.batch)
        steps, losses = self.rounds * a_round, Metrics()
        moments = no_later(kept.get("moments", {}), steps - a_round)
        for epoch in range(settings.epochs):
            adam = ScaledAdamW(delta_c.flat, settings, steps, moments, self.factors)
            seed = derive(client.seed, "epoch", epoch)
            losses += delta_c.fit_epoch(client.data, targets, settings, adam, seed, settings.epochs)
            moments = adam.moments()
        return trained(delta_c, client.data, losses, state={"moments": moments} if settings.keep else None)

    def server_receive(self, delta: Vector, received: Received) -> Vector:
        """The vector that the server averages: the change in A and B or, computed from it, the change in B A."""
        if self.settings.averaging == "factors":
            return delta
        return adaptation.product_change(delta, received.params, self.task.layout)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        if self.settings.averaging == "factors" or change.clients is None:
            return self.server_step(state, mixed(change, 0.0))
        step, _ = self.server_optimizer.step(change.clients, {})
        return ServerState(adaptation.add_to_products(state.params, step, self.task.layout), state.extra)

    def layers(self) -> tuple[Layer, ...]:
        if self.settings.averaging == "factors":
            return super().layers()
        return adaptation.product_layers(self.task.layout)

    def formula_bytes(self, clients: int, updates: int) -> float:
        return cost(self.backbone.layout.size, self.tuned, clients, updates / max(1, clients))

    def merged(self, params: Vector) -> Vector:
        """theta_g, the parameters with the adapters merged into the backbone."""
        return adaptation.merge(self.backbone, self.task, params) if self.settings.lora.rank else params

    def export(self, state: ServerState, folder: Path) -> None:
        self.seed_task.export(self.merged(state.params), folder)


def cost(backbone: float, tuned: float, clients: int, rounds: float) -> float:
    """The traffic in bytes by the paper's formula, H |C| + 2 h |C| r.

    `backbone` parameters travel to each client once, `tuned` ones both ways in each round, four bytes each. FedAvg
    tunes the whole backbone. The traffic that a run counts also includes scalars, and is lower with compressed updates.
    """
    return 4.0 * clients * (backbone + 2 * tuned * rounds)
