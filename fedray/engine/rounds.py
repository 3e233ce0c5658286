"""The round loop: cohort, lanes, broadcast, training, merging, server update, evaluation, checkpoint, one row of metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedray.core import serialize
from fedray.core.metrics import Metrics
from fedray.core.strategies import OnePass
from fedray.core.sums import PartialSum
from fedray.core.types import Broadcast, Change, Evaluation, RunError, ServerState, Update
from fedray.engine import cohort as cohorts
from fedray.engine.actors import read_text
from fedray.engine.aggregation import Aggregate, aggregate
from fedray.engine.folder import ClientRecord, Progress
from fedray.engine.lanes import Failure, Lane, LaneResult
from fedray.engine.pool import Job, Lost, Pool
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.engine.watches import Phases
from fedray.engine.work import Program

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

    partial: PartialSum  # metrics
    aggregate: Aggregate
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
        self.layers = tuple(self.algorithm.layers())
        self.first: Any = None  # the broadcast of round 0, in the object store
        self._first_bytes = 0
        self.phases = Phases()
        self._put: tuple[ServerState, int, Broadcast, Any] | None = None  # the newest broadcast, and where it is
        own = plan.engine.placement == "dedicated"
        self._slots = {client: slot for slot, client in enumerate(program.data.client_ids())} if own else {}

    def start(self, initial: ServerState) -> None:
        """Put the broadcast of round 0 where clients that take part for the first time find it."""
        broadcast, self.first = self.put(initial, 0)
        self._first_bytes = size(broadcast)

    def put(self, state: ServerState, round: int) -> tuple[Broadcast, Any]:
        """The broadcast, put into the object store once: the model that is scored after a round is the next round's."""
        if self._put is None or self._put[0] is not state or self._put[1] != round:
            with self.phases("broadcast"):
                broadcast = self.algorithm.broadcast(state, round)
                self._put = (state, round, broadcast, ray.put(broadcast))
        return self._put[2], self._put[3]

    def train(self, progress: Progress) -> Outcome:
        """One round on `progress.state`, without changing it."""
        t, data, settings = progress.round, self.program.data, self.plan.cohort
        chosen = cohorts.sample(data.client_ids(), settings, data.cost, self.program.seed, t)
        answering = [client for client in chosen if not cohorts.drops_out(client, settings, self.program.seed, t)]
        broadcast, reference = self.put(progress.state, t)
        own = self.plan.evaluation.own_utterances if self._scores_own(t + 1) else 0
        jobs: dict[Hashable, Job] = {}
        for number, clients in enumerate(cohorts.cut(answering, self.plan.engine.lanes, data.cost)):
            versioned = tuple((client, progress.clients[client].version if client in progress.clients else None) for client in clients)
            lane = Lane(number, t, versioned, own=own, marker=self.markers / f"lane_{number}")
            jobs[number] = Job("train_lane", (lane, reference, self.first), sum(map(data.cost, clients)))
        if self.algorithm.overrides("server_train"):
            jobs["server"] = Job("server_train", (t, reference), math.inf)  # one piece that cannot be cut: first to start
        lanes, server, partial, aggregate = self._trained(jobs, t)
        down = len(chosen) * size(broadcast)
        down += sum(client not in progress.clients for client in chosen) * 4 * broadcast.constant
        if self.algorithm.prepare_reads:
            down += sum(len(lane.prepared) for lane in lanes) * (self.asset_bytes + (self._first_bytes if t else 0))  # theta_0 once
        return Outcome(partial, aggregate, lanes, server, len(chosen), len(chosen) - len(answering), down, broadcast.settings)

    def _scores_own(self, round: int) -> bool:
        """Whether the own models of a round's cohort are scored: counted from 1, and the last one always."""
        every = self.plan.evaluation.own_every
        possible = every > 0 and "dev" in self.program.data.splits() and self.algorithm.overrides("client_evaluate")
        return possible and (round % every == 0 or round == self.plan.rounds)

    def _trained(self, jobs: Mapping[Hashable, Job], round: int) -> tuple[list[LaneResult], Update | None, PartialSum, Aggregate]:
        """All lanes trained and aggregated. What is lost with an actor that held it is trained again: to the same bits."""
        strategy, results, holders = self.algorithm.strategy, dict[Hashable, Any](), dict[Hashable, int]()
        while True:
            try:
                kept = {key for key in results if isinstance(strategy, OnePass) or key == "server" or self.pool.lives(holders[key])}
                missing = {key: job for key, job in jobs.items() if key not in kept}
                found, where = self._lanes(missing)
                results |= found
                holders |= where
                lanes = [results[key] for key in jobs if key != "server"]
                partial = PartialSum()
                with self.phases("merge"):
                    for lane in lanes:
                        partial.merge(lane.partial)
                    held = [holders[n] for n in jobs if n != "server"]
                    aggregated = aggregate(self.pool, strategy, self.layers, round, lanes, held, partial)
                return lanes, results.get("server"), partial, aggregated
            except Lost:  # every loss has used up a replacement, so this ends
                self.note("warning", {"text": "an actor died with updates that it held; they are trained again"})

    def _lanes(self, jobs: Mapping[Hashable, Job]) -> tuple[dict[Hashable, Any], dict[Hashable, int]]:
        """Train these lanes (and the server): the results, and which actor has each lane's updates."""
        if not self._slots:
            return self._run(jobs), self.pool.where
        # A client an actor: those of a lane train side by side, the lane's first folds.
        single: dict[Hashable, Job] = {}
        for key, job in jobs.items():
            lane, *rest = job.arguments
            if isinstance(lane, Lane):
                for client, version in lane.clients:
                    own = replace(lane, clients=((client, version),), marker=self.markers / f"client_{self._slots[client]}")
                    single[key, client] = Job("train_client", (own, *rest), self.program.data.cost(client), self._slots[client], keep=True)
            else:
                single[key] = job
        trained = self._run(single)
        lanes: dict[Hashable, list[Any]] = {
            key: [trained[key, client] for client, _ in job.arguments[0].clients] for key, job in jobs.items() if key != "server"
        }
        gathering: dict[Hashable, Job] = {}
        for key, parts in lanes.items():
            lane = jobs[key].arguments[0]
            gathering[key] = Job("gather_lane", (lane, *(updates for updates, _ in parts)), slot=self._slots[lane.clients[0][0]])
        sums, results = self.pool.run(gathering), dict[Hashable, Any]()
        where = self.pool.where
        for key, parts in lanes.items():
            results[key] = LaneResult()
            for _, result in parts:
                results[key].extend(result)
            results[key].partial.updates = sums[key]
        return results | {key: trained[key] for key in jobs if key == "server"}, where

    def prepare(self, ids: Sequence[str]) -> tuple[list[LaneResult], int]:
        """Give these clients their first state, in lanes of about 32; the lanes, and the bytes that went down."""
        pieces = [ids[i : i + 32] for i in range(0, len(ids), 32)]
        jobs: dict[Hashable, Job] = {
            n: Job("prepare_lane", (Lane(n, 0, tuple((client, None) for client in piece), marker=self.markers / f"lane_{n}"), self.first))
            for n, piece in enumerate(pieces)
        }
        lanes = list(self._run(jobs).values())
        sent = self._first_bytes + self.asset_bytes if self.algorithm.prepare_reads else 0
        return lanes, sum(len(lane.prepared) for lane in lanes) * sent

    def _run(self, jobs: Mapping[Hashable, Job]) -> dict[Hashable, Any]:
        """On the pool. A client that is at work when its actor dies is noted; at the second time it is left out."""
        deaths: Counter[str] = Counter()

        def on_death(key: Hashable, job: Job, node: str) -> Job:
            lane = job.arguments[0]
            if not isinstance(lane, Lane) or lane.marker is None:
                return job
            text = read_on(node, lane.marker)
            client = None if text is None else lane.marked(text)
            lane = replace(lane, attempt=lane.attempt + 1)
            if client is not None:
                deaths[client] += 1
                self.note("warning", {"text": f"an actor died while client {client} was at work; lane {lane.number} is done again"})
                if deaths[client] > DEATHS_ALLOWED:
                    reason = f"killed its actor {deaths[client]} times (out of memory, or a crash in native code): left out of this round"
                    lane = replace(lane, excluded={**lane.excluded, client: reason})
            return replace(job, arguments=(lane, *job.arguments[1:]))

        return self.pool.run(jobs, on_death)

    def finish(self, progress: Progress, outcome: Outcome) -> ServerState:
        """theta_{t+1}: the server update, and what the server does after it."""
        change = Change(outcome.aggregate.mean, outcome.server.delta if outcome.server is not None else None)
        if change.server is not None and not np.isfinite(change.server).all():
            raise RunError("what the server learnt itself holds NaN or infinite values: lower algorithm.server.lr, or clip its gradients")
        with self.phases("update"):
            state = self.algorithm.server_update(progress.state, change, progress.round)
            if self.algorithm.overrides("server_finish"):
                state = self.pool.run({0: Job("server_finish", (progress.round, state))})[0]
        return ServerState(state.params, serialize.plain(state.extra))

    def evaluate(self, state: ServerState, round: int, splits: list[str], final: bool) -> dict[str, Evaluation]:
        """Each split scored in shards, merged in shard order."""
        _, reference = self.put(state, round)
        shards = self.plan.evaluation.shards
        jobs: dict[Hashable, Job] = {
            (split, shard): Job("evaluate", (split, shard, shards, round, reference, final)) for split in splits for shard in range(shards)
        }
        with self.phases("evaluate"):
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


def size(broadcast: Broadcast) -> int:
    """Bytes of a broadcast as it would travel: float32 parameters, without the constant ones, and 8 bytes a setting."""
    return broadcast.params.nbytes - 4 * broadcast.constant + 8 * len(broadcast.settings)


def read_on(node: str, path: Path) -> str | None:
    """The text of a file on a node of the cluster; None when node or file is gone."""
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    try:
        return str(ray.get(ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(read_text).remote(path), timeout=30))
    except (RayError, OSError):
        return None
