"""The interface of a federated algorithm: pure functions that the engine calls, on the server or on a client actor."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from fedray.core.hooks import Hooks, Setup
from fedray.core.server_optimizers import SGD, ServerOptimizer
from fedray.core.strategies import ByExamples, Strategy
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, State, Update

__all__ = ["Algorithm", "Parts", "Setup"]


@dataclass(frozen=True)
class Parts:
    """What an algorithm is built from besides its settings."""

    task: Any = None
    strategy: Strategy = ByExamples()
    server_optimizer: ServerOptimizer = SGD()
    rounds: int = 1


class Algorithm(Hooks):
    """The base class of algorithms: state in, state out. An instance holds only settings; every actor has a copy.

    A round takes these seven names: `Settings`, `init` and `begin` (the state before round 0), `client_prepare`,
    `broadcast`, `client_update`, `server_update`. A new algorithm usually derives from a class of
    `fedray.algorithms.base`, which implements all of them but the client's training. Whatever else the engine and its
    options ask of an algorithm is in `Hooks`, with defaults.

    Round t counts from 0, as in the papers. All randomness comes from `client.seed` or from the global generators of
    torch, numpy and Python, which the engine seeds by name before each client: an update depends on broadcast, client
    and round alone.
    """

    Settings: ClassVar[type]  # a frozen dataclass: the section `algorithm` of a configuration, without its kind

    def __init__(self, settings: Any, parts: Parts) -> None:
        self.settings = settings
        self.task = parts.task
        self.strategy = parts.strategy
        self.server_optimizer = parts.server_optimizer
        self.rounds = parts.rounds

    @abstractmethod
    def init(self, server: Server) -> ServerState:
        """Compute theta_0, including pre-training. Runs on a client actor."""

    def begin(self, theta_0: ServerState, seed: int) -> ServerState:
        """The state before round 0: theta_0, and what the cache of `init` need not hold, such as adapters.

        The same seed gives the same bits.
        """
        return theta_0

    def client_prepare(self, client: Client, received: Received) -> State | None:
        """Make a client's first state (pseudo-labels, ...) from the broadcast of round 0, before it first trains."""
        return None

    @abstractmethod
    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        """What the server sends to the cohort of a round."""

    @abstractmethod
    def client_update(self, client: Client, received: Received) -> Update:
        """Train on one client. Runs on a client actor."""

    @abstractmethod
    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        """Compute theta_{t+1} from theta_t and the round's change. Runs on the driver: keep it cheap."""

    def overrides(self, hook: str) -> bool:
        """Whether the algorithm overrides a hook: the engine skips hooks that do nothing."""
        return getattr(type(self), hook) is not getattr(Algorithm, hook)
