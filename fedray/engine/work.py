"""What a client actor does, as plain functions of what it is given: nothing here knows Ray, so all of it can be called in a test."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from fedray.core import serialize
from fedray.core.algorithm import Algorithm
from fedray.core.metrics import Metrics
from fedray.core.seeds import derive, seed_all
from fedray.core.strategies import OnePass
from fedray.core.sums import PartialSum
from fedray.core.types import Broadcast, Client, Evaluation, FederatedData, Received, Server, ServerState, State, Update
from fedray.engine.store import ClientStore, folder_name


@dataclass(frozen=True)
class Program:
    """All that an actor needs to know about a run, sent to it once."""

    algorithm: Algorithm
    data: FederatedData
    seed: int
    states: ClientStore
    init_cache: Path | None = None  # where theta_0 is kept between runs
    prepare_cache: Path | None = None  # where prepared client states are


@dataclass(frozen=True)
class Lane:
    """Clients to train in this order, each with the version of its state (None: it has none yet)."""

    number: int
    round: int
    clients: tuple[tuple[str, int | None], ...]
    excluded: Mapping[str, str] = field(default_factory=dict)  # client -> why it is not tried again
    marker: Path | None = None  # where the client in work is written down, for the case that it kills its actor


@dataclass(frozen=True)
class Failure:
    client: str
    reason: str
    traceback: str


@dataclass
class LaneResult:
    """What a lane sends to the driver; its size does not depend on how many clients it has, but for one small record each."""

    partial: PartialSum = field(default_factory=PartialSum)
    reports: dict[str, dict[str, float]] = field(default_factory=dict)  # of the clients that succeeded
    failures: list[Failure] = field(default_factory=list)
    written: list[str] = field(default_factory=list)  # clients with a new version of their state
    prepared: list[str] = field(default_factory=list)
    up_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # by phase: hydrate, prepare, train, fold


class LaneRun:
    """Trains one lane. A client that fails is recorded with its traceback, and the lane goes on with the next."""

    def __init__(self, program: Program, lane: Lane, received: Received, first: Received) -> None:
        self.program, self.lane, self.received, self.first = program, lane, received, first
        self.result = LaneResult(seconds=dict.fromkeys(("hydrate", "prepare", "train", "fold"), 0.0))
        self._left = iter(lane.clients)
        self._out: list[tuple[str, State | None]] = []  # handed out, not yet answered: client, the state prepared for it just now
        self._mark = 0.0

    def run(self) -> LaneResult:
        assert isinstance(self.program.algorithm.strategy, OnePass)
        finished = False
        while not finished:
            self._out.clear()
            self._mark = time.perf_counter()
            try:
                for update in self.program.algorithm.lane_update(self._clients(), self.received):
                    self._lap("train")
                    client, prepared = self._out.pop(0)
                    self._guard(client, self._fold, client, update, prepared)
                    self._lap("fold")
                for client, _ in self._out:
                    self._fail(client, RuntimeError("lane_update gave no update for this client"))
                finished = True
            except Exception as error:  # from the algorithm: it cost the clients it was at work on, not the lane
                if not self._out:
                    raise
                for client, _ in self._out:
                    self._fail(client, error)
        return self.result

    def _lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.result.seconds[phase] += now - self._mark
        self._mark = now

    def _fail(self, client: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self.result.failures.append(Failure(client, reason, "".join(traceback.format_exception(error))))

    def _guard(self, client: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is: recorded with its traceback, counted and judged by the driver
            self._fail(client, error)
            return None

    def _clients(self) -> Iterator[Client]:
        for name, version in self._left:
            if name in self.lane.excluded:
                self.result.failures.append(Failure(name, self.lane.excluded[name], ""))
                continue
            if self.lane.marker is not None:
                self.lane.marker.write_text(name, encoding="utf-8")
            hydrated = self._guard(name, self._hydrate, name, version)
            if hydrated is not None:
                client, prepared = hydrated
                self._out.append((name, prepared))
                yield client

    def _hydrate(self, name: str, version: int | None) -> tuple[Client, State | None]:
        client, prepared = hydrate(self.program, name, version, self.lane.round), None
        self._lap("hydrate")
        if version is None and self.program.algorithm.overrides("client_prepare"):
            prepared = prepare(self.program, client, self.first)
            if prepared is not None:
                client = replace(client, state=prepared)
                self.result.prepared.append(name)
            self._lap("prepare")
        seed_all(client.seed)
        return client, prepared

    def _fold(self, client: str, update: Update, prepared: State | None) -> None:
        strategy = self.program.algorithm.strategy
        assert isinstance(strategy, OnePass)
        if not np.isfinite(update.delta).all():
            raise ValueError("the update holds NaN or infinite values: lower the client's learning rate, or clip its gradients")
        try:
            log_weight = strategy.log_weight(update.report)
        except KeyError as error:
            known = ", ".join(update.report)
            raise ValueError(
                f"the strategy weighs by {error}, which this algorithm's clients do not report (they report {known})"
            ) from error
        if np.isnan(log_weight) or log_weight == np.inf:
            raise ValueError(f"the strategy cannot weigh the report {dict(update.report)}")
        partial, report = self.result.partial, dict(update.report)
        total = partial.updates.total
        if total is not None and total.shape != update.delta.shape:
            raise ValueError(f"the update has {update.delta.size:,} numbers, those of other clients {total.size:,}")
        metrics = partial.metrics + update.metrics
        state = update.state if update.state is not None else prepared
        own = partial.own + self._evaluate(client, state)
        if state is not None:  # nothing fails from here on: a state on disk is the state of a client that counts
            self.program.states.save(client, self.lane.round + 1, state)
            self.result.written.append(client)
        partial.updates.add(strategy.clip(update.delta), log_weight)
        partial.metrics, partial.own = metrics, own
        self.result.reports[client] = report
        self.result.up_bytes += update.delta.nbytes + 8 * len(update.report)

    def _evaluate(self, client: str, state: State | None) -> Metrics:
        """The client's own model, where the algorithm has such."""
        if not self.program.algorithm.overrides("client_evaluate"):
            return Metrics()
        seed = derive(self.program.seed, "client_evaluate", self.lane.round, client)
        seed_all(seed)
        return self.program.algorithm.client_evaluate(Client(client, self.program.data.load(client), seed, state), self.received)


def hydrate(program: Program, name: str, version: int | None, round: int) -> Client:
    """The client with its data, its seed of the round, and its state."""
    if program.data.cost(name) <= 0:
        raise ValueError(f"client {name} has no data: raise data.clients.min_utterances, or leave it out of the corpus")
    state = None if version is None else program.states.load(name, version)
    return Client(name, program.data.load(name), derive(program.seed, "client", round, name), state)


def prepare(program: Program, client: Client, first: Received) -> State | None:
    """The client's first state, from the broadcast of round 0: the same at whichever round it is made. Kept between runs."""
    path = None
    if program.prepare_cache is not None:
        model = hashlib.blake2b(first.params.tobytes(), digest_size=8).hexdigest()
        path = program.prepare_cache / model / f"{folder_name(client.id)}.pt"
        if path.exists():
            return cache_entry(path)
    seed_all(program.seed, "prepare", client.id)
    state = program.algorithm.client_prepare(client, first)
    if state is None:
        return None
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        serialize.save(state, path)
    return serialize.plain(state)


def cache_entry(path: Path) -> dict[str, Any]:
    try:
        return serialize.load(path)
    except ValueError as error:
        raise ValueError(f"{error}; it is a cache: remove it, and it is made again") from error


def prepare_lane(program: Program, lane: Lane, first: Received) -> LaneResult:
    """Prepare clients without training them; their states become version 0."""
    run = LaneRun(program, lane, first, first)
    for client in run._clients():
        if client.state is not None:
            program.states.save(client.id, 0, client.state)
            run.result.written.append(client.id)
    return run.result


def server(
    program: Program, round: int | None, device: str, assets: Mapping[str, Any], progress: Callable[[int, int, str], None]
) -> Server:
    """The server's own data, with a seed for the round (None: before the first)."""
    seed = derive(program.seed, "server", "init" if round is None else round)
    seed_all(seed)
    dev = program.data.evaluation("dev") if "dev" in program.data.splits() else None
    return Server(program.data.server(), dev, seed, device, assets, progress)


def init(program: Program, make_server: Callable[[], Server]) -> ServerState:
    """theta_0, from the cache where there is one; one writer under a lock, so trials of a sweep wait for the first."""
    path = program.init_cache
    if path is None:
        state = program.algorithm.init(make_server())
        return ServerState(state.params, serialize.plain(state.extra))
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            state = program.algorithm.init(make_server())
            serialize.save({"params": state.params, "extra": state.extra}, path)
        loaded = cache_entry(path)
    return ServerState(loaded["params"], loaded["extra"])


def evaluate(program: Program, split: str, shard: int, shards: int, received: Received, final: bool) -> Evaluation:
    seed_all(program.seed, "evaluate", split, shard)
    return program.algorithm.evaluate(program.data.evaluation(split, shard, shards), received, final)


def arrive(broadcast: Broadcast, round: int, assets: Mapping[str, Any], device: str) -> Received:
    return Received(broadcast.params, broadcast.settings, round, assets, device)
