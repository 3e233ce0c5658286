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

wer_i is a fraction, loss_i the mean over local training; in the authors' code it is that of the last epoch
(`client.reported_loss`), and CTC is trained in four epochs of five (`client.ctc_epochs`). The central set is an evenly
spread part of dev [ours], never of test. The paper's server fine-tunes on held-out data, the server here on its own
data [ours]. `pretrain: {steps: 0}` trains from scratch. The authors' code anneals a client's rate between its epochs
(`client.newbob`) by the loss on held-out data, the code here by the training loss [ours]. Running statistics of batch
norm (in the CRDNN) are averaged like parameters, or frozen (`buffers`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor

from fedray.algorithms.base import (
    FederatedSGD,
    ServerSGDSettings,
    Trained,
    personal_scores,
    trained,
)
from fedray.core.algorithm import Setup
from fedray.core.metrics import Metrics
from fedray.core.ranges import Count, SomeShare, one_of
from fedray.core.strategies import ByWer
from fedray.core.types import Client, FederatedData, Received, Server, ServerState
from fedray.data.features.dataset import Batch
from fedray.training.local import Anneal, LocalModel, Loss
from fedray.training.optimizers import ClientSettings
from fedray.training.recognition import Recognition
from fedray.training.server_pass import ServerPassSettings, after_pass
from fedray.training.speech_to_text import SpeechToText
from fedray.training.task import Targets


@dataclass(frozen=True)
class GaoClientSettings(ClientSettings):
    """Local training, whose rate may fall within a round."""

    epochs: Count = 5  # passes over the client's data in a round
    # NewBob: after an epoch whose mean loss is less than 0.25 % below that of the epoch before, the rate is multiplied
    # by this. Each round starts from its own rate again. null: the same rate in all epochs.
    newbob: SomeShare | None = None
    ctc_epochs: Count | None = None  # epochs of a round that train CTC beside the decoder, the first ones; null: all
    reported_loss: str = one_of(("round", "last_epoch"))  # whose mean loss is loss_i

    def annealer(self, losses: list[float]) -> Anneal:
        """The rate after each epoch, by SpeechBrain's scheduler; an epoch's mean loss is appended to `losses`."""
        scheduler = None
        if self.newbob is not None:
            # Imported here, because importing SpeechBrain takes most of a second.
            from speechbrain.nnet.schedulers import NewBobScheduler

            scheduler = NewBobScheduler(self.lr, self.newbob)

        def anneal(loss: float) -> float:
            losses.append(loss)
            return self.lr if scheduler is None else float(scheduler(loss)[1])

        return anneal

    def loss(self, utterances: int) -> Loss | None:
        """The loss of a client with so many utterances, with CTC in the first epochs; None: the task's in all."""
        if self.ctc_epochs is None:
            return None
        first = self.ctc_epochs * math.ceil(utterances / self.batch)

        def loss(model: LocalModel, batch: Batch, targets: Targets) -> Tensor:
            return cast(SpeechToText, model.task).loss(model.flat.model, batch, targets, ctc=model.steps < first)

        return loss


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
        if settings.client.ctc_epochs and not 0 < getattr(setup.task, "ctc_weight", 0) < 1:
            raise ValueError(
                "algorithm.client.ctc_epochs is for a loss of CTC and a decoder: set task.ctc_weight between 0 and 1, "
                "or ctc_epochs=null"
            )

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
        by_epoch, loss = list[float](), settings.loss(len(client.data))
        losses = theta_i.fit(client.data, targets, settings, client.seed, None, settings.annealer(by_epoch), loss)
        report = {"loss": by_epoch[-1]} if settings.reported_loss == "last_epoch" else {}
        if not isinstance(self.strategy, ByWer):
            return trained(theta_i, client.data, losses, report=report)
        scores = personal_scores(
            self.task, theta_i.params(), received, {"dev": received.assets["central set"]}, final=False
        )
        wer_i = Metrics(central_wer=scores["dev"].metrics.total("wer"))
        return trained(theta_i, client.data, losses, scores=wer_i, report=report | {"wer": wer_i["central_wer"] / 100})

    def server_finish(self, server: Server, state: ServerState) -> ServerState:
        settings = self.settings
        if not settings.server_finetune:
            return state
        factor = settings.server_factor(server.round, self.rounds)
        return after_pass(self.task, server, state, settings.server, settings.buffers == "frozen", factor)
