"""What a federated algorithm is: a few pure functions that the engine calls, on the server or on a client actor."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedray.core.metrics import Metrics
from fedray.core.optimizers import SGD, ServerOptimizer
from fedray.core.strategies import ByExamples, Strategy
from fedray.core.types import Broadcast, Change, Client, Evaluation, FederatedData, Layer, Received, Server, ServerState, State, Update


@dataclass(frozen=True)
class Parts:
    """What an algorithm is built from besides its own settings."""

    task: Any = None
    strategy: Strategy = ByExamples()
    server_optimizer: ServerOptimizer = SGD()
    rounds: int = 1


class Algorithm(ABC):
    """State in, state out: an instance holds settings only, and is copied to every actor.

    A round t counts from 0, as in the papers. All randomness comes from `client.seed` or from torch's, numpy's and Python's global
    generators, which the engine re-seeds by name before every client: so an update depends on broadcast, client and round alone.
    """

    Settings: ClassVar[type]  # a frozen dataclass: the section `algorithm` of a configuration, without its kind
    init_depends: ClassVar[tuple[str, ...]] = ()  # keys that init depends on: it is cached under their values; () = never
    init_name: ClassVar[str | None] = None  # algorithms whose init makes the same from the same keys share a cache by giving it one name
    prepare_depends: ClassVar[tuple[str, ...]] = ()  # the same for client_prepare, besides init's
    prepare_reads: ClassVar[bool] = True  # whether client_prepare looks at the broadcast or the assets, which then travel for it
    central: ClassVar[bool] = False  # whether it trains in one place, on a population of one client
    own_alone: ClassVar[bool] = False  # whether it trains nothing, and only the clients' own models, of all of them, tell what it did
    best: tuple[str, str] = (
        "dev/loss",
        "min",
    )  # the metric that picks the best round, and whether it is to be small ("min") or large ("max")

    def __init__(self, settings: Any, parts: Parts) -> None:
        self.settings = settings
        self.task = parts.task
        self.strategy = parts.strategy
        self.server_optimizer = parts.server_optimizer
        self.rounds = parts.rounds

    def check(self, data: FederatedData) -> None:  # noqa: B027 - most can work with any
        """ValueError where the federation is not such as the algorithm needs; asked before anything else."""

    @abstractmethod
    def init(self, server: Server) -> ServerState:
        """theta_0, pre-training included. Runs on a client actor."""

    def begin(self, theta_0: ServerState, seed: int) -> ServerState:
        """What the first round starts from: theta_0, with what no cache need keep, such as adapters. The same bits for the same seed."""
        return theta_0

    def client_prepare(self, client: Client, received: Received) -> State | None:
        """The state a client starts with (pseudo-labels, ...), made once, at its first cohort, from the broadcast of round 0."""
        return None

    @abstractmethod
    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        """What the cohort of a round gets."""

    @abstractmethod
    def client_update(self, client: Client, received: Received) -> Update:
        """Train on one client. Runs on a client actor."""

    def lane_update(self, clients: Iterator[Client], received: Received) -> Iterator[Update]:
        """Train a lane: one update for each client, in the clients' order. This is what the engine calls."""
        for client in clients:
            yield self.client_update(client, received)

    def server_train(self, server: Server, received: Received) -> Update | None:
        """What the server learns itself in a round; runs beside the clients' lanes and arrives as `change.server`."""
        return None

    def server_finish(self, server: Server, state: ServerState) -> ServerState:
        """After the aggregation (fine-tuning, ...). Runs on a client actor."""
        return state

    @abstractmethod
    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        """theta_{t+1} from theta_t and what the round brought. Runs on the driver: keep it cheap."""

    def assets(self) -> Mapping[str, Any]:
        """Read-only things that every actor needs (language model, ...), sent to each client once. Their `nbytes` count as traffic.

        Asked once, before the algorithm is copied to the actors: there they are found in `received.assets` and `server.assets`.
        """
        return {}

    def layers(self) -> Sequence[Layer]:
        """The layers of the exchanged vector, for strategies that judge each on its own: stretches that cover it, in its order."""
        return (Layer("all", 0, sys.maxsize),)

    def evaluate(self, data: Any, received: Received, final: bool) -> Evaluation:
        """Score the global model on a shard of a split. `final`: as reported at the end (beam search, rows for predictions.tsv)."""
        return Evaluation(Metrics())

    def client_evaluate(self, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
        """Score a client's own model (a personal one, or the global one after the client's training) on each of these data sets.

        `client.state` is what the client keeps by now. Asked where `evaluation.own_every` or `own_final` says so.
        """
        return {}

    def formula_bytes(self, clients: int, updates: int) -> float | None:
        """What travels by the paper's own formula, if it has one: so many `clients` have taken part, and sent so many updates in all."""
        return None

    def export(self, state: ServerState, folder: Any) -> None:
        """Write the model so that it loads without fedray."""
        return None

    def overrides(self, hook: str) -> bool:
        """Whether the algorithm has its own version of a hook: the engine skips those that do nothing."""
        return getattr(type(self), hook) is not getattr(Algorithm, hook)
