"""FedLoRA: federated tuning of low-rank adapters on a frozen recogniser; adapters alone travel.

Du, Zhang, Yue, Huang, Zhang, Xu, Xu, Chen. Communication-Efficient Personalized Federated Learning for Speech-to-Text Tasks. ICASSP 2024.

    theta^0 <- the server's model, which travels to each client once        # H bytes
    delta^0 <- A drawn, B = 0, on the named projections                     # h bytes
    for r = 0 .. T - 1:                                                     # or until dev has been no better for `evaluation.patience`
        S_r <- a sample of the clients (the paper: all)
        on each client c in S_r:
            delta_c <- Adam(delta^r, D_c, E epochs)                         # theta^0 frozen; warm-up and moments stay with the client
        delta^{r+1} <- ServerOpt(delta^r, sum_c n_c / n  (delta_c - delta^r))
    theta_g <- theta^0 + alpha / r B A

`averaging: factors` averages A and B each for itself, as in the paper: the mean of the products is not the product of the means, but from
a common delta^r they differ by terms of second order alone. With `product` the server averages B A, and A and B of the next round are the
nearest of their rank [ours]. With `lora.rank` 0 there are no adapters: the whole model is trained and travels, the paper's FedAvg, whose
clients train alike; on one client that has all data either is the paper's central model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedray.core.algorithm import Parts
from fedray.core.compression import Compression
from fedray.core.metrics import Metrics
from fedray.core.optimizers import SGD
from fedray.core.seeds import derive, seed_all
from fedray.core.types import Broadcast, Change, Client, Layer, Received, Server, ServerState, Update, Vector
from fedray.models.adapters import LoRASettings, adapt, factorised, merged, pairs, plain_names, products
from fedray.training.federated import TaskAlgorithm, mixed, own_model, report, seed_model, seed_model_keys
from fedray.training.local import PretrainSettings, WarmUpSettings, adamw

AVERAGING = ("factors", "product")


@dataclass(frozen=True)
class FedLoRASettings:
    lora: LoRASettings = field(default_factory=LoRASettings)
    averaging: str = "factors"  # factors: A and B each for itself | product: B A, which is as large as the weights and costs an SVD each
    upload: Compression = field(default_factory=Compression)
    client: WarmUpSettings = field(default_factory=WarmUpSettings)
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)

    def __post_init__(self) -> None:
        if self.averaging not in AVERAGING:
            raise ValueError(f"averaging is {' or '.join(AVERAGING)}, not {self.averaging!r}")
        if self.averaging == "product" and not self.lora.rank:
            raise ValueError("averaging=product is of adapters, and lora.rank=0 has none")


class FedLoRA(TaskAlgorithm):
    Settings = FedLoRASettings
    settings: FedLoRASettings
    init_name = "seed model"

    def __init__(self, settings: FedLoRASettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        if settings.averaging == "product" and not isinstance(self.server_optimizer, SGD):
            raise ValueError("algorithm.averaging=product steps on products, which have no moments: set server_optimizer.kind=sgd")
        self.plain = self.task  # without adapters
        if settings.lora.rank:
            self.task = self.plain.with_adapters(settings.lora)
        self.tuned, self.backbone = self.task.layout.trainable, self.plain.layout.size  # for adapters, fails where targets name no weight

    @property
    def init_depends(self) -> tuple[str, ...]:
        return seed_model_keys(self.plain)

    def init(self, server: Server) -> ServerState:
        return seed_model(self.plain, server, self.settings.pretrain)

    def begin(self, theta_0: ServerState, seed: int) -> ServerState:
        """With adapters, which at first change nothing."""
        if not self.settings.lora.rank:
            return theta_0
        backbone = self.plain.layout.cut(theta_0.params)
        seed_all(seed, "adapters")
        model = adapt(self.plain.model(), self.settings.lora)
        tensors = model.state_dict()
        tensors |= {name: backbone[plain] for name, plain in plain_names(model).items() if plain in backbone}
        return ServerState(self.task.layout.join(tensors))

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        layout = self.task.layout
        return Broadcast(state.params, constant=layout.size - layout.trainable)

    def client_update(self, client: Client, received: Received) -> Update:
        settings, flat, targets = self.settings.client, self.task.flat(received.device), self.task.targets(client.data)
        flat.load(received.params)
        kept = client.state or {}
        moments, metrics = kept.get("moments", {}), Metrics()
        for epoch in range(settings.epochs):
            found, moments = adamw(
                self.task, client.data, targets, settings, moments, 0, derive(client.seed, "epoch", epoch), True, received.device
            )
            metrics += found
        lost = kept.get("lost")
        change = flat.difference(received.params)
        wanted = change if lost is None else change + np.asarray(lost)
        arrived, sent = self.settings.upload.send(wanted)
        state: dict[str, Any] = {"moments": moments} if settings.keep else {}
        if self.settings.upload.remembers:
            state["lost"] = wanted - arrived
        return Update(self.folded(arrived, received.params), report(client.data, metrics), metrics, state or None, sent)

    def folded(self, change: Vector, before: Vector) -> Vector:
        """What is averaged: the change of the adapters, or of their products."""
        if self.settings.averaging == "factors":
            return change
        layout = self.task.layout
        adapters = before[: layout.trainable]
        return products(adapters + change, layout) - products(adapters, layout)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        if self.settings.averaging == "factors" or change.clients is None:
            return self.optimise(state, mixed(change, 0.0))
        layout, params = self.task.layout, state.params.copy()
        adapters = params[: layout.trainable]
        step, _ = self.server_optimizer.step(change.clients, {})
        params[: layout.trainable] = factorised(products(adapters, layout) + step, adapters, layout)
        return ServerState(params, state.extra)

    def layers(self) -> tuple[Layer, ...]:
        if self.settings.averaging == "factors":
            return super().layers()
        found: list[Layer] = []
        layout = self.task.layout
        for pair in pairs(layout):
            start = found[-1].stop if found else 0
            a, b = pair.factors(np.empty(layout.trainable, np.float32))
            found.append(Layer(pair.name, start, start + b.shape[0] * a.shape[1]))
        return tuple(found)

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        return own_model(self, client, received, data)

    def merge(self, params: Vector) -> Vector:
        """theta_g as parameters of the model without adapters."""
        if not self.settings.lora.rank:
            return params
        flat = self.task.flat("cpu")
        flat.load(params)
        return self.plain.layout.join(merged(flat.model))

    def formula_bytes(self, clients: int, updates: int) -> float:
        return cost(self.backbone, self.tuned, clients, updates / max(1, clients))

    def export(self, state: ServerState, folder: Path) -> None:
        self.plain.export(self.merge(state.params), folder)


def cost(backbone: float, tuned: float, clients: int, rounds: float) -> float:
    """Bytes by the paper's formula, H |C| + 2 h |C| r: `backbone` parameters travel to each client once, `tuned` ones both ways in each
    round, four bytes each. FedAvg tunes the whole backbone. What really travels has scalars besides, and less where updates are packed."""
    return 4.0 * clients * (backbone + 2 * tuned * rounds)
