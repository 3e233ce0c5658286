"""A lane at work: its clients hydrated, trained and checked one after the other, each update handed on at once."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.seeds import seed_all
from fedray.core.strategies import OnePass, Strategy
from fedray.core.sums import PartialSum
from fedray.core.types import Client, Received, RunError, State, Update, Vector
from fedray.engine import own
from fedray.engine.work import Program, hydrate, prepare

Take = Callable[[str, Vector, float], None]  # client, update, log-weight: where a sound update goes
PHASES = ("hydrate", "prepare", "train", "own", "fold")


@dataclass(frozen=True)
class Lane:
    """Clients to train in this order, each with the version of its state (None: it has none yet)."""

    number: int
    round: int
    clients: tuple[tuple[str, int | None], ...]
    excluded: Mapping[str, str] = field(default_factory=dict)  # client -> why it is not tried again
    attempt: int = 0
    own: int = 0  # utterances of dev that the clients' own models are scored on; 0: none
    marker: Path | None = None  # where the client in work is written down, for the case that it kills its actor

    @contextmanager
    def marking(self) -> Iterator[Callable[[str], None]]:
        """A function that writes down the client that is at work."""
        if self.marker is None:
            yield lambda client: None
            return
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        with self.marker.open("wb", buffering=0) as file:

            def mark(client: str) -> None:
                text = f"{self.round} {self.attempt} {client}".encode()
                os.pwrite(file.fileno(), text, 0)
                os.ftruncate(file.fileno(), len(text))

            yield mark

    def marked(self, text: str) -> str | None:
        """The client that a marker's text names, if it is of this very attempt."""
        before, found, client = text.partition(f"{self.round} {self.attempt} ")
        return client if found and not before else None


@dataclass(frozen=True)
class Failure:
    client: str
    reason: str
    traceback: str


@dataclass
class LaneResult:
    """What a lane sends to the driver; its size does not depend on how many clients it has, but for one small record each."""

    partial: PartialSum = field(default_factory=PartialSum)
    reports: dict[str, dict[str, float]] = field(default_factory=dict)  # of the clients that succeeded, in their order
    failures: list[Failure] = field(default_factory=list)
    written: list[str] = field(default_factory=list)  # clients with a new version of their state
    prepared: list[str] = field(default_factory=list)
    found: int = 0  # of these, how many states an earlier run had kept
    size: int = 0  # of each update
    up_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def extend(self, other: LaneResult) -> None:
        """Add what came of the next clients of the same lane."""
        self.partial.merge(other.partial)
        self.reports |= other.reports
        for name in ("failures", "written", "prepared"):
            getattr(self, name).extend(getattr(other, name))
        self.size = self.size or other.size
        self.up_bytes += other.up_bytes
        self.found += other.found
        self.seconds = {phase: self.seconds[phase] + other.seconds[phase] for phase in PHASES}


class LaneRun:
    """Trains one lane. A client that fails is recorded with its traceback, and the lane goes on with the next."""

    def __init__(self, program: Program, lane: Lane, received: Received, first: Received) -> None:
        self.program, self.lane, self.received, self.first = program, lane, received, first
        self.result = LaneResult()
        self._left = iter(lane.clients)
        self._out: list[tuple[str, State | None]] = []  # handed out, not yet answered: client, the state prepared for it just now
        self._mark = 0.0
        self._scored: dict[str, Any] | None = None  # what own models are scored on

    def run(self, take: Take) -> LaneResult:
        finished = False
        while not finished:
            self._out.clear()
            self._mark = time.perf_counter()
            try:
                for update in self.program.algorithm.lane_update(self.clients(), self.received):
                    self._lap("train")
                    client, prepared = self._out.pop(0)
                    self._guard(client, self._accept, client, update, prepared, take)
                    self._lap("fold")
                for client, _ in self._out:
                    self._fail(client, RuntimeError("lane_update gave no update for this client"))
                finished = True
            except RunError:  # a full disk is no client's fault
                raise
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
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is: recorded with its traceback, counted and judged by the driver
            self._fail(client, error)
            return None

    def clients(self) -> Iterator[Client]:
        """The lane's clients with data, seed and state; one that cannot be had is recorded and left out."""
        with self.lane.marking() as mark:
            for name, version in self._left:
                if name in self.lane.excluded:
                    self.result.failures.append(Failure(name, self.lane.excluded[name], ""))
                    continue
                mark(name)
                hydrated = self._guard(name, self._hydrate, name, version)
                if hydrated is not None:
                    client, prepared = hydrated
                    self._out.append((name, prepared))
                    yield client

    def _hydrate(self, name: str, version: int | None) -> tuple[Client, State | None]:
        client, prepared = hydrate(self.program, name, version, self.lane.round), None
        self._lap("hydrate")
        if version is None and self.program.algorithm.overrides("client_prepare"):
            prepared, found = prepare(self.program, client, self.first)
            if prepared is not None:
                client = replace(client, state=prepared)
                self.result.prepared.append(name)
                self.result.found += found
            self._lap("prepare")
        seed_all(client.seed)
        return client, prepared

    def _accept(self, client: str, update: Update, prepared: State | None, take: Take) -> None:
        """Check an update, keep the client's state, hand the update on."""
        delta, strategy = update.delta, self.program.algorithm.strategy
        if not finite(delta):
            raise ValueError("the update holds NaN or infinite values: lower the client's learning rate, or clip its gradients")
        if self.result.size and delta.size != self.result.size:
            raise ValueError(f"the update has {delta.size:,} numbers, those of other clients {self.result.size:,}")
        log_weight = weight(strategy, update.report)
        delta = strategy.clip(delta)
        partial, report = self.result.partial, dict(update.report)
        metrics = partial.metrics + update.metrics
        state = update.state if update.state is not None else prepared
        scored = partial.own + self._evaluate(client, state)
        if state is not None:  # nothing fails from here on: a state on disk is the state of a client that counts
            self.program.states.save(client, self.lane.round + 1, state)
            self.result.written.append(client)
        take(client, delta, log_weight)
        partial.metrics, partial.own = metrics, scored
        self.result.size = delta.size
        self.result.reports[client] = report
        self.result.up_bytes += (delta.nbytes if update.sent is None else update.sent) + 8 * len(report)

    def _evaluate(self, client: str, state: State | None) -> Metrics:
        """The client's own model, where it is to be scored: every client has one vote."""
        if not self.lane.own:
            return Metrics()
        self._lap("fold")
        if self._scored is None:
            self._scored = {"dev": own.part(self.program, "dev", self.lane.own)}
        trained = Client(client, self.program.data.load(client), 0)
        mine = self.program.data.own(client, "dev")
        scores = own.score(self.program, trained, state, self.received, self._scored if mine is None else {"dev": mine})["dev"]
        self._lap("own")
        return own.one_vote(scores)


def finite(delta: Vector) -> bool:
    """Whether no number is NaN or infinite. A sum tells at once; only where it overflows must each be looked at."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(delta)
    return bool(np.isfinite(total)) or bool(np.isfinite(delta).all())


def weight(strategy: Strategy, report: Mapping[str, float]) -> float:
    """The log-weight of a report; one that the strategy cannot weigh is a ValueError."""
    if not isinstance(strategy, OnePass):  # it weighs later, when it has seen everyone
        return 0.0 if votes(report) else -math.inf
    try:
        log_weight = strategy.log_weight(report)
    except KeyError as error:
        known = ", ".join(report)
        raise ValueError(f"the strategy weighs by {error}, which this algorithm's clients do not report (they report {known})") from error
    if np.isnan(log_weight) or log_weight == np.inf:
        raise ValueError(f"the strategy cannot weigh the report {dict(report)}")
    return log_weight


def votes(report: Mapping[str, float]) -> bool:
    """Whether a client's update counts where every client has one vote: not if it learnt from nothing."""
    return report.get("examples", 1.0) > 0


def prepare_lane(program: Program, lane: Lane, first: Received) -> LaneResult:
    """Prepare clients without training them; their states become version 0."""
    run = LaneRun(program, lane, first, first)
    for client in run.clients():
        if client.state is not None:
            program.states.save(client.id, 0, client.state)
            run.result.written.append(client.id)
    return run.result
