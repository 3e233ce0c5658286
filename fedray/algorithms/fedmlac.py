"""FedMLAC: every client keeps a model of its own, and learns with a small plug-in that alone travels.

FedMLAC: Mutual Learning Driven Heterogeneous Federated Audio Classification. 2025.

    for t = 0 .. T - 1:
        S_t <- a sample of the clients
        on each client i in S_t:
            w_i <- its personal model (drawn at its first round: one of `sizes`), v_i <- theta_t, the plug-in
            for each batch (x, y) of E epochs:
                w_i <- w_i - eta_C grad[ CE(w_i(x), y) + lambda_w KL(v_i(x) || w_i(x)) ]        # the teacher is a constant
                v_i <- v_i - eta_C grad[ CE(v_i(x), y) + lambda_v KL(w_i(x) || v_i(x)) ]        # both answer before either steps
            keep w_i; Delta_i <- v_i - theta_t
        for each layer l of the plug-in:                                                        # LPA: strategy layerwise_pruning
            T_l     <- S_t without the r largest and r smallest ||Delta_i^l - mean_j Delta_j^l||_2
            Delta^l <- sum_{i in T_l} n_i / n_{T_l}  Delta_i^l
        theta_{t+1} <- ServerOpt(theta_t, -Delta, eta)

The score is the mean over the clients' own models w_i on common data (`evaluation.own_every`, `own_final`). Ablations: mutual weights of 0
leave both models alone, strategy by_examples is FedMLAC without LPA, FedAvg with layerwise_pruning one shared model instead of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedray.core.algorithm import Parts
from fedray.core.config import kinds
from fedray.core.metrics import Metrics
from fedray.core.schedules import SCHEDULES
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, State, Update
from fedray.training.classification import Classification
from fedray.training.distillation import MutualSettings, mutual_sgd
from fedray.training.federated import TaskAlgorithm, initial_model, mixed, report
from fedray.training.local import LocalSettings


@dataclass(frozen=True)
class FedMLACSettings:
    sizes: list[str] = field(default_factory=lambda: ["base"])  # of the personal models; of several, each client draws one
    mutual: MutualSettings = field(default_factory=MutualSettings)
    schedule: Any = kinds(SCHEDULES, "constant")
    client: LocalSettings = field(default_factory=lambda: LocalSettings(lr=0.01, batch=16))

    def __post_init__(self) -> None:
        if not self.sizes:
            raise ValueError("sizes names the sizes of the personal models: one or more")


class FedMLAC(TaskAlgorithm):
    Settings = FedMLACSettings
    settings: FedMLACSettings
    task: Classification
    prepare_reads = False

    def __init__(self, settings: FedMLACSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        if not isinstance(self.task, Classification) or not hasattr(self.task.model_settings, "size"):
            raise ValueError("fedmlac teaches classifiers of several sizes: set task.kind=classification and model.kind=crnn")
        # The personal models, by size; the task's own model is the plug-in.
        self.personal = {
            size: self.task.with_model(replace(self.task.model_settings, size=size, init=None)) for size in dict.fromkeys(settings.sizes)
        }

    def init(self, server: Server) -> ServerState:
        return initial_model(self.task, server)

    def client_prepare(self, client: Client, received: Received) -> State:
        size = self.settings.sizes[np.random.randint(len(self.settings.sizes))]
        return {"size": size, "params": self.personal[size].initial()}

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, {"lr/client": self.settings.client.lr * self.settings.schedule.factor(round, self.rounds)})

    def client_update(self, client: Client, received: Received) -> Update:
        assert client.state is not None
        settings, personal, device = self.settings, self.personal[client.state["size"]], received.device
        w, v = personal.flat(device), self.task.flat(device)
        w.load(client.state["params"])
        v.load(received.params)
        eta_c = received.settings["lr/client"]
        metrics = mutual_sgd(personal, self.task, client.data, settings.client, settings.mutual, eta_c, client.seed, device)
        state = {"size": client.state["size"], "params": w.read()}
        return Update(v.difference(received.params, buffers=True), report(client.data, metrics), metrics, state)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, 0.0))

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        assert client.state is not None
        personal, params = self.personal[client.state["size"]], client.state["params"]
        return {split: personal.evaluate(params, part, {}, received.device, final=False).metrics for split, part in data.items()}
