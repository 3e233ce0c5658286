"""FedAvg: federated averaging, of models trained on true transcripts or labels.

McMahan, Moore, Ramage, Hampson, y Arcas. Communication-Efficient Learning of Deep Networks from Decentralized Data. AISTATS 2017.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            Delta_i <- SGD(theta_t, D_i, E epochs, eta_C^t) - theta_t
        Delta_C <- sum_i n_i / n  Delta_i
        Delta_S <- SGD(theta_t, D_L, one pass, eta_S) - theta_t    # only with alpha > 0
        Delta   <- alpha Delta_S + (1 - alpha) Delta_C
        theta_{t+1} <- ServerOpt(theta_t, -Delta, eta)

With an adaptive server optimiser (server_optimizer.kind adam, yogi, adagrad) it is FedOpt (Reddi et al., ICLR 2021).
With `labelled_only` D_i is the labelled part of a client's data (`data.labelled`): the supervised federation that FedSTAR's paper compares
itself with. On recognition, from a seed model and with alpha > 0, this is SFL, the supervised federation of FedNST's paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedray.core.config import kinds
from fedray.core.metrics import Metrics
from fedray.core.schedules import SCHEDULES
from fedray.core.types import Broadcast, Change, Client, FederatedData, Received, Server, ServerState, Update
from fedray.training.federated import (
    ServerPassSettings,
    TaskAlgorithm,
    check_labelled,
    check_mixing,
    labelled_part,
    mixed,
    own_model,
    report,
    seed_model,
    seed_model_keys,
    server_pass,
    train_on,
)
from fedray.training.local import ClientSettings, PretrainSettings


@dataclass(frozen=True)
class FedAvgSettings:
    alpha: float = 0.0  # the server's share of a change
    labelled_only: bool = False  # train on what `data.labelled` labels, instead of on every client's true labels
    schedule: Any = kinds(SCHEDULES, "constant")
    client: ClientSettings = field(default_factory=ClientSettings)
    server: ServerPassSettings = field(default_factory=ServerPassSettings)
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    buffers: str = "averaged"  # running statistics of batch norm: averaged | frozen

    def __post_init__(self) -> None:
        check_mixing(self.alpha, self.buffers)


class FedAvg(TaskAlgorithm):
    Settings = FedAvgSettings
    settings: FedAvgSettings
    init_name = "seed model"

    @property
    def init_depends(self) -> tuple[str, ...]:
        return seed_model_keys(self.task)

    def check(self, data: FederatedData) -> None:
        if self.settings.labelled_only:
            check_labelled(data, "algorithm.labelled_only")

    def init(self, server: Server) -> ServerState:
        return seed_model(self.task, server, self.settings.pretrain)

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, {"lr/client": self.settings.client.lr * self.settings.schedule.factor(round, self.rounds)})

    def client_update(self, client: Client, received: Received) -> Update:
        data = labelled_part(client.data) if self.settings.labelled_only else client.data
        targets, eta_c = self.task.targets(data), received.settings["lr/client"]
        delta, metrics = train_on(self.task, received, data, targets, self.settings.client, eta_c, client.seed, self.settings.buffers)
        return Update(delta, report(data, metrics), metrics)

    def server_train(self, server: Server, received: Received) -> Update | None:
        if self.settings.alpha == 0:
            return None
        return server_pass(self.task, server, received, self.settings.server, self.settings.buffers)

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        return own_model(self, client, received, data)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, self.settings.alpha))
