"""FedMem: each client decodes with a memory of its own speech beside one model that all share.

Du, Zhang, Yue, Huang, Zhang, Xu, Xu, Chen. Communication-Efficient Personalized Federated Learning for Speech-to-Text Tasks. ICASSP 2024.

    theta_g <- a trained model                                              # model.init, such as a run of FedAvg or FedLoRA exports it
    on each client c, once:
        (K, V)_c <- union over (x, y) in D_c of (hidden state, token)       # nothing of it leaves the client
        k, lambda, T <- the best on its dev                                 # where lists are given
    decoding x on client c, at every step:
        R     <- the k nearest of (K, V)_c to the hidden state
        p_mem <- softmax(-d / T) over R, summed by token
        p     <- lambda p_mem + (1 - lambda) p_model

`memory.keys: states` are the paper's: the decoder's states and the token that follows each. `frames`, which need no decoder [ours], are
those of the encoder with CTC's aligned labels, blanks as all others. A run plays one round with all clients and scores their own models at
its end (`evaluation.own_final`), on their own part of dev and test where clients are labels (`data.clients.by: label`), else on what all
share. Beside each score stands that of the model alone; as everywhere wer is greedy and wer_lm by beam search. On dev, frames choose by
word errors, states by the transcripts' likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from fedray.core.algorithm import Parts
from fedray.core.metrics import ALONE, Metrics
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, Update
from fedray.models.memory import Memory, MemorySettings
from fedray.training.decoding import Search
from fedray.training.federated import TaskAlgorithm, seed_model, seed_model_keys
from fedray.training.local import PretrainSettings
from fedray.training.memory import Retrieval, WithMemory, fingerprint, remember, rescored, word_errors
from fedray.training.recognition import Recognition


@dataclass(frozen=True)
class FedMemSettings:
    """With several values each client chooses on dev; the paper's are k 4, 8, 16, share 0.1 to 0.9, temperature 10, 20, 50, 100, 200."""

    k: list[int] = field(default_factory=lambda: [8])
    share: list[float] = field(default_factory=lambda: [0.3])  # lambda
    temperature: list[float] = field(default_factory=lambda: [10.0])
    memory: MemorySettings = field(default_factory=MemorySettings)
    costs: bool = False  # what each setting costs on dev goes into own.tsv
    pretrain: PretrainSettings = field(default_factory=lambda: PretrainSettings(steps=0))

    def __post_init__(self) -> None:
        if not (self.k and self.share and self.temperature):
            raise ValueError("k, share and temperature need a value each, or several to choose from")
        if min(self.k) < 1 or min(self.temperature) <= 0 or not all(0 <= share <= 1 for share in self.share):
            raise ValueError("k is at least 1, share from 0 to 1, temperature above 0")

    def retrievals(self) -> list[Retrieval]:
        return [Retrieval(*values) for values in product(self.k, self.share, self.temperature)]


class FedMem(TaskAlgorithm):
    Settings = FedMemSettings
    settings: FedMemSettings
    task: Recognition
    own_alone = True
    init_name = "seed model"

    def __init__(self, settings: FedMemSettings, parts: Parts) -> None:
        super().__init__(settings, parts)
        if not isinstance(self.task, Recognition):
            raise ValueError("algorithm.kind fedmem remembers what was said, so it needs task.kind recognition")
        if settings.memory.keys == "frames" and not hasattr(self.task.model_class, "ctc"):
            raise ValueError("algorithm.memory.keys frames have CTC's labels, which this model has not: set algorithm.memory.keys=states")
        if settings.memory.keys == "states" and self.task.settings.decode.search != "attention":
            raise ValueError("algorithm.memory.keys states are a decoder's: set model.decoder_layers and task.decode.search=attention")
        if parts.rounds != 1:
            raise ValueError(f"algorithm.kind fedmem trains nothing: set rounds=1, not {parts.rounds}")

    @property
    def init_depends(self) -> tuple[str, ...]:
        return seed_model_keys(self.task)

    def init(self, server: Server) -> ServerState:
        return seed_model(self.task, server, self.settings.pretrain)

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params, constant=state.params.size)

    def client_update(self, client: Client, received: Received) -> Update:
        memory, left_out = remember(self.task, received.params, client.data, self.settings.memory, received.device)
        told = Metrics(pairs=(len(memory), 1), left_out=(left_out, 1))
        return Update(np.zeros(1, np.float32), {"examples": len(client.data)}, told, memory.state(), sent=0)

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return state

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        assert client.state is not None
        memory = Memory.of(client.state, fingerprint(received.params), self.settings.memory)
        settings = self.settings.retrievals()
        costs, chosen = Metrics(), settings[0]
        if len(settings) > 1 and "dev" in data and len(data["dev"]):
            found = rescored(self.task, received.params, data["dev"], memory, settings, received.device)
            chosen = settings[int(found.argmin())]  # of equals the first
            if self.settings.costs:
                costs = Metrics.of({str(one): (float(cost), 1.0) for one, cost in zip(settings, found, strict=True)})
        told = Metrics(k=(chosen.k, 1), share=(chosen.share, 1), temperature=(chosen.temperature, 1))
        searches: dict[str, Search] = {}
        for name, search in self.searches(received.assets).items():
            searches |= {name: WithMemory(search, memory, chosen), name + ALONE: search}
        scores = {split: word_errors(self.task, received, part, searches) + told for split, part in data.items()}
        return scores | {"dev": scores["dev"] + costs} if "dev" in scores else scores

    def searches(self, assets: Mapping[str, Any]) -> dict[str, Search]:
        """Of the searches that a final evaluation scores those that ask what a memory answers, by the names of their scores."""
        return {name: search for name, search in self.task.searches(assets).items() if search.reads == self.settings.memory.keys}
