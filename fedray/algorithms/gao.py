"""Recognisers from federated acoustic models, whose clients weigh by examples, by loss, or by word error rate.

Gao, Parcollet, Zaiem, Fernandez-Marques, de Gusmao, Beutel, Lane. End-to-End Speech Recognition from Federated Acoustic Models.
ICASSP 2022.

    theta_0 <- train on the speakers with most data                # the warm-up: data.server={utterances: 0.5, largest: true}
    for t = 0 .. T - 1:
        S_t <- a sample of K clients
        on each client i in S_t:
            theta_i <- SGD(theta_t, D_i, E = 5 epochs, eta_l)
            Delta_i <- theta_i - theta_t
            wer_i   <- WER of theta_i on one central set           # by_wer alone; greedy CTC
        w_i     <- n_i  |  exp(-loss_i)  |  exp(1 - wer_i)         # the strategy: by_examples, by_loss, by_wer
        Delta   <- sum_i w_i Delta_i / sum_i w_i
        theta   <- ServerOpt(theta_t, -Delta, eta_s)
        theta_{t+1} <- SGD(theta, a few utterances of the server)  # server_finetune

wer_i is a fraction and loss_i the mean over local training. The central set is a part of dev, evenly spread [ours]: it may pick the best
round too, and is no part of test. The paper's server learns from held-out data; here it learns from what it has [ours]. From scratch:
`pretrain: {steps: 0}`. Batch norm (the CRDNN's): running statistics are averaged as the parameters are, or frozen (`buffers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedray.core.algorithm import Parts
from fedray.core.config import kinds, positive
from fedray.core.metrics import Metrics
from fedray.core.schedules import SCHEDULES
from fedray.core.strategies import ByWer
from fedray.core.types import Broadcast, Change, Client, FederatedData, Received, Server, ServerState, Update
from fedray.training.federated import (
    ServerPassSettings,
    TaskAlgorithm,
    check_mixing,
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
class GaoSettings:
    central_utterances: int = 100  # about so many of dev measure wer_i
    schedule: Any = kinds(SCHEDULES, "constant")
    client: ClientSettings = field(default_factory=lambda: ClientSettings(epochs=5))
    server_finetune: bool = True
    server: ServerPassSettings = field(default_factory=lambda: ServerPassSettings(utterances=32))  # the fine-tuning
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    buffers: str = "averaged"  # running statistics of batch norm: averaged | frozen

    def __post_init__(self) -> None:
        positive(central_utterances=self.central_utterances)
        check_mixing(0.0, self.buffers)


class Gao(TaskAlgorithm):
    Settings = GaoSettings
    settings: GaoSettings
    init_name = "seed model"

    def __init__(self, settings: GaoSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.central: Any = None  # where wer_i is measured

    @property
    def init_depends(self) -> tuple[str, ...]:
        return seed_model_keys(self.task)

    def check(self, data: FederatedData) -> None:
        if self.settings.server_finetune and data.server() is None:
            raise ValueError("algorithm.server_finetune needs data of the server: set data.server, or server_finetune=false")
        if isinstance(self.strategy, ByWer):
            if "dev" not in data.splits():
                raise ValueError("strategy.kind by_wer measures clients on a part of dev, and there is none: set data.dev_share")
            self.central = data.evaluation("dev", 0, max(1, round(len(data.evaluation("dev")) / self.settings.central_utterances)))

    def init(self, server: Server) -> ServerState:
        return seed_model(self.task, server, self.settings.pretrain)

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, {"lr/client": self.settings.client.lr * self.settings.schedule.factor(round, self.rounds)})

    def client_update(self, client: Client, received: Received) -> Update:
        targets, eta_l = self.task.targets(client.data), received.settings["lr/client"]
        delta, metrics = train_on(
            self.task, received, client.data, targets, self.settings.client, eta_l, client.seed, self.settings.buffers
        )
        scalars = report(client.data, metrics)
        if self.central is not None:
            theta_i = self.task.flat(received.device).read()
            scores = self.task.evaluate(theta_i, self.central, received.assets, received.device, final=False).metrics
            scalars, metrics = {**scalars, "wer": scores["wer"] / 100}, metrics + Metrics(central_wer=scores.total("wer"))
        return Update(delta, scalars, metrics)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, 0.0))

    def server_finish(self, server: Server, state: ServerState) -> ServerState:
        if not self.settings.server_finetune:
            return state
        received = Received(state.params, {}, 0, server.assets, server.device)
        update = server_pass(self.task, server, received, self.settings.server, self.settings.buffers)
        params = state.params.copy()
        params[: update.delta.size] += update.delta  # frozen buffers, which lie behind the parameters, are not part of it
        return ServerState(params, state.extra)

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        return own_model(self, client, received, data)
