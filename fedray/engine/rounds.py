"""The round loop: cohort, lanes, broadcast, training, merging, server update, evaluation, checkpoint, one row of metrics."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import ray

from fedray.core import serialize
from fedray.core.metrics import Metrics
from fedray.core.sums import PartialSum
from fedray.core.types import Broadcast, Change, Evaluation, RunError, ServerState, Update
from fedray.engine import cohort as cohorts
from fedray.engine.folder import ClientRecord, Progress
from fedray.engine.pool import Job, Pool
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.engine.work import Failure, Lane, LaneResult, Program

DEATHS_ALLOWED = 1  # a client that was at work when its actor died a second time is left out


@dataclass(frozen=True)
class Plan:
    """The settings of a run that the engine reads itself."""

    rounds: int
    cohort: CohortSettings
    engine: EngineSettings
    evaluation: EvaluationSettings


@dataclass
class Outcome:
    """What a round's lanes brought, merged in lane order."""

    partial: PartialSum
    lanes: list[LaneResult]
    server: Update | None
    cohort: int
    dropped: int
    down_bytes: int
    settings: Mapping[str, float]  # of the broadcast

    @property
    def failures(self) -> list[Failure]:
        return [failure for lane in self.lanes for failure in lane.failures]

    @property
    def succeeded(self) -> int:
        return sum(len(lane.reports) for lane in self.lanes)


class Rounds:
    """Plays rounds on a pool of actors. Holds nothing that a checkpoint does not: `Progress` goes in and comes out."""

    def __init__(
        self, program: Program, plan: Plan, pool: Pool, markers: Path, asset_bytes: int, note: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self.program, self.plan, self.pool, self.note = program, plan, pool, note
        self.algorithm = program.algorithm
        self.markers, self.asset_bytes = markers, asset_bytes
        self.first: Any = None  # the broadcast of round 0, in the object store
        self._first_bytes = 0

    def start(self, initial: ServerState) -> None:
        """Put the broadcast of round 0 where clients that take part for the first time find it."""
        broadcast = self.algorithm.broadcast(initial, 0)
        self.first, self._first_bytes = ray.put(broadcast), size(broadcast)

    def train(self, progress: Progress) -> Outcome:
        """One round on `progress.state`, without changing it."""
        t, data, settings = progress.round, self.program.data, self.plan.cohort
        chosen = cohorts.sample(data.client_ids(), settings, data.cost, self.program.seed, t)
        answering = [client for client in chosen if not cohorts.drops_out(client, settings, self.program.seed, t)]
        broadcast = self.algorithm.broadcast(progress.state, t)
        reference = ray.put(broadcast)
        jobs: dict[Hashable, Job] = {}
        for number, clients in enumerate(cohorts.cut(answering, self.plan.engine.lanes, data.cost)):
            versioned = tuple((client, progress.clients[client].version if client in progress.clients else None) for client in clients)
            lane = Lane(number, t, versioned, marker=self.markers / f"lane_{number}")
            jobs[number] = Job("train_lane", (lane, reference, self.first), sum(map(data.cost, clients)))
        if self.algorithm.overrides("server_train"):
            jobs["server"] = Job("server_train", (t, reference), math.inf)  # one piece that cannot be cut: first to start
        results = self._run_lanes(jobs)
        server = results.pop("server", None)
        lanes = list(results.values())
        partial = reduce(merged, (lane.partial for lane in lanes), PartialSum())
        down = len(chosen) * size(broadcast)
        down += sum(len(lane.prepared) for lane in lanes) * (self.asset_bytes + (self._first_bytes if t else 0))  # theta_0 is sent once
        return Outcome(partial, lanes, server, len(chosen), len(chosen) - len(answering), down, broadcast.settings)

    def prepare_all(self, progress: Progress) -> tuple[list[LaneResult], int]:
        """Give every client its first state, in lanes of about 32; the lanes, and the bytes that went down."""
        ids = [client for client in self.program.data.client_ids() if client not in progress.clients]
        pieces = [ids[i : i + 32] for i in range(0, len(ids), 32)]
        jobs: dict[Hashable, Job] = {
            n: Job("prepare_lane", (Lane(n, 0, tuple((client, None) for client in piece), marker=self.markers / f"lane_{n}"), self.first))
            for n, piece in enumerate(pieces)
        }
        lanes = list(self._run_lanes(jobs).values())
        return lanes, sum(len(lane.prepared) for lane in lanes) * (self._first_bytes + self.asset_bytes)

    def _run_lanes(self, jobs: dict[Hashable, Job]) -> dict[Hashable, Any]:
        deaths: Counter[str] = Counter()

        def on_death(key: Hashable, job: Job) -> Job:
            lane = job.arguments[0]
            if not isinstance(lane, Lane) or lane.marker is None or not lane.marker.exists():
                return job
            client = lane.marker.read_text(encoding="utf-8")
            deaths[client] += 1
            self.note("warning", {"text": f"an actor died while client {client} was at work; lane {lane.number} is done again"})
            if deaths[client] <= DEATHS_ALLOWED:
                return job
            reason = f"killed its actor {deaths[client]} times (out of memory, or a crash in native code): left out of this round"
            lane = replace(lane, excluded={**lane.excluded, client: reason})
            return replace(job, arguments=(lane, *job.arguments[1:]))

        for path in self.markers.glob("lane_*"):
            path.unlink()
        return self.pool.run(jobs, on_death)

    def finish(self, progress: Progress, outcome: Outcome) -> ServerState:
        """theta_{t+1}: the server update, and what the server does after it."""
        change = Change(outcome.partial.updates.mean(), outcome.server.delta if outcome.server is not None else None)
        if change.server is not None and not np.isfinite(change.server).all():
            raise RunError("what the server learnt itself holds NaN or infinite values: lower algorithm.server.lr, or clip its gradients")
        state = self.algorithm.server_update(progress.state, change, progress.round)
        if self.algorithm.overrides("server_finish"):
            state = self.pool.run({0: Job("server_finish", (progress.round, state))})[0]
        return ServerState(state.params, serialize.plain(state.extra))

    def evaluate(self, state: ServerState, round: int, splits: list[str], final: bool) -> dict[str, Evaluation]:
        """Each split scored in shards, merged in shard order."""
        reference = ray.put(self.algorithm.broadcast(state, round))
        shards = self.plan.evaluation.shards
        jobs: dict[Hashable, Job] = {
            (split, shard): Job("evaluate", (split, shard, shards, round, reference, final)) for split in splits for shard in range(shards)
        }
        results = self.pool.run(jobs)
        merged_splits = {}
        for split in splits:
            parts = [results[split, shard] for shard in range(shards)]
            metrics = reduce(lambda a, b: a + b, (part.metrics for part in parts), Metrics()).prefixed(split)
            merged_splits[split] = Evaluation(metrics, [row for part in parts for row in part.predictions])
        return merged_splits

    def record(self, progress: Progress, outcome: Outcome, state: ServerState) -> tuple[Progress, list[tuple[str, int]]]:
        """The progress after the round, and the versions of client states (client, version) that it supersedes."""
        done, clients, superseded = progress.round + 1, dict(progress.clients), []
        for lane in outcome.lanes:
            written = set(lane.written)
            for client, report in lane.reports.items():
                before = clients.get(client, ClientRecord())
                version = done if client in written else before.version
                if client in written and before.version is not None:
                    superseded.append((client, before.version))
                clients[client] = ClientRecord(version, before.rounds + 1, before.failures, done, report)
            for failure in lane.failures:
                before = clients.get(failure.client, ClientRecord())
                clients[failure.client] = replace(before, failures=before.failures + 1, last_round=done)
        totals = dict(progress.totals)
        totals["up_bytes"] += sum(lane.up_bytes for lane in outcome.lanes)
        totals["down_bytes"] += outcome.down_bytes
        totals["failed"] += len(outcome.failures)
        return Progress(state, done, clients, totals, progress.best), superseded

    def check(self, failures: list[Failure], of: int) -> None:
        """Raise when more of a cohort failed than the run allows."""
        if len(failures) > self.plan.engine.failures_allowed * of:
            first = failures[0]
            raise RunError(
                f"{len(failures)} of {of} clients failed, more than engine.failures_allowed ({self.plan.engine.failures_allowed:g}); "
                f"all are in failures.jsonl, the first: client {first.client}: {first.reason}"
            )


def merged(left: PartialSum, right: PartialSum) -> PartialSum:
    left.merge(right)
    return left


def size(broadcast: Broadcast) -> int:
    """Bytes of a broadcast as it would travel: float32 parameters and 8 bytes a setting."""
    return broadcast.params.nbytes + 8 * len(broadcast.settings)


class Stopwatch:
    def __init__(self) -> None:
        self.started = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self.started
