"""FedNST: federated noisy student training for automatic speech recognition.

Mehmood, Dobrowolska, Saravanan, Ozay. FedNST: Federated Noisy Student Training for Automatic Speech Recognition. Interspeech 2022.

    theta_0 <- train on D_L                                        # the seed model, on the server's labelled speech
    on each client i, once:                                        # PSEUDOLABEL
        y_j <- f(x_j; theta_0; phi)     for x_j in D_U^i           # beam search with the language model phi
    for t = 0 .. T - 1:
        eta_C^t <- schedule(eta_C, t)                              # constant within the round
        S_t <- a sample of the clients
        on each client i in S_t:
            theta_i <- SGD(theta_t, (x, y), E epochs, eta_C^t)     # the noise is SpecAugment and dropout
            Delta_i <- theta_i - theta_t,  n_i <- |D_U^i|
        Delta_C <- sum_i n_i / n  Delta_i                          # the strategy
        Delta_S <- SGD(theta_t, D_L, one pass, eta_S) - theta_t    # on the server, at the same time
        Delta   <- alpha Delta_S + (1 - alpha) Delta_C
        theta_{t+1} <- ServerOpt(theta_t, -Delta, eta)

Of a client's labelled utterances (`data.labelled`, the paper's figure 2) y_j is the transcript; they count as the surest labels.
Batch norm is the paper's modified sBN (`buffers: frozen`): statistics of the batch while training, running statistics kept from theta_0.
Ours: `relabel: N` has a client label its speech with the model it receives, and anew when its labels are N rounds old;
`confidence` trains on the surest labels only; both are off in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedray.core.algorithm import Parts
from fedray.core.config import kinds
from fedray.core.schedules import SCHEDULES
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, State, Update
from fedray.training.federated import (
    ServerPassSettings,
    TaskAlgorithm,
    check_mixing,
    mixed,
    report,
    seed_model,
    seed_model_keys,
    server_pass,
    train_on,
)
from fedray.training.local import LocalSettings, PretrainSettings
from fedray.training.pseudo_labels import ConfidenceSettings, label, most_confident, quality
from fedray.training.recognition import Recognition


@dataclass(frozen=True)
class FedNSTSettings:
    alpha: float = 0.5  # the server's share of a change; 0: clients only
    relabel: str | int = "once"  # once | every_round | N rounds
    schedule: Any = kinds(SCHEDULES, "exponential")  # of eta_C
    client: LocalSettings = field(default_factory=LocalSettings)  # eta_C, E
    server: ServerPassSettings = field(default_factory=ServerPassSettings)  # eta_S
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    confidence: ConfidenceSettings = field(default_factory=ConfidenceSettings)
    buffers: str = "frozen"  # running statistics of batch norm: frozen | averaged

    def __post_init__(self) -> None:
        check_mixing(self.alpha, self.buffers)
        if self.relabel not in ("once", "every_round") and not (isinstance(self.relabel, int) and self.relabel > 0):
            raise ValueError(f"relabel is once, every_round or a number of rounds from 1, not {self.relabel!r}")


class FedNST(TaskAlgorithm):
    Settings = FedNSTSettings
    settings: FedNSTSettings
    init_name = "seed model"
    prepare_depends = ("task.decode", "task.language_model", "algorithm.relabel")

    def __init__(self, settings: FedNSTSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        if not isinstance(self.task, Recognition):
            raise ValueError("algorithm.kind fednst labels speech with its transcripts, so it needs task.kind recognition")

    @property
    def init_depends(self) -> tuple[str, ...]:
        return seed_model_keys(self.task)

    def init(self, server: Server) -> ServerState:
        return seed_model(self.task, server, self.settings.pretrain)

    def client_prepare(self, client: Client, received: Received) -> State:
        return label(self.task, client.data, received) if self.settings.relabel == "once" else {}

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        eta_c = self.settings.client.lr * self.settings.schedule.factor(round, self.rounds)
        return Broadcast(state.params, {"lr/client": eta_c})

    def client_update(self, client: Client, received: Received) -> Update:
        labels, fresh = client.state, None
        if not labels or self._outdated(labels, received.round):
            labels = fresh = label(self.task, client.data, received)
        kept = most_confident(labels, self.settings.confidence.share(received.round, self.rounds))
        data = client.data.take(kept)
        targets = [self.task.tokeniser.encode(labels["texts"][position]) for position in kept]
        eta_c = received.settings["lr/client"]
        delta, metrics = train_on(self.task, received, data, targets, self.settings.client, eta_c, client.seed, self.settings.buffers)
        return Update(delta, report(data, metrics), metrics + quality(labels, client.data), state=fresh if self._keeps_labels() else None)

    def server_train(self, server: Server, received: Received) -> Update | None:
        if self.settings.alpha == 0:
            return None
        return server_pass(self.task, server, received, self.settings.server, self.settings.buffers)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, self.settings.alpha))

    def _keeps_labels(self) -> bool:
        return self.settings.relabel != "every_round"

    def _outdated(self, labels: State, round: int) -> bool:
        return isinstance(self.settings.relabel, int) and round - labels["round"] >= self.settings.relabel
