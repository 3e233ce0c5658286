"""Recognisers from federated acoustic models, with clients weighted by examples, by loss, or by word error rate.

Gao, Parcollet, Zaiem, Fernandez-Marques, de Gusmao, Beutel, Lane. End-to-End Speech Recognition from Federated Acoustic
Models. ICASSP 2022.

    # warm-up: data.server={utterances: 0.5, largest: true}
    theta_0 <- train on the speakers with most data
    for t = 0 .. T - 1:
        S_t <- a sample of K clients
        on each client i in S_t:
            theta_i <- SGD(theta_t, D_i, E = 5 epochs, eta_l)      # or Adam: client.optimizer
            Delta_i <- theta_i - theta_t
            wer_i   <- WER of theta_i on one central set           # by_wer only; greedy CTC [ours]
        w_i     <- n_i  |  exp(-loss_i)  |  exp(1 - wer_i)         # the strategy: by_examples, by_loss, by_wer
        Delta   <- sum_i w_i Delta_i / sum_i w_i
        theta   <- ServerOpt(theta_t, -Delta, eta_s)
        theta_{t+1} <- SGD(theta, a few utterances of the server)  # server_finetune

wer_i is a fraction, loss_i the mean over local training. The central set is an evenly spread part of dev [ours], never
of test. The paper's server fine-tunes on held-out data, the server here on its own data [ours]. `pretrain: {steps: 0}`
trains from scratch. The authors' code anneals a client's rate between its epochs (`client.newbob`) by the loss on
held-out data, the code here by the training loss [ours]. Running statistics of batch norm (in the CRDNN) are averaged
like parameters, or frozen (`buffers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedray.algorithms.base import (
    FederatedSGD,
    ServerSGDSettings,
    Trained,
    personal_scores,
    trained,
)
from fedray.core.algorithm import Setup
from fedray.core.metrics import Metrics
from fedray.core.ranges import Count, SomeShare
from fedray.core.strategies import ByWer
from fedray.core.types import Client, FederatedData, Received, Server, ServerState
from fedray.training.local import Anneal
from fedray.training.optimizers import ClientSettings
from fedray.training.recognition import Recognition
from fedray.training.server_pass import ServerPassSettings, after_pass


@dataclass(frozen=True)
class GaoClientSettings(ClientSettings):
    """Local training, whose rate may fall within a round."""

    epochs: Count = 5  # passes over the client's data in a round
    # NewBob: after an epoch whose mean loss is less than 0.25 % below that of the epoch before, the rate is multiplied
    # by this. Each round starts from its own rate again. null: the same rate in all epochs.
    newbob: SomeShare | None = None

    def annealer(self) -> Anneal | None:
        """SpeechBrain's scheduler for the rates of a client's epochs; None without `newbob`."""
        if self.newbob is None:
            return None
        from speechbrain.nnet.schedulers import NewBobScheduler  # lazy: importing SpeechBrain takes most of a second

        scheduler = NewBobScheduler(self.lr, self.newbob)
        return lambda loss: float(scheduler(loss)[1])


@dataclass(frozen=True)
class GaoSettings(ServerSGDSettings):
    """Settings of Gao et al."""

    central_utterances: Count = 100  # utterances of dev that wer_i is measured on, roughly
    client: GaoClientSettings = field(default_factory=GaoClientSettings)
    server_finetune: bool = True  # fine-tune on the server's labelled data after each round
    # the fine-tuning; `server_scheduled` makes its rate follow the clients'
    server: ServerPassSettings = field(default_factory=lambda: ServerPassSettings(utterances=32))


class Gao(FederatedSGD):
    """Clients keep no state."""

    Settings = GaoSettings
    settings: GaoSettings
    reports_wer = True

    @classmethod
    def check_setup(cls, settings: GaoSettings, setup: Setup) -> None:
        if isinstance(setup.strategy, ByWer) and not issubclass(setup.task_class, Recognition):
            raise ValueError("strategy.kind by_wer measures word error rates, so it needs task.kind recognition")

    def check(self, data: FederatedData) -> None:
        if self.settings.server_finetune and data.server() is None:
            raise ValueError(
                "algorithm.server_finetune needs data of the server: set data.server, or server_finetune=false"
            )
        if isinstance(self.strategy, ByWer) and "dev" not in data.splits():
            raise ValueError(
                "strategy.kind by_wer measures clients on a part of dev, and there is none: set data.dev_share"
            )

    def assets(self, data: FederatedData) -> Mapping[str, Any]:
        """Add the central set that wer_i is measured on, for strategy by_wer."""
        assets = super().assets(data)
        if not isinstance(self.strategy, ByWer):
            return assets
        pieces = max(1, round(len(data.evaluation("dev")) / self.settings.central_utterances))
        return {**assets, "central set": data.evaluation("dev", 0, pieces)}

    def client_train(self, client: Client, received: Received) -> Trained:
        targets, theta_i = self.task.targets(client.data), self.local_model(received)
        settings: Any = self.local_settings(received)
        losses = theta_i.fit(client.data, targets, settings, client.seed, anneal=settings.annealer())
        if not isinstance(self.strategy, ByWer):
            return trained(theta_i, client.data, losses)
        scores = personal_scores(
            self.task, theta_i.params(), received, {"dev": received.assets["central set"]}, final=False
        )
        wer_i = Metrics(central_wer=scores["dev"].metrics.total("wer"))
        return trained(theta_i, client.data, losses, scores=wer_i, report={"wer": wer_i["central_wer"] / 100})

    def server_finish(self, server: Server, state: ServerState) -> ServerState:
        settings = self.settings
        if not settings.server_finetune:
            return state
        factor = settings.server_factor(server.round, self.rounds)
        return after_pass(self.task, server, state, settings.server, settings.buffers == "frozen", factor)
