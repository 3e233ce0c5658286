"""The loop of a run: begin or resume, run one round after another, record each of them, score the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fedray.core.metrics import Metrics, rising
from fedray.core.types import Evaluation, RunError
from fedray.engine.actors.pool import Pool
from fedray.engine.actors.stops import Wish
from fedray.engine.driver.ending import Ending
from fedray.engine.driver.saving import Saving
from fedray.engine.jobs.job import Init
from fedray.engine.jobs.work import Program
from fedray.engine.lane.lane import LaneResult
from fedray.engine.round.outcome import Outcome
from fedray.engine.round.plan import Plan
from fedray.engine.round.records import failure_rows, record, reports, row_of, store_prepared
from fedray.engine.round.rounds import Rounds
from fedray.engine.telemetry.gauges import Gauges
from fedray.engine.telemetry.scalars import Scalars
from fedray.engine.telemetry.tracking import Tracking
from fedray.engine.telemetry.watches import RoundWatch, Stopwatch
from fedray.runs.client_states import ClientStore
from fedray.runs.failures_table import FailuresTable
from fedray.runs.folder import FAILURES, LEFT_OUT, REPORTS, Progress, RunFolder
from fedray.runs.hypotheses import Hypotheses
from fedray.runs.metrics_table import MetricsTable
from fedray.runs.retention import Retention


class RunLoop:
    """The loop over the rounds of a run in its folder, which the caller has locked.

    `wish()`: when the user wants the run to end. `pinned()`: rounds whose checkpoints a sweep's trial refers to. These
    and all newer ones stay (None: no sweep).
    """

    def __init__(
        self,
        name: str,
        program: Program,
        plan: Plan,
        folder: RunFolder,
        note: Callable[[str, dict[str, Any]], None],
        wish: Callable[[], Wish],
        tracking: Tracking,
        pinned: Callable[[], Collection[int] | None] = lambda: None,
    ) -> None:
        assert isinstance(program.states, ClientStore)
        self.name, self.program, self.plan, self.folder, self.note = name, program, plan, folder, note
        self.algorithm, asked = program.algorithm, plan.evaluation.best
        # The metric that chooses the best round, and "min" or "max".
        self.best = (asked, "max" if rising(asked) else "min") if asked is not None else self.algorithm.best
        self.wish, self.tracking = wish, tracking
        self.metrics, self.failures, self.hypotheses = MetricsTable(folder), FailuresTable(folder), Hypotheses(folder)
        self.retention = Retention(folder, program.states, plan.engine.keep, pinned)
        # A sweep's trial refers to a round's checkpoint as soon as it hears of the round.
        self.saving = Saving(folder, self.retention, beside=lambda: pinned() is None)
        self.gauges = Gauges(folder.place, lambda text: note("warning", {"text": text}))
        self._watch = Stopwatch()
        self._counted = 0  # killed actors counted so far

    def run(self, pool: Pool, rounds: Rounds) -> dict[str, Any]:
        """Run all rounds; returns the content of results.json."""
        try:
            return self._run(pool, rounds)
        finally:
            self.saving.close()

    def _run(self, pool: Pool, rounds: Rounds) -> dict[str, Any]:
        progress = self._begin(pool, rounds)
        self.gauges.begin(progress.round, self.plan.rounds)
        self.tracking.begin()
        scalars = Scalars(self.folder, progress.round)
        if not progress.round and (seed := rounds.score(progress.state, 0)) is not None:
            self._chooses(seed.metrics)
            self.hypotheses.write(seed, 0)
            self._write_scalars(scalars, seed.metrics, 0)
            self.gauges.scored(seed.metrics)
            self.note("seed", dict(seed.metrics))
        while not self._over(progress) and self.wish() is Wish.NOT_YET:
            progress = self.round(pool, rounds, progress, scalars)
        scalars.close()
        self.saving.wait()
        if progress.round not in self.folder.saved_rounds():  # the run ended between two regular checkpoints
            self.folder.save(progress)
        if not self._over(progress):
            return self.stopped()
        progress.totals["killed"] = progress.totals.get("killed", 0) + self._killed(pool)
        return Ending(self.name, self.folder, rounds, self.failures).end(progress)

    def round(self, pool: Pool, rounds: Rounds, progress: Progress, scalars: Scalars) -> Progress:
        """Run one round, record it, and commit it with a checkpoint if one is due."""
        pool.grow()
        watch = RoundWatch(pool.busy_seconds)
        outcome = rounds.train(progress)
        watch.trained()
        self._record_failures(rounds, outcome, progress.round + 1)
        state = rounds.finish(progress, outcome)
        after, superseded = record(progress, outcome, state)
        scored = self._score(rounds, after)
        self._judge(after, scored, outcome)
        after.totals["seconds"] = progress.totals["seconds"] + watch.seconds()
        killed = self._killed(pool)
        after.totals["killed"] = progress.totals.get("killed", 0) + killed
        row = row_of(self.algorithm, progress, after, outcome, scored) | {"engine/killed": killed}
        row |= watch.row(pool.busy_seconds) | outcome.times() | rounds.phases.take()
        with rounds.phases("events"):  # this and the checkpoint are timed in a later round's row
            self.metrics.append(row)
        if (seconds := self.saving.save(after, superseded, self._checkpoint_is_due(after))) is not None:
            rounds.phases.add("checkpoint", seconds)
        with rounds.phases("events"):
            self._write_scalars(scalars, {key: value for key, value in row.items() if key != "round"}, after.round)
            self._count_prepared(outcome.lanes)
            self.gauges.round(row, after, self.best[0], watch.idle, pool.crew.replaced)
        self.note("round", {"row": row, "rounds": self.plan.rounds})
        return after

    def _killed(self, pool: Pool) -> int:
        """The number of actors that hung and were killed since the last call."""
        before, self._counted = self._counted, pool.crew.killed
        return self._counted - before

    def stopped(self) -> dict[str, Any]:
        """The result of a run that the user ended: the round of its newest checkpoint (None: there is none)."""
        self.saving.wait()
        self.folder.settle()
        return {"stopped": max(self.folder.saved_rounds(), default=None)}

    def _over(self, progress: Progress) -> bool:
        """Whether all rounds are done, or the best score is `evaluation.patience` rounds old."""
        patience = self.plan.evaluation.patience
        waited = progress.round - int(progress.best["round"]) if progress.best is not None else 0
        return progress.round >= self.plan.rounds or (patience is not None and waited >= patience)

    def _begin(self, pool: Pool, rounds: Rounds) -> Progress:
        """The state to continue from: a new run's initial state, else the newest checkpoint."""
        if saved := self.folder.saved_rounds():
            initial, progress = self.folder.load(0).state, self.folder.load(saved[-1])
            rounds.go_on(initial, progress)
            self.folder.remove("results.json")  # of a run that is extended; a damaged checkpoint leaves it
            for table in self.folder.tables():
                self.folder.cut(table, progress.round)
            self.metrics.resume()
            self.failures.resume()
            self.hypotheses.resume()
            self.retention.resume(saved)
            self.note("phase", {"text": f"continuing after round {progress.round}"})
            return progress
        self.note("phase", {"text": "initial model"})
        state, cached = rounds.again(lambda: pool.run({0: Init()}))[0]
        self.gauges.cached("init", int(cached), 1)
        progress = Progress(state)
        rounds.start(progress.state)
        if self.plan.engine.prepare == "all" and self.algorithm.overrides("client_prepare"):
            self._prepare_all(rounds, progress)
        progress.totals["seconds"] = self._watch()
        self.folder.save(progress)
        return progress

    def _prepare_all(self, rounds: Rounds, progress: Progress) -> None:
        """Give every client its first state before the first round."""
        self.note("phase", {"text": "preparing all clients"})
        clients = self.program.data.client_ids()
        lanes, down_bytes = rounds.prepare(clients)
        self._count_prepared(lanes)
        failures = [failure for lane in lanes for failure in lane.failures]
        self.folder.rewrite(FAILURES, [])  # of an attempt that was cut off
        self.failures.append(failure_rows(failures, 0))
        progress.totals["failed"] = len(failures)
        rounds.check(failures, len(clients))
        store_prepared(progress, lanes, down_bytes)

    def _record_failures(self, rounds: Rounds, outcome: Outcome, round: int) -> None:
        """Record which clients failed or were left out, and reports. RunError: more failed than allowed."""
        self.failures.append(failure_rows(outcome.failures, round))
        rounds.check(outcome.failures, outcome.cohort)
        left_out = outcome.aggregate.left_out
        rows = [{"round": round, "client": name, "layers": layers} for name, layers in left_out.items()]
        self.folder.append(LEFT_OUT, rows)
        if self.plan.evaluation.client_reports:
            self.folder.append(REPORTS, reports(outcome, round))
        for table, added in outcome.tables.items():
            self.folder.append(table, added)

    def _score(self, rounds: Rounds, after: Progress) -> Evaluation | None:
        """The scores after this round; None: they are not due, or there are none."""
        scored = rounds.score(after.state, after.round) if self.plan.scores(after.round) else None
        if scored is not None:
            self.hypotheses.write(scored, after.round)
        return scored

    def _judge(self, progress: Progress, scored: Evaluation | None, outcome: Outcome) -> None:
        """Update the best round. On a tie the earlier round stays the best."""
        personal = outcome.partial.personal.prefixed("personal")
        value = self._chooses((scored.metrics + personal) if scored is not None else personal)
        sign = 1 if self.best[1] == "min" else -1
        if value is not None and (progress.best is None or sign * value < sign * progress.best["value"]):
            progress.best = {"round": progress.round, "value": value}

    def _chooses(self, metrics: Metrics) -> float | None:
        """The score that chooses the best round; None: it is not among these. RunError: no round will have it."""
        name, asked = self.best[0], self.plan.evaluation.best
        same_part = [metric for metric in metrics if metric.partition("/")[0] == name.partition("/")[0]]
        if asked is not None and same_part and name not in same_part:
            raise RunError(f"evaluation.best={asked} is no score of a round: choose from {', '.join(same_part)}")
        return metrics[name] if name in metrics and not math.isnan(metrics[name]) else None

    def _checkpoint_is_due(self, after: Progress) -> bool:
        best = after.best is not None and after.best["round"] == after.round
        last = after.round == self.plan.rounds
        turn = after.round % self.plan.engine.checkpoint_every == 0
        return turn or last or best or self.wish() is not Wish.NOT_YET

    def _count_prepared(self, lanes: Collection[LaneResult]) -> None:
        self.gauges.cached("prepared", sum(lane.cached for lane in lanes), sum(len(lane.prepared) for lane in lanes))

    def _write_scalars(self, scalars: Scalars, values: Mapping[str, Any], step: int) -> None:
        self.tracking.log(scalars.write(values, step), step)
