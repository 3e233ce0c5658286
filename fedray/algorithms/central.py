"""SL and NST: central training on all data, supervised and as a noisy student. Both are in FedNST's table 2.

Park, Zhang, Jia, Han, Chiu, Li, Wu, Le. Improved Noisy Student Training for Automatic Speech Recognition. Interspeech
2020; one generation without filtering, as in Mehmood et al., Interspeech 2022 (fednst.py), section 2.

    theta_0 <- train on D_L                                        # the same seed model as FedNST's
    SL:   y_j <- the transcript     for x_j in D_L and D_U
    NST:  y_j <- the transcript     for x_j in D_L
          y_j <- f(x_j; theta_0; phi)     for x_j in D_U           # once, by beam search with the language model phi
    for t = 0 .. T - 1:
        every K rounds: P_0 .. P_{K-1} <- D_L and D_U shuffled together and cut into K parts   # an epoch
        theta_{t+1} <- AdamW(theta_t, (x, y) of P_{t mod K}, eta)  # the noise is SpecAugment and dropout

One client holds all the data (`data.clients.by: pooled`, `cohort.size: 1`) and keeps AdamW's moments between rounds.
One actor labels and trains while the others evaluate. This gives a bound to compare with, not fast central training.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedray.algorithms.base import TaskAlgorithm, TaskSettings, Trained, trained
from fedray.core.algorithm import Setup
from fedray.core.metrics import Metrics
from fedray.core.ranges import Count, one_of
from fedray.core.seeds import numpy_generator
from fedray.core.types import Client, Received, State
from fedray.training.local import LocalModel
from fedray.training.optimizers import AdamW, AdamWSettings
from fedray.training.pseudo_labels import check_labels, label, quality
from fedray.training.speech_to_text import SpeechToText
from fedray.training.task import Targets
from fedray.training.warm_up import no_later


@dataclass(frozen=True)
class CentralSettings(TaskSettings):
    """Settings of SL and NST."""

    utterances: Count | None = None  # utterances in a round, at most: an epoch is cut into equal parts; null: all
    adamw: AdamWSettings = field(default_factory=AdamWSettings)  # the optimiser, whose rate falls over all rounds
    # running statistics of batch norm: averaged (here: over all batches) | frozen
    buffers: str = one_of(("averaged", "frozen"))


class Central(TaskAlgorithm):
    """The training that SL and NST share. Abstract: a subclass provides the targets y."""

    Settings = CentralSettings
    settings: CentralSettings
    central = True

    @abstractmethod
    def targets(self, client: Client, part: npt.NDArray[np.int64]) -> Targets:
        """The targets y of the client's utterances at these positions."""

    def quality(self, client: Client) -> Metrics:
        """Score y against the transcripts."""
        return Metrics()

    def paced_by(self) -> str | None:
        return "the optimiser's learning rate"

    def client_train(self, client: Client, received: Received) -> Trained:
        kept = client.state or {}
        size = len(client.data)
        parts = math.ceil(size / (self.settings.utterances or size))  # K
        epoch, turn = divmod(received.round, parts)
        seed = kept.get("seed", client.seed)  # the first round's, so that all rounds of an epoch cut one shuffle
        part = np.array_split(numpy_generator(seed, "epoch", epoch).permutation(size), parts)[turn]
        data, targets = client.data.take(part), self.targets(client, part)
        a_round = math.ceil(math.ceil(size / parts) / self.settings.adamw.batch)
        steps, moments = self.rounds * a_round, kept.get("moments", {})
        theta = LocalModel(self.task, received.params, received.device, self.settings.buffers == "frozen")
        optimizer = AdamW(theta.flat, self.settings.adamw, steps, no_later(moments, steps - a_round))
        losses = theta.fit_epoch(data, targets, self.settings.adamw, optimizer, client.seed)
        state = {**kept, "seed": seed, "moments": optimizer.moments()}
        return trained(theta, data, losses, scores=self.quality(client), state=state)


class SL(Central):
    """Central training on true transcripts or labels."""

    def targets(self, client: Client, part: npt.NDArray[np.int64]) -> Targets:
        return self.task.targets(client.data.take(part))


class NST(Central):
    """Central noisy-student training."""

    task: SpeechToText
    prepare_depends = ("task.decode", "task.language_model")
    makes_labels = True

    @classmethod
    def check_setup(cls, settings: CentralSettings, setup: Setup) -> None:
        check_labels(setup, "nst")

    def client_prepare(self, client: Client, received: Received) -> State:
        return {"labels": label(self.task, client.data, received)}

    def targets(self, client: Client, part: npt.NDArray[np.int64]) -> Targets:
        assert client.state is not None
        texts = client.state["labels"]["texts"]
        return [self.task.encode(texts[position]) for position in part]

    def quality(self, client: Client) -> Metrics:
        assert client.state is not None
        return quality(self.task, client.state["labels"], client.data)
