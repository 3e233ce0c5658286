"""FedNST: federated noisy student training for automatic speech recognition.

Mehmood, Dobrowolska, Saravanan, Ozay. FedNST: Federated Noisy Student Training for Automatic Speech Recognition.
Interspeech 2022.

    theta_0 <- train on D_L                                        # the seed model, on the server's labelled speech
    on each client i, once:                                        # PSEUDOLABEL
        y_j <- f(x_j; theta_0; phi)     for x_j in D_U^i           # beam search with the language model phi
    for t = 0 .. T - 1:
        eta_C^t <- schedule(eta_C, t, T)                           # constant within the round
        S_t <- a sample of the clients
        on each client i in S_t:
            theta_i <- SGD(theta_t, (x, y), E epochs, eta_C^t)     # the noise is SpecAugment and dropout
            Delta_i <- theta_i - theta_t,  n_i <- |D_U^i|
        Delta_C <- sum_i n_i / n  Delta_i                          # the strategy
        Delta_S <- SGD(theta_t, D_L, one epoch, eta_S) - theta_t   # on the server, at the same time
        Delta   <- alpha Delta_S + (1 - alpha) Delta_C
        theta_{t+1} <- ServerOpt(theta_t, -Delta, eta)

For a labelled utterance (`data.labelled`, the paper's figure 2), y_j is its transcript, with the highest confidence.
Batch norm is the paper's modified sBN (`buffers: frozen`): batch statistics in training, theta_0's running statistics
in evaluation. This affects only CRDNNs: Conformers have layer norm. Ours: with `relabel: N`, a client labels its
speech with the model that it receives, and again when the labels are N rounds old; `confidence` trains on the most
confident labels only. Both are off in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from fedray.algorithms.base import MixedSettings, MixedSGD, Trained, trained
from fedray.core.algorithm import Setup
from fedray.core.ranges import Share
from fedray.core.schedules import SCHEDULES
from fedray.core.settings import kinds
from fedray.core.types import Client, Received, State
from fedray.training.pseudo_labels import ConfidenceSettings, check_labels, label, most_confident, quality
from fedray.training.speech_to_text import SpeechToText

LABELLING = 1.0  # training passes that take as long as labelling: one encoder pass and the search


@dataclass(frozen=True)
class FedNSTSettings(MixedSettings):
    """Settings of FedNST."""

    alpha: Share = 0.5  # the server's share of a round's change; 0: clients only
    relabel: str | int = "once"  # once | every_round | N rounds
    schedule: Any = kinds(SCHEDULES, "exponential")  # schedule of eta_C, the clients' learning rate
    confidence: ConfidenceSettings = field(default_factory=ConfidenceSettings)
    buffers: str = "frozen"  # running statistics of batch norm: frozen | averaged

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relabel not in ("once", "every_round") and not (isinstance(self.relabel, int) and self.relabel > 0):
            raise ValueError(f"relabel is once, every_round or a number of rounds from 1, not {self.relabel!r}")


class FedNST(MixedSGD):
    """A client's state holds its pseudo-labels, their confidence and the round that made them."""

    Settings = FedNSTSettings
    settings: FedNSTSettings
    task: SpeechToText
    prepare_depends = ("task.decode", "task.language_model", "algorithm.relabel")
    makes_labels = True

    @classmethod
    def check_setup(cls, settings: FedNSTSettings, setup: Setup) -> None:
        check_labels(setup, "fednst")

    @property
    def prepare_passes(self) -> float:  # type: ignore[override]
        return LABELLING if self.settings.relabel == "once" else 0.0

    def passes(self) -> float:
        """Passes of a round; with `relabel: N`, those of a client that takes part in every round."""
        relabel = self.settings.relabel
        every = relabel if isinstance(relabel, int) else {"once": math.inf, "every_round": 1}[relabel]
        return super().passes() + LABELLING / every

    def paced_by(self) -> str | None:
        confidence = self.settings.confidence
        return "the share of labels" if confidence.keep != confidence.keep_last else super().paced_by()

    def client_prepare(self, client: Client, received: Received) -> State:
        return label(self.task, client.data, received) if self.settings.relabel == "once" else {}

    def client_train(self, client: Client, received: Received) -> Trained:
        labels, fresh = client.state, None
        if not labels or self._outdated(labels, received.round):
            labels = fresh = label(self.task, client.data, received)
        kept = most_confident(labels, self.settings.confidence.share(received.round, self.rounds))
        data = client.data.take(kept)
        targets = [self.task.encode(labels["texts"][position]) for position in kept]
        theta_i = self.local_model(received)
        losses = theta_i.fit(data, targets, self.local_settings(received), client.seed)
        state = fresh if self.settings.relabel != "every_round" else None
        return trained(theta_i, data, losses, scores=quality(self.task, labels, client.data), state=state)

    def _outdated(self, labels: State, round: int) -> bool:
        return isinstance(self.settings.relabel, int) and round - labels["round"] >= self.settings.relabel
