"""The round: cohort, lanes, broadcast, training, merging, server update, evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.strategies import Grouped
from fedray.core.types import OWN, Change, Evaluation, GroupedData, RunError, ServerState
from fedray.engine.actors.stops import Lost
from fedray.engine.jobs.job import Evaluate, Job, Reference, ServerFinish, ServerTrain, Workers
from fedray.engine.jobs.soundness import check_state, sizes, written
from fedray.engine.jobs.work import Program
from fedray.engine.lane.aggregation import Aggregate, TrainedLanes, aggregation_of
from fedray.engine.lane.lane import ClientFailed, Failure, Lane, LaneResult
from fedray.engine.lane.training import PrepareLane, TrainKept, TrainLane
from fedray.engine.lane.tree import large
from fedray.engine.round import cohort as cohorts
from fedray.engine.round.dedicated import train_dedicated
from fedray.engine.round.downlink import Posted
from fedray.engine.round.option import Option
from fedray.engine.round.outcome import Draw, Outcome
from fedray.engine.round.plan import Plan
from fedray.engine.round.trained import SERVER, Trained
from fedray.engine.telemetry.watches import Phases
from fedray.runs.folder import Progress

PREPARED = 32  # clients in a lane that only prepares
LOSSES = 10  # repetitions of the same work after lost objects, before the run fails
T = TypeVar("T")


class Rounds:
    """Runs rounds on a pool of actors. `Progress` goes in and comes out: a checkpoint holds all that a round needs."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        pool: Workers,
        markers: Path,
        asset_bytes: int,
        note: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.program, self.plan, self.pool, self.note = program, plan, pool, note
        self.algorithm, self.named = program.algorithm, type(program.algorithm).__name__
        self.aggregation = aggregation_of(program.algorithm.strategy)
        self.markers, self.asset_bytes = markers, asset_bytes
        self.layers = tuple(self.algorithm.layers())
        self.options: Sequence[Option] = ()
        self.first: Reference = None  # the broadcast of round 0, in the object store
        self.first_bytes = 0
        self._initial: ServerState | None = None
        self.phases = Phases()
        self._put: tuple[ServerState, int, Posted] | None = None  # the newest broadcast, and where it is
        weighs_groups = isinstance(self.algorithm.strategy, Grouped)
        self._groups = cast(GroupedData, program.data).client_groups() if weighs_groups else {}
        dedicated = plan.engine.placement == "dedicated"
        self._slots = {client: slot for slot, client in enumerate(program.data.client_ids())} if dedicated else {}

    def start(self, initial: ServerState) -> None:
        """Put the broadcast of round 0 into the object store, for clients that prepare from it.

        RunError: the state cannot be trained.
        """
        check_state(initial, f"{self.named}.init")
        if not self.algorithm.overrides("client_prepare"):
            return
        self._initial = initial
        posted = self.put(initial, 0)
        self.first, self.first_bytes = posted.clients, posted.bytes

    def go_on(self, initial: ServerState, progress: Progress) -> None:
        """Start again from a checkpoint. RunError: what it names is lost."""
        self.start(initial)
        for option in self.options:
            option.resume(progress)

    def again(self, work: Callable[[], T]) -> T:
        """The result of `work`. If an actor or a node died with inputs, all are put again and `work` is repeated."""
        for _ in range(LOSSES):
            try:
                return work()
            except Lost:
                self.note("warning", {"text": "an actor or node died with data that a job needs; redoing the work"})
                self._put = None
                for option in self.options:
                    option.lost()
                if self._initial is not None:
                    self.start(self._initial)
        return work()

    def put(self, state: ServerState, round: int) -> Posted:
        """The broadcast in the object store, put there once: the model scored after a round is the next round's too."""
        if self._put is None or self._put[0] is not state or self._put[1] != round:
            with self.phases("broadcast"):
                broadcast = self.algorithm.broadcast(state, round)
                self._put = (state, round, Posted.of(broadcast, self.program.download, self.algorithm, self.pool.put))
        return self._put[2]

    def forget(self) -> None:
        """Free the newest broadcast and its model."""
        self._put = None

    def train(self, progress: Progress) -> Outcome:
        """Train one round from `progress.state`, without changing it."""
        t, draw = progress.round, self.draw(progress)
        trained = Trained(t, len(draw.lanes), self.aggregation.holds)

        def work() -> tuple[TrainedLanes, Aggregate]:
            posted = self.put(progress.state, t)
            missing = trained.missing(self.pool)
            jobs = dict[Hashable, Job[Any]](trained.tree.ready().items())
            for lane, near in zip(draw.lanes, self.pool.neighbours(len(draw.lanes)), strict=True):
                if lane.number in missing:
                    jobs[lane.number] = self.job(lane, posted, near)
            if self.algorithm.overrides("server_train") and not draw.lost and not trained.served:
                jobs[SERVER] = ServerTrain(t, inputs=(posted.server,), cost=math.inf)  # one long job: starts first
            if self._slots:
                train_dedicated(self.pool, jobs, self._slots, self.program.data.cost, self.markers, trained.take)
            else:
                self.pool.each(jobs, trained.take)
            with self.phases("merge"):
                lanes = replace(trained.merged(self.pool), groups=self._groups, kept=progress.kept)
                return lanes, self.aggregation.aggregate(self.pool, lanes, self.layers)

        lanes, aggregate = self.again(work)
        posted = self.put(progress.state, t)
        down, settings = self._down_bytes(progress, draw.chosen, posted, lanes.results), posted.broadcast.settings
        cohort, dropped = len(draw.chosen), len(draw.chosen) - len(draw.answering)
        results, server = list(lanes.results), trained.server
        outcome = Outcome(draw, lanes.partial, aggregate, results, server, down, settings, cohort, dropped)
        for option in self.options:
            option.finish(progress, outcome, posted.broadcast)
        return outcome

    def draw(self, progress: Progress) -> Draw:
        """Who takes part in a round, in lanes."""
        for option in self.options:
            if (draw := option.draw(progress)) is not None:
                break
        else:
            draw = self.sample(progress, self.program.data.client_ids())
        lanes, broadcast = draw.lanes, self.put(progress.state, progress.round).broadcast
        for option in self.options:
            lanes = option.guard(lanes, progress, broadcast, len(draw.chosen))
        return replace(draw, lanes=lanes)

    def sample(self, progress: Progress, ids: Sequence[str], absent: Collection[str] = ()) -> Draw:
        """The cohort of a round from these clients. Those `absent` are in no lane, whether or not they answer."""
        settings, seed = self.plan.cohort, self.program.seed
        chosen = cohorts.sample(ids, settings, self.program.data.cost, seed, progress.round)
        answering = cohorts.answering(chosen, settings, seed, progress.round)
        present = [client for client in answering if client not in absent] if absent else answering
        return Draw(chosen, answering, self.lanes(progress, present))

    def lanes(self, progress: Progress, clients: Sequence[str], first: int = 0) -> list[Lane]:
        """Cut these clients into lanes. `first`: the number of the first lane."""
        t, cost = progress.round, self.program.data.cost
        personal = self.plan.evaluation.personal_utterances if self._scores_personal(t + 1) else 0
        lanes = []
        for number, names in enumerate(cohorts.cut(clients, self.plan.engine.lane_count(len(clients)), cost), first):
            states = tuple((name, progress.clients[name].state if name in progress.clients else None) for name in names)
            marker = self.markers / f"lane_{number}"
            lanes.append(Lane(number, t, states, personal=personal, marker=marker, together=self.plan.together))
        return lanes

    def job(self, lane: Lane, newest: Posted, near: str | None = None) -> TrainLane | TrainKept:
        """The job that trains a lane, if possible on the node `near`. `newest`: the broadcast of its round."""
        cost = sum(self.program.data.cost(client) for client, _ in lane.clients)
        posted = next(filter(None, (option.posted(lane) for option in self.options)), newest)
        kept = not self.aggregation.holds and large(min(sizes(self.layers, posted.broadcast)))
        return (TrainKept if kept else TrainLane)(lane, inputs=(posted.clients, self.first), cost=cost, near=near)

    def _down_bytes(
        self, progress: Progress, chosen: Sequence[str], posted: Posted, lanes: Sequence[LaneResult]
    ) -> int:
        """Bytes sent to the clients of a round. theta_0 and what never changes are sent to a client once."""
        down = len(chosen) * posted.bytes
        first = sum(not progress.took_part(client) for client in chosen)
        down += first * 4 * posted.broadcast.constant
        return down + sum(len(lane.prepared) for lane in lanes) * self.to_prepare(progress.round)

    def to_prepare(self, round: int) -> int:
        """Bytes sent to a client so that it can prepare: the assets, and after the first round also theta_0."""
        return self.asset_bytes + self.first_bytes * (round > 0) if self.algorithm.prepare_reads else 0

    def _scores_personal(self, round: int) -> bool:
        """Whether a round (from 1) scores its cohort's personal models. If any round does, the last one does."""
        every = self.plan.evaluation.personal_every
        scored = not {"dev", OWN}.isdisjoint(self.program.data.splits())
        possible = every > 0 and scored and self.algorithm.overrides("evaluate_personal")
        return possible and (round % every == 0 or round == self.plan.rounds)

    def prepare(self, ids: Sequence[str]) -> tuple[list[LaneResult], int]:
        """Give these clients their first state; returns the lanes' results and the bytes sent to the clients."""

        def work() -> dict[int, LaneResult]:
            jobs = {}
            for n, start in enumerate(range(0, len(ids), PREPARED)):
                clients = tuple((client, None) for client in ids[start : start + PREPARED])
                jobs[n] = PrepareLane(Lane(n, 0, clients, marker=self.markers / f"lane_{n}"), inputs=(self.first,))
            return self.pool.run(jobs)

        lanes = list(self.again(work).values())
        sent = self.first_bytes + self.asset_bytes if self.algorithm.prepare_reads else 0
        return lanes, sum(len(lane.prepared) for lane in lanes) * sent

    def change(self, progress: Progress, outcome: Outcome) -> Change:
        """What the server update gets from a round."""
        clients, vectors = outcome.aggregate.parts()
        server = outcome.server.delta if outcome.server is not None else None
        counted = sum(lane.counted for lane in outcome.lanes)
        if clients is None:  # a strategy may give all that sent an update the weight 0
            counted = 0
        elif self.plan.privacy is not None:  # how many answered is no public number, unlike how many are expected
            counted = round(self.plan.privacy.cohort)
        return Change(clients, server, vectors, counted, len(self.program.data.client_ids()))

    def finish(self, progress: Progress, outcome: Outcome) -> ServerState:
        """The state theta_{t+1}, after the server update and `server_finish`. A lost round changes nothing."""
        if outcome.draw.lost:
            return progress.state
        change = self.change(progress, outcome)
        if change.server is not None and not np.isfinite(change.server).all():
            raise RunError(
                "the server's update holds NaN or infinite values: lower algorithm.server.lr, or clip its gradients"
            )
        size = progress.state.params.size
        with self.phases("update"):
            method = f"{self.named}.server_update"
            state = self.algorithm.server_update(progress.state, change, progress.round)
            check_state(state, method, size)
            if self.algorithm.overrides("server_finish"):
                method, job = f"{self.named}.server_finish", ServerFinish(progress.round, inputs=(state,))
                state = self.again(lambda: self.pool.run({0: job})[0])
                check_state(state, method, size)
        return written(state, method)

    def evaluate(self, state: ServerState, round: int, splits: list[str], final: bool) -> dict[str, Evaluation]:
        """Score each split in shards, and merge the scores in shard order."""
        shards = {split: self.shards(self.program.data.evaluation(split)) for split in splits}

        def work() -> dict[tuple[str, int], Evaluation]:
            reference = self.put(state, round).server
            jobs = {
                (split, shard): Evaluate(split, shard, shards[split], round, final, inputs=(reference,))
                for split in splits
                for shard in range(shards[split])
            }
            return self.pool.run(jobs)

        self.put(state, round)
        with self.phases("evaluate"):
            results = self.again(work)
        merged_splits = {}
        for split in splits:
            parts = [results[split, shard] for shard in range(shards[split])]
            metrics = reduce(lambda a, b: a + b, (part.metrics for part in parts), Metrics()).prefixed(split)
            merged_splits[split] = Evaluation(metrics, [row for part in parts for row in part.predictions])
        return merged_splits

    def score(self, state: ServerState, round: int) -> Evaluation | None:
        """The scores of a round's model (`Plan.scored`), with rows of the first split; None: there is none to score."""
        splits = self.plan.scored(self.program.data.splits())
        if not splits:
            return None
        found = list(self.evaluate(state, round, splits, final=False).values())
        return Evaluation(reduce(lambda a, b: a + b, (one.metrics for one in found)), found[0].predictions)

    def shards(self, data: Any) -> int:
        """The number of shards that the data of a split are scored in."""
        if isinstance(self.plan.evaluation.shards, int):
            return self.plan.evaluation.shards
        clients = self.plan.cohort.count(len(self.program.data.client_ids()))
        return self.plan.evaluation.shard_count(self.plan.engine.lane_count(clients), len(data))

    def check(self, failures: list[Failure], of: int) -> None:
        """Raise RunError if more of a cohort failed than the run allows."""
        if len(failures) > self.plan.engine.failures_allowed * of:
            first, allowed = failures[0], self.plan.engine.failures_allowed
            raise RunError(
                f"{len(failures)} of {of} clients failed, more than engine.failures_allowed ({allowed:g}); "
                f"all are in failures.jsonl, the first: client {first.client}: {first.reason}"
                + (f" ({first.where})" if first.where else "")
            ) from ClientFailed(first.traceback)
