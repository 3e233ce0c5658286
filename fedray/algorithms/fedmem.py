"""FedMem: each client decodes with one shared model and a memory of its own speech.

Du, Zhang, Yue, Huang, Zhang, Xu, Xu, Chen. Communication-Efficient Personalized Federated Learning for Speech-to-Text
Tasks. ICASSP 2024.

    theta_g <- a trained model                                          # model.init: what FedAvg or FedLoRA exports
    on each client c, once:
        (K, V)_c <- union over (x, y) in D_c of (hidden state, token)   # never leaves the client
        k, lambda, T <- the best on its dev                             # where lists are given
    decoding x on client c, at every step:
        R     <- the k nearest of (K, V)_c to the hidden state
        p_mem <- softmax(-d / T) over R, summed by token
        p     <- lambda p_mem + (1 - lambda) p_model

The paper leaves variants for later. Those here need no training: `memory.prune_above` leaves out pairs that the model
already predicts with a higher probability, `skip_above` skips the look-up where the model's best token has a higher
probability, and `radius` makes k and lambda depend on the distances (fedray/training/knn/decoding.py has the formulas
and their sources).

`memory.keys: states` is the paper's choice: decoder states, each with the token that follows it. `frames` needs no
decoder [ours]: it stores encoder frames with CTC's aligned labels, blanks included. A run has one round with all
clients and scores the personal models at its end (`evaluation.personal_final`): on the client's part of dev and test
if clients are labels (`data.clients.by: label`), else on the common sets. Each score comes with the score without the
memory; wer and bleu are from greedy search, wer_lm and bleu_beam from beam search. On dev, settings for `frames` are
chosen by the word errors of greedy search, settings for `states` by likelihood. If `searched` is N, the last search of
the final evaluation then chooses among the best N. Translation supports memories of states only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from fedray.algorithms.base import TaskAlgorithm, TaskSettings, Trained
from fedray.core.algorithm import Setup
from fedray.core.metrics import ALONE, Metrics
from fedray.core.ranges import Natural, Share
from fedray.core.types import NOTHING, Broadcast, Change, Client, Evaluation, Received, ServerState, Update
from fedray.models.memory import Memory, MemorySettings
from fedray.training.decoding.search import Search
from fedray.training.knn.building import build_memory, fingerprint
from fedray.training.knn.decoding import Retrieval, SearchWithMemory, search_scores
from fedray.training.knn.selection import best_by_search, setting_costs
from fedray.training.local import LocalModel
from fedray.training.speech_to_text import SpeechToText
from fedray.training.translation import Translation


@dataclass(frozen=True)
class FedMemSettings(TaskSettings):
    """Settings of FedMem. Given several values, each client chooses on its dev set.

    The paper's values are k 4, 8, 16, share 0.1 to 0.9, temperature 10, 20, 50, 100, 200.
    """

    k: list[int] = field(default_factory=lambda: [8])  # neighbours that a query looks up
    share: list[float] = field(default_factory=lambda: [0.3])  # lambda, the memory's weight; the model's is 1 - lambda
    # T, which divides the neighbours' squared distances in the softmax that weights them
    temperature: list[float] = field(default_factory=lambda: [10.0])
    # Squared distance at which lambda, falling linearly from distance 0, reaches 0. Neighbours beyond it do not count.
    # Empty: all k neighbours count, with the same lambda at any distance.
    radius: list[float] = field(default_factory=list)
    skip_above: Share = 1.0  # skip the look-up where the model gives its best token a higher probability; 1: never skip
    # How many of the settings that cost least on dev, with different lambdas, the final search tries. 0: none; the one
    # that costs least is taken.
    searched: Natural = 0
    memory: MemorySettings = field(default_factory=MemorySettings)
    costs: bool = False  # write the cost of each setting on dev to personal.tsv

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.k and self.share and self.temperature):
            raise ValueError("k, share and temperature need a value each, or several to choose from")
        if min(self.k) < 1 or min(self.temperature) <= 0 or not all(0 <= share <= 1 for share in self.share):
            raise ValueError("k is at least 1, share from 0 to 1, temperature above 0")
        if self.radius and min(self.radius) <= 0:
            raise ValueError("radius is above 0; leave the list empty for the same lambda at any distance")

    def retrievals(self) -> list[Retrieval]:
        """All combinations of k, lambda, temperature and radius."""
        radii: list[float | None] = [*self.radius] or [None]
        grid = product(self.k, self.share, self.temperature, radii)
        return [Retrieval(*values, self.skip_above) for values in grid]


class FedMem(TaskAlgorithm):
    """A client's state holds its memory."""

    Settings = FedMemSettings
    settings: FedMemSettings
    task: SpeechToText
    sends_updates = False
    judged_personally = True

    @classmethod
    def check_setup(cls, settings: FedMemSettings, setup: Setup) -> None:
        if not issubclass(setup.task_class, SpeechToText):
            raise ValueError(
                "algorithm.kind fedmem stores the tokens of texts, so it needs task.kind recognition or translation"
            )
        if settings.memory.keys == "frames" and issubclass(setup.task_class, Translation):
            raise ValueError(
                "algorithm.memory.keys frames needs CTC, which writes no translations: set algorithm.memory.keys=states"
            )
        if settings.memory.keys == "frames" and not hasattr(setup.model_class, "ctc"):
            raise ValueError(
                "algorithm.memory.keys frames needs CTC, which this model lacks: set algorithm.memory.keys=states"
            )
        if settings.memory.keys == "states" and setup.task.decode.search != "attention":
            raise ValueError(
                "algorithm.memory.keys states need a decoder: set model.decoder_layers and task.decode.search=attention"
            )
        if setup.rounds != 1:
            raise ValueError(f"algorithm.kind fedmem trains nothing: set rounds=1, not {setup.rounds}")

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        """Send theta_g, which travels to each client once."""
        return Broadcast(state.params, constant=state.params.size)

    def client_train(self, client: Client, received: Received) -> Trained:
        """Build (K, V)_c; the model stays theta_g, and the client sends nothing."""
        theta_g, settings = LocalModel(self.task, received.params, received.device), self.settings.memory
        built = build_memory(self.task, received.params, client.data, settings, received.device)
        metrics = Metrics(pairs=(len(built.memory), 1), left_out=(built.left_out, 1), pruned=(built.pruned, 1))
        return Trained(theta_g, Update(NOTHING, {"examples": len(client.data)}, metrics, built.memory.state()))

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return state

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        """Score with the client's memory, and without it under names that end in `_alone`."""
        assert client.state is not None
        memory = Memory.of(client.state, fingerprint(received.params), self.settings.memory)
        settings, alone = self.settings.retrievals(), self.searches(received.assets)
        costs, chosen = Metrics(), settings[0]
        if len(settings) > 1 and "dev" in data and len(data["dev"]):
            found = setting_costs(self.task, received.params, data["dev"], memory, settings, received.device)
            chosen = settings[int(found.argmin())]  # the first in a tie
            if self.settings.searched:
                count, search = self.settings.searched, list(alone.values())[-1]
                chosen = best_by_search(self.task, received, data["dev"], memory, settings, found, count, search)
            if self.settings.costs:
                costs = Metrics.of({str(one): (float(cost), 1.0) for one, cost in zip(settings, found, strict=True)})
        choice = Metrics(k=(chosen.k, 1), share=(chosen.share, 1), temperature=(chosen.temperature, 1))
        if chosen.radius is not None:
            choice += Metrics(radius=(chosen.radius, 1))
        searches: dict[str, Search] = {}
        for name, search in alone.items():
            searches |= {name: SearchWithMemory(search, memory, chosen), name + ALONE: search}
        scores = {}
        for split, part in data.items():
            scored = search_scores(self.task, received, part, searches, final)
            scores[split] = replace(scored, metrics=scored.metrics + choice + (costs if split == "dev" else Metrics()))
        return scores

    def searches(self, assets: Mapping[str, Any]) -> dict[str, Search]:
        """The final evaluation's searches that read the memory's kind of keys, by the names of their scores."""
        searches = self.task.searches(assets).items()
        return {name: search for name, search in searches if search.reads == self.settings.memory.keys}
