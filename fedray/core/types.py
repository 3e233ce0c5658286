"""The types that server, clients and engine exchange in a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.vectors import Vector as Vector

# The split that clients hold out of their own data; `FederatedData.client_part` gives each client its part.
OWN = "own"
NOTHING: Vector = np.empty(0, np.float32)  # the delta of an update without parameters
# Tensors, arrays, numbers, strings, and lists and dicts of them: whatever torch.load(weights_only=True) reads.
State = Mapping[str, Any]


@dataclass(frozen=True)
class Layer:
    """A named stretch of the vector. A name may occur several times: all its stretches are one layer."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class ServerState:
    """What the server keeps between rounds: global parameters, and in `extra` the rest (optimiser moments, ...)."""

    params: Vector
    extra: State = field(default_factory=dict)


@dataclass(frozen=True)
class Broadcast:
    """What every client of a round receives: parameters, and settings such as the learning rate of the round.

    The last `constant` parameters are the same in every round (a frozen backbone): they travel to a client once.
    `vectors` travel to every client of the round with the parameters (a control variate, ...).
    """

    params: Vector
    settings: Mapping[str, float] = field(default_factory=dict)
    constant: int = 0
    vectors: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """A broadcast as it arrives, with the round, the algorithm's assets and the device to compute on.

    `params` and `vectors` are read-only.
    """

    params: Vector
    settings: Mapping[str, float]
    round: int
    assets: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    together: int = 1  # clients of a lane that may be trained side by side
    work: float = 1.0  # the share of its local steps that a client has time for


@dataclass(frozen=True)
class Client:
    """What an algorithm sees of a client.

    `seed` belongs to this client and round. `state` is the client's newest state (None: it has none). `work` is the
    share of its local steps that it has time for, if a deadline cuts them short.
    """

    id: str
    data: Any
    seed: int
    state: State | None = None
    work: float = 1.0


@dataclass(frozen=True)
class Server:
    """What an algorithm sees of the server: labelled data, a development set, a seed, the round.

    Rounds count from 0; before the first round, `round` is 0 too. `progress(done, of, what)` reports the progress of
    long work. `spread(params, parts)` has client actors compute `Algorithm.init_part` for each part, and returns the
    results in the order of the parts; None: there is only one process.
    """

    data: Any
    dev: Any
    seed: int
    device: str = "cpu"
    assets: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[int, int, str], None] = lambda done, of, what: None
    spread: Callable[[Vector, Sequence[Any]], list[Any]] | None = None
    round: int = 0


@dataclass(frozen=True)
class Update:
    """What a client sends: its difference from the broadcast, scalars for the strategy, metrics.

    `state` becomes the client's state and never reaches the driver.

    `delta` is `NOTHING` if the algorithm trains no parameters. `vectors` are float32 [size] and travel up with `delta`.
    All clients send the same names and sizes. The strategy weighs a client's vectors like its delta: a strategy
    with a weight for each layer judges each vector as one more layer, coordinate-wise strategies combine each number,
    and distances between clients include the vectors. `clip_norm` bounds `delta` alone.
    """

    delta: Vector
    report: Mapping[str, float]
    metrics: Metrics = field(default_factory=Metrics)
    state: State | None = None
    vectors: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """The aggregated result of a round.

    `clients`: the weighted mean of the clients' deltas, empty if clients send no parameters, None if no client
    answered. `server`: the delta that the server trained, None if it trains nothing. `vectors`: the weighted mean of
    each of the updates' vectors, with the same weights; {} if no client answered. `answered`: how many clients' updates
    count, which leaves out failed clients and those without examples. `population`: how many clients the federation
    has.
    """

    clients: Vector | None
    server: Vector | None = None
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    answered: int = 0
    population: int = 0


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a shard, and one row per scored item for predictions.tsv."""

    metrics: Metrics
    predictions: list[dict[str, Any]] = field(default_factory=list)


class RunError(RuntimeError):
    """A run cannot continue; the message says why. Nothing that was committed is lost."""


class FederatedData(Protocol):
    """The data of a federation.

    Data is loaded when it is asked for, so a population of a million takes only the memory of its ids.
    """

    def client_ids(self) -> Sequence[str]:
        """The ids of all clients."""

    def cost(self, client: str) -> float:
        """The work of training on the client, in utterances."""

    def load(self, client: str) -> Any:
        """The client's training data."""

    def server(self) -> Any:
        """The server's labelled data; None if it has none."""

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> Any:
        """The data of a split ("dev", "test", ...), which has a length, or part `index` of `count` of it.

        The parts are always the same.
        """

    def client_part(self, client: str, split: str) -> Any:
        """The client's part of a split, such as the part in its domain; None: the client uses the whole split."""

    def splits(self) -> Sequence[str]:
        """The names of the splits that are scored."""


class AuditedData(FederatedData, Protocol):
    """A federation with the candidates of an audit. Candidates outside are not among `client_ids`."""

    candidates: Mapping[str, bool]  # name -> whether the candidate is inside

    def judged(self, client: str) -> Any:
        """The data on which a candidate is judged, whether or not it is a client."""


class ObservedData(FederatedData, Protocol):
    """A federation whose updates an audit observes. Auxiliary clients are not among `client_ids`."""

    candidates: Mapping[str, bool]  # name -> whether the client takes part: it is under attack; else it is auxiliary
    attributes: Mapping[str, Mapping[str, str]]  # attribute -> client -> its value, if it is known

    def half(self, client: str, part: int) -> Any:
        """Half `part`, 0 or 1, of the client's training data. The halves have nothing in common."""


class PoisonedData(FederatedData, Protocol):
    """A federation whose attackers have data of their own making, see `fedray.core.attackers`."""

    def poisoned(self, client: str) -> Any:
        """What an attacker trains on while it attacks."""


class GroupedData(FederatedData, Protocol):
    """A federation whose speakers are in groups, from `data.groups`."""

    groups: Mapping[str, str]  # speaker -> group; {}: there are no groups

    def client_groups(self) -> Mapping[str, str]:
        """Client -> the group of most of its utterances."""
