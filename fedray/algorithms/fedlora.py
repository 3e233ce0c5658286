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

A and B are averaged each for itself, as in the paper: the mean of the products is not the product of the means, but from a common delta^r
they differ by terms of second order alone. The paper's traffic is H |C| + 2 h |C| T; what is really counted has the scalars besides, and of
T only the rounds in which a client takes part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedray.core.algorithm import Parts
from fedray.core.metrics import Metrics
from fedray.core.seeds import derive, seed_all
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, Update, Vector
from fedray.models.adapters import LoRASettings, adapt, merged, plain_names
from fedray.training.federated import TaskAlgorithm, mixed, own_model, report, seed_model, seed_model_keys
from fedray.training.local import PretrainSettings, WarmUpSettings, adamw


@dataclass(frozen=True)
class FedLoRASettings:
    lora: LoRASettings = field(default_factory=LoRASettings)
    client: WarmUpSettings = field(default_factory=WarmUpSettings)
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)


class FedLoRA(TaskAlgorithm):
    Settings = FedLoRASettings
    settings: FedLoRASettings

    def __init__(self, settings: FedLoRASettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.plain = self.task  # without adapters
        self.task = self.plain.with_adapters(settings.lora)

    @property
    def init_depends(self) -> tuple[str, ...]:
        return ("algorithm.lora", *seed_model_keys(self.plain))

    def init(self, server: Server) -> ServerState:
        theta_0 = self.plain.flat(server.device).layout.cut(seed_model(self.plain, server, self.settings.pretrain).params)
        seed_all(server.seed, "adapters")
        model = adapt(self.plain.model(), self.settings.lora)
        tensors = model.state_dict()
        tensors |= {name: theta_0[plain] for name, plain in plain_names(model).items() if plain in theta_0}
        return ServerState(self.task.flat(server.device).layout.join(tensors))

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        layout = self.task.flat("cpu").layout
        return Broadcast(state.params, constant=layout.size - layout.trainable)

    def client_update(self, client: Client, received: Received) -> Update:
        settings, flat, targets = self.settings.client, self.task.flat(received.device), self.task.targets(client.data)
        flat.load(received.params)
        moments = (client.state or {}).get("moments", {})
        metrics = Metrics()
        for epoch in range(settings.epochs):
            found, moments = adamw(
                self.task, client.data, targets, settings, moments, 0, derive(client.seed, "epoch", epoch), True, received.device
            )
            metrics += found
        kept = {"moments": moments} if settings.keep else None
        return Update(flat.difference(received.params), report(client.data, metrics), metrics, kept)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, 0.0))

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        return own_model(self, client, received, data)

    def merge(self, params: Vector) -> Vector:
        """theta_g as parameters of the model without adapters."""
        flat = self.task.flat("cpu")
        flat.load(params)
        return self.plain.flat("cpu").layout.join(merged(flat.model))

    def export(self, state: ServerState, folder: Path) -> None:
        self.plain.export(self.merge(state.params), folder)
