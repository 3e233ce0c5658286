"""FedProx: FedAvg whose clients are held near the model they were sent.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated Optimization in Heterogeneous Networks. MLSys 2020.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            w_i     <- SGD on  F_i(w) + mu / 2 ||w - theta_t||^2  from theta_t, E epochs
            Delta_i <- w_i - theta_t
        theta_{t+1} <- ServerOpt(theta_t, -sum_i n_i / n Delta_i, eta)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedray.core.config import kinds, positive
from fedray.core.metrics import Metrics
from fedray.core.schedules import SCHEDULES
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, Update
from fedray.training.federated import TaskAlgorithm, check_mixing, mixed, own_model, report, seed_model, seed_model_keys, train_on
from fedray.training.local import LocalSettings, PretrainSettings


@dataclass(frozen=True)
class FedProxSettings:
    mu: float = 0.01
    schedule: Any = kinds(SCHEDULES, "constant")
    client: LocalSettings = field(default_factory=LocalSettings)  # its clip bounds the gradient of F_i alone
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    buffers: str = "averaged"  # running statistics of batch norm: averaged | frozen

    def __post_init__(self) -> None:
        positive(mu=self.mu)
        check_mixing(0.0, self.buffers)


class FedProx(TaskAlgorithm):
    Settings = FedProxSettings
    settings: FedProxSettings
    init_name = "seed model"

    @property
    def init_depends(self) -> tuple[str, ...]:
        return seed_model_keys(self.task)

    def init(self, server: Server) -> ServerState:
        return seed_model(self.task, server, self.settings.pretrain)

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, {"lr/client": self.settings.client.lr * self.settings.schedule.factor(round, self.rounds)})

    def client_update(self, client: Client, received: Received) -> Update:
        targets, eta_c, settings = self.task.targets(client.data), received.settings["lr/client"], self.settings
        delta, metrics = train_on(
            self.task, received, client.data, targets, settings.client, eta_c, client.seed, settings.buffers, settings.mu
        )
        return Update(delta, report(client.data, metrics), metrics)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, 0.0))

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        return own_model(self, client, received, data)
