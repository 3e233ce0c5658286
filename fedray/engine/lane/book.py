"""The book of a lane: its clients are hydrated, their updates checked and handed on, their errors recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Self

from fedray.core.metrics import Metrics
from fedray.core.packing import Packing
from fedray.core.seeds import seed_all
from fedray.core.types import OWN, Broadcast, Client, Received, RunError, State, Update
from fedray.core.vectors import finite
from fedray.engine.jobs.deaths import doom
from fedray.engine.jobs.job import Workplace
from fedray.engine.jobs.soundness import check_update, sizes
from fedray.engine.jobs.work import hydrate, prepare
from fedray.engine.lane import personal
from fedray.engine.lane.aggregation import Take
from fedray.engine.lane.guarded import outgoing
from fedray.engine.lane.harm import Harm
from fedray.engine.lane.lane import Failure, Lane, LaneResult
from fedray.engine.lane.uplink import Uplink
from fedray.runs.client_states import Written


class LaneBook:
    """The records of a lane in training. A failed client is recorded with its traceback; the lane continues."""

    def __init__(
        self, workplace: Workplace, lane: Lane, received: Received, first: Received | None, allowed: Sequence[int] = ()
    ) -> None:
        """`allowed`: the lengths of a client's delta."""
        self.program, self.lane, self.received, self.first = workplace.program, lane, received, first
        self._raises = workplace.raises
        self.allowed = allowed
        self.result = LaneResult()
        self.closed = False
        self._left = iter(lane.clients)
        self._out: list[tuple[Client, State | None]] = []  # in training, with the states prepared for them just now
        self._since = time.perf_counter()  # when the current phase began
        self._uplink = Uplink(workplace.program, lane, received)
        self._outgoing = outgoing(lane, workplace.program.algorithm, workplace.layers)
        self._harm = None if lane.attack is None else Harm(lane.attack, lane, workplace.program)
        self._waiting: list[tuple[Client, Update, State | None]] = []  # attackers that collude
        self._dev: dict[str, Any] | None = None  # the shared data that personal models are scored on

    @classmethod
    def of(cls, workplace: Workplace, lane: Lane, broadcast: Broadcast, first: Broadcast | None) -> Self:
        """The book of a lane that trains from a broadcast. `first`: that of round 0, if clients prepare."""
        received = replace(workplace.receive(broadcast, lane.trains_from), together=lane.together)
        before = None if first is None else workplace.receive(first, 0)
        return cls(workplace, lane, received, before, sizes(workplace.layers, broadcast))

    def clients(self) -> Iterator[Client]:
        """The lane's clients with data, seed and state. A client that cannot be hydrated is recorded as failed."""
        with self.lane.marking() as mark:
            for name, written in self._left:
                if name in self.lane.excluded:
                    self.result.failures.append(Failure(name, self.lane.excluded[name], ""))
                    continue
                mark(name)
                hydrated: tuple[Client, State | None] | None = None
                with self._blaming(name):
                    hydrated = self._hydrate(name, written)
                if hydrated is not None:
                    self._out.append(hydrated)
                    yield hydrated[0]

    def accept(self, update: Update | Exception, take: Take) -> None:
        """Check the update of the next client in training, write the client's state, and pass the update on.

        An exception in place of the update is recorded as the client's failure.
        """
        self._lap("train")
        client, prepared = self._out.pop(0)
        with self._blaming(client.id):
            if isinstance(update, Exception):
                raise update
            if self._harm is not None:
                update = self._harm.alone(client.id, update)
            if self._harm is not None and self._harm.colludes and finite(update.delta):
                self._waiting.append((client, update, prepared))
            else:
                self._accept(client, update, prepared, take)
        self._lap("fold")

    def close(self, take: Take) -> None:
        """Accept what colluding attackers send, and record clients without an update: the algorithm has no more."""
        if self._harm is not None:
            updates = self._harm.together([update for _, update, _ in self._waiting])
            for (client, _, prepared), update in zip(self._waiting, updates, strict=True):
                with self._blaming(client.id):
                    self._accept(client, update, prepared, take)
            self._waiting = []
        for client, _ in self._out:
            error = RuntimeError("lane_update gave no update for this client")
            self.result.failures.append(Failure.of(client.id, error))
        self.closed = True

    def finished(self) -> LaneResult:
        """The lane's result, once its clients' states would survive a power loss: a checkpoint may name them."""
        self.program.states.sync(self.result.written)
        self._lap("fold")
        return self.result

    @contextmanager
    def blaming_clients(self) -> Iterator[None]:
        """Record an error of the algorithm as a failure of the clients in training; the lane continues."""
        self._out.clear()
        self._since = time.perf_counter()
        with self._blaming(None):
            yield

    @contextmanager
    def _blaming(self, client: str | None) -> Iterator[None]:
        """Record an error as this client's failure. None: as that of all in training; raise it if there are none."""
        try:
            yield
        except RunError:  # a full disk is no client's fault
            raise
        except Exception as error:  # any error: recorded with its traceback; the driver counts and judges it
            if (doomed := doom(error)) is not None:  # this actor cannot continue to the next client
                raise doomed from error
            blamed = [training.id for training, _ in self._out] if client is None else [client]
            if not blamed:
                raise
            if self._raises:
                error.add_note(f"client {', '.join(blamed)} in round {self.lane.round + 1}")
                raise
            self.result.failures += [Failure.of(name, error) for name in blamed]

    def _lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.result.seconds[phase] += now - self._since
        self._since = now

    def _hydrate(self, name: str, written: Written | None) -> tuple[Client, State | None]:
        """The client, and the state that was prepared for it just now, if any."""
        lane, prepared = self.lane, None
        client = self._uplink.admit(hydrate(self.program, name, written, lane.trains_from, lane.work.get(name, 1.0)))
        self._lap("hydrate")
        if written is None and self.first is not None and self.program.algorithm.overrides("client_prepare"):
            prepared, cached = prepare(self.program, client, self.first)
            if prepared is not None:
                client = replace(client, state=prepared)
                self.result.prepared.append(name)
                self.result.cached += cached
            self._lap("prepare")
        if self._harm is not None:
            client = self._harm.poisoned(client)
        seed_all(client.seed)
        return client, prepared

    def _accept(self, trained: Client, update: Update, prepared: State | None, take: Take) -> None:
        client = trained.id
        check_update(update)
        sent = self._uplink.send(client, update)
        packing = self._check(sent.update)
        report, result = dict(update.report), self.result
        log_weight = self._outgoing.log_weight(report)
        flat = self._outgoing.flat(sent.update, packing, client)
        metrics = result.partial.metrics + update.metrics
        own = update.state if update.state is not None else prepared
        scores = result.partial.personal + self._score(trained if own is None else replace(trained, state=own))
        state = sent.state(own, log_weight != -math.inf)
        if state is not None:  # nothing fails from here on: a state on disk is the state of a client that counts
            result.written[client] = self.program.states.save(client, self.lane.round + 1, state)
        take(client, flat, log_weight)
        self._outgoing.taken(result)
        result.partial.metrics, result.partial.personal = metrics, scores
        result.packing = packing
        result.counted += log_weight != -math.inf
        result.reports[client] = report
        result.up_bytes += self._outgoing.bytes(sent.bytes) + 8 * len(report)

    def _check(self, update: Update) -> Packing:
        """The packing of an update that has arrived. ValueError: it cannot be added to those of other clients."""
        check_update(update, self.allowed)
        packing = Packing.of(update)
        if self.result.packing not in (None, packing):
            raise ValueError(f"the update has {packing}, those of other clients {self.result.packing}")
        return packing

    def _score(self, client: Client) -> Metrics:
        """The scores of a client's personal model, if the lane scores them. Every client has one vote."""
        if not self.lane.personal:
            return Metrics()
        self._lap("fold")
        splits = [split for split in ("dev", OWN) if split in self.program.data.splits()]
        if self._dev is None:
            whole = [split for split in splits if split != OWN]
            self._dev = {split: personal.part(self.program, split, self.lane.personal) for split in whole}
        parts = {split: self.program.data.client_part(client.id, split) for split in splits}
        data = self._dev | {split: part for split, part in parts.items() if part is not None}
        scores = personal.score(self.program, client, self.received, data)
        self._lap("personal")
        metrics = (scored.metrics.renamed("" if split == "dev" else f"{split}_") for split, scored in scores.items())
        return personal.one_vote(reduce(add, metrics, Metrics()))
