"""The words of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedray.core.metrics import Metrics

Vector = npt.NDArray[np.float32]
State = Mapping[str, Any]  # tensors, arrays, numbers, strings, and lists and dicts of them: what torch.load(weights_only=True) reads


@dataclass(frozen=True)
class Layer:
    """A named stretch of the vector. A name may occur several times: all its stretches are one layer."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class ServerState:
    """All that survives a round on the server: the global parameters and whatever else the algorithm keeps (optimiser moments, ...)."""

    params: Vector
    extra: State = field(default_factory=dict)


@dataclass(frozen=True)
class Broadcast:
    """What every client of a round gets: parameters, and settings such as the learning rate of the round.

    The last `constant` parameters are the same in every round (a frozen backbone): they travel to a client once.
    """

    params: Vector
    settings: Mapping[str, float] = field(default_factory=dict)
    constant: int = 0


@dataclass(frozen=True)
class Received:
    """A broadcast as it arrives: with the round, the algorithm's assets and the device to compute on. `params` is read-only."""

    params: Vector
    settings: Mapping[str, float]
    round: int
    assets: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"


@dataclass(frozen=True)
class Client:
    """What an algorithm sees on a client. `seed` is the client's own for this round; `state` is what it kept from before."""

    id: str
    data: Any
    seed: int
    state: State | None = None


@dataclass(frozen=True)
class Server:
    """What an algorithm sees on the server: its labelled data, a development set, a seed, and how to say how far long work has come."""

    data: Any
    dev: Any
    seed: int
    device: str = "cpu"
    assets: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[int, int, str], None] = lambda done, of, what: None


@dataclass(frozen=True)
class Update:
    """What a client sends: its difference to the broadcast, scalars for the strategy, metrics. `state` stays on the client's side.

    `sent`: bytes that travel, where `delta` is what arrives after it was unpacked (8-bit numbers, ...); None: those of `delta`.
    """

    delta: Vector
    report: Mapping[str, float]
    metrics: Metrics = field(default_factory=Metrics)
    state: State | None = None
    sent: int | None = None


@dataclass(frozen=True)
class Change:
    """What a round brought: the clients' weighted mean (None: every client failed) and what the server learnt itself (None: nothing)."""

    clients: Vector | None
    server: Vector | None = None


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a shard, and one row a scored item for predictions.tsv."""

    metrics: Metrics
    predictions: list[dict[str, Any]] = field(default_factory=list)


class RunError(RuntimeError):
    """A run cannot go on, for a reason that stands in the message; nothing that was committed is lost."""


class FederatedData(Protocol):
    """Who has what. Everything is lazy: a population of a million costs its ids."""

    def client_ids(self) -> Sequence[str]: ...
    def cost(self, client: str) -> float:
        """How much work the client is, in utterances."""
        ...

    def load(self, client: str) -> Any: ...
    def server(self) -> Any: ...
    def evaluation(self, split: str, index: int = 0, count: int = 1) -> Any:
        """The data of a split ("dev", "test", ...), or part `index` of `count` of it, always cut alike."""
        ...

    def own(self, client: str, split: str) -> Any:
        """The client's own part of a split, such as its domain's; None where all clients share the split."""
        ...

    def splits(self) -> Sequence[str]: ...
