"""SL and NST: central training on everybody's data, supervised and as a noisy student: what FedNST's table 2 compares it with.

Park, Zhang, Jia, Han, Chiu, Li, Wu, Le. Improved Noisy Student Training for Automatic Speech Recognition. Interspeech 2020;
one generation without filtering, as in Mehmood et al., Interspeech 2022 (fednst.py), section 2.

    theta_0 <- train on D_L                                        # the same seed model as FedNST's
    SL:   y_j <- the transcript     for x_j in D_L and D_U
    NST:  y_j <- the transcript     for x_j in D_L
          y_j <- f(x_j; theta_0; phi)     for x_j in D_U           # once, by beam search with the language model phi
    for t = 0 .. T - 1:
        each K rounds: P_0 .. P_{K-1} <- D_L and D_U shuffled together and cut into K parts   # an epoch
        theta_{t+1} <- AdamW(theta_t, (x, y) of P_{t mod K}, eta)   # the noise is SpecAugment and dropout

One client plays it, which holds the data of all (`data.clients.by: pooled`, `cohort.size: 1`) and keeps AdamW's moments between rounds.
So one actor labels and trains while the others only score: a bound to compare with, not a fast way to train centrally.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedray.core.algorithm import Parts
from fedray.core.config import positive
from fedray.core.metrics import Metrics
from fedray.core.seeds import numpy_generator
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, State, Update
from fedray.training.federated import TaskAlgorithm, check_mixing, mixed, report, seed_model, seed_model_keys
from fedray.training.local import AdamWSettings, PretrainSettings, adamw
from fedray.training.pseudo_labels import label, quality
from fedray.training.recognition import Recognition


@dataclass(frozen=True)
class CentralSettings:
    utterances: int | None = None  # of a round, at most: an epoch is cut into equal parts (null: all)
    adamw: AdamWSettings = field(default_factory=AdamWSettings)  # its rate falls over all rounds
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    buffers: str = "averaged"  # running statistics of batch norm: averaged (here: of all batches) | frozen

    def __post_init__(self) -> None:
        positive(utterances=self.utterances)
        check_mixing(0.0, self.buffers)


@dataclass(frozen=True)
class SLSettings(CentralSettings):
    pass


@dataclass(frozen=True)
class NSTSettings(CentralSettings):
    pass


class Central(TaskAlgorithm):
    """The rounds that both share. Abstract: a subclass says what y is."""

    settings: CentralSettings
    init_name = "seed model"
    central = True

    @property
    def init_depends(self) -> tuple[str, ...]:
        return seed_model_keys(self.task)

    def init(self, server: Server) -> ServerState:
        return seed_model(self.task, server, self.settings.pretrain)

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params)

    @abstractmethod
    def targets(self, client: Client, part: np.ndarray) -> Sequence[Any]:
        """y of the client's utterances at these positions."""

    def client_update(self, client: Client, received: Received) -> Update:
        kept = client.state or {}
        size = len(client.data)
        parts = math.ceil(size / (self.settings.utterances or size))  # K
        epoch, turn = divmod(received.round, parts)
        seed = kept.get("seed", client.seed)  # the first round's, so that all rounds of an epoch shuffle alike
        part = np.array_split(numpy_generator(seed, "epoch", epoch).permutation(size), parts)[turn]
        data, targets = client.data.take(part), self.targets(client, part)
        steps = self.rounds * math.ceil(math.ceil(size / parts) / self.settings.adamw.batch)
        flat, frozen = self.task.flat(received.device), self.settings.buffers == "frozen"
        flat.load(received.params)
        metrics, moments = adamw(
            self.task, data, targets, self.settings.adamw, kept.get("moments", {}), steps, client.seed, frozen, received.device
        )
        delta = flat.difference(received.params, buffers=not frozen)
        return Update(delta, report(data, metrics), metrics + self.quality(client), state={**kept, "seed": seed, "moments": moments})

    def quality(self, client: Client) -> Metrics:
        """Of the labels."""
        return Metrics()

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return self.optimise(state, mixed(change, alpha=0.0))


class SL(Central):
    Settings = SLSettings

    def targets(self, client: Client, part: np.ndarray) -> Sequence[Any]:
        return self.task.targets(client.data.take(part))


class NST(Central):
    Settings = NSTSettings
    task: Recognition
    prepare_depends = ("task.decode", "task.language_model")

    def __init__(self, settings: NSTSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        if not isinstance(self.task, Recognition):
            raise ValueError("algorithm.kind nst labels speech with its transcripts, so it needs task.kind recognition")

    def client_prepare(self, client: Client, received: Received) -> State:
        return {"labels": label(self.task, client.data, received)}

    def targets(self, client: Client, part: np.ndarray) -> Sequence[Any]:
        texts = client.state["labels"]["texts"]
        return [self.task.tokeniser.encode(texts[position]) for position in part]

    def quality(self, client: Client) -> Metrics:
        return quality(client.state["labels"], client.data)
