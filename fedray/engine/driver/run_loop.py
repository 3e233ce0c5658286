"""The loop of a run: begin or resume, run one round after another, record each of them, score the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from fedray.core.types import Evaluation
from fedray.engine.actors.pool import Pool, Wish
from fedray.engine.jobs.job import Init
from fedray.engine.jobs.work import Program
from fedray.engine.lane import personal
from fedray.engine.lane.lane import Failure, LaneResult
from fedray.engine.round.outcome import Outcome
from fedray.engine.round.plan import Plan
from fedray.engine.round.records import formula, record, reports, row_of, store_prepared, summary
from fedray.engine.round.rounds import Rounds
from fedray.engine.telemetry.gauges import Gauges
from fedray.engine.telemetry.scalars import Scalars
from fedray.engine.telemetry.tracking import Tracking
from fedray.engine.telemetry.watches import RoundWatch, Stopwatch
from fedray.runs.client_states import ClientStore
from fedray.runs.failures_table import FailuresTable
from fedray.runs.folder import FAILURES, LEFT_OUT, REPORTS, Progress, RunFolder, write_clients
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
        self.algorithm, self.splits = program.algorithm, list(program.data.splits())
        self.wish, self.tracking = wish, tracking
        self.metrics, self.failures, self.hypotheses = MetricsTable(folder), FailuresTable(folder), Hypotheses(folder)
        self.retention = Retention(folder, program.states, plan.engine.keep, pinned)
        self.gauges = Gauges(folder.place, lambda text: note("warning", {"text": text}))
        self._watch = Stopwatch()
        self._counted = 0  # killed actors counted so far

    def run(self, pool: Pool, rounds: Rounds) -> dict[str, Any]:
        """Run all rounds; returns the content of results.json."""
        initial, progress = self._begin(pool, rounds)
        self.gauges.begin(progress.round, self.plan.rounds)
        self.tracking.begin()
        scalars = Scalars(self.folder, progress.round)
        if not progress.round and "dev" in self.splits:
            seed = rounds.evaluate(progress.state, 0, ["dev"], final=False)["dev"]
            self.hypotheses.write(seed, 0)
            self._write_scalars(scalars, seed.metrics, 0)
            self.gauges.scored(seed.metrics)
            self.note("seed", dict(seed.metrics))
        while not self._over(progress) and self.wish() is Wish.NOT_YET:
            progress = self.round(pool, rounds, progress, scalars)
        scalars.close()
        if progress.round not in self.folder.saved_rounds():  # the run ended between two regular checkpoints
            self.folder.save(progress)
        if not self._over(progress):
            return self.stopped()
        return self._finish(pool, rounds, initial, progress)

    def round(self, pool: Pool, rounds: Rounds, progress: Progress, scalars: Scalars) -> Progress:
        """Run one round, record it, and commit it with a checkpoint if one is due."""
        watch = RoundWatch(pool.busy_seconds)
        outcome = rounds.train(progress)
        watch.trained()
        self._record_failures(rounds, outcome, progress.round + 1)
        state = rounds.finish(progress, outcome)
        after, superseded = record(progress, outcome, state)
        scored = self._score(rounds, after)
        self._judge(after, scored)
        self.retention.note_best(after)
        after.totals["seconds"] = progress.totals["seconds"] + watch.seconds()
        killed = self._killed(pool)
        after.totals["killed"] = progress.totals.get("killed", 0) + killed
        row = row_of(self.algorithm, progress, after, outcome, scored) | {"engine/killed": killed}
        row |= watch.row(pool.busy_seconds) | outcome.times() | rounds.phases.take()
        with rounds.phases("events"):  # this and the checkpoint are timed in the next round's row
            self.metrics.append(row)
        if self._checkpoint_is_due(after):
            with rounds.phases("checkpoint"):
                self.folder.save(after)
                self.retention.prune(after)
        with rounds.phases("events"):
            self.retention.collect(superseded, after)
            self._write_scalars(scalars, {key: value for key, value in row.items() if key != "round"}, after.round)
            self._count_prepared(outcome.lanes)
            self.gauges.round(row, after, self.algorithm.best[0], watch.idle, pool.crew.replaced)
        self.note("round", {"row": row, "rounds": self.plan.rounds})
        return after

    def _killed(self, pool: Pool) -> int:
        """The number of actors that hung and were killed since the last call."""
        before, self._counted = self._counted, pool.crew.killed
        return self._counted - before

    def stopped(self) -> dict[str, Any]:
        """The result of a run that the user ended: the round of its newest checkpoint (None: there is none)."""
        self.folder.settle()
        return {"stopped": max(self.folder.saved_rounds(), default=None)}

    def _over(self, progress: Progress) -> bool:
        """Whether all rounds are done, or the dev score has not improved for `evaluation.patience` rounds."""
        patience = self.plan.evaluation.patience
        waited = progress.round - int(progress.best["round"]) if progress.best is not None else 0
        return progress.round >= self.plan.rounds or (patience is not None and waited >= patience)

    def _begin(self, pool: Pool, rounds: Rounds) -> tuple[Progress, Progress]:
        """The initial state, and the state to continue from: a new run's initial state, else the newest checkpoint."""
        if saved := self.folder.saved_rounds():
            initial, progress = self.folder.load(0), self.folder.load(saved[-1])
            rounds.go_on(initial.state, progress)
            self.folder.remove("results.json")  # of a run that is extended; a damaged checkpoint leaves it
            for table in self.folder.tables():
                self.folder.cut(table, progress.round)
            self.metrics.resume()
            self.failures.resume()
            self.hypotheses.resume()
            self.retention.resume(saved)
            self.note("phase", {"text": f"continuing after round {progress.round}"})
            return initial, progress
        self.note("phase", {"text": "initial model"})
        state, found = rounds.again(lambda: pool.run({0: Init()}))[0]
        self.gauges.cached("init", int(found), 1)
        progress = Progress(state)
        rounds.start(progress.state)
        if self.plan.engine.prepare == "all" and self.algorithm.overrides("client_prepare"):
            self._prepare_all(rounds, progress)
        progress.totals["seconds"] = self._watch()
        self.folder.save(progress)
        return progress, progress

    def _prepare_all(self, rounds: Rounds, progress: Progress) -> None:
        """Give every client its first state before the first round."""
        self.note("phase", {"text": "preparing all clients"})
        clients = self.program.data.client_ids()
        lanes, down_bytes = rounds.prepare(clients)
        self._count_prepared(lanes)
        failures = [failure for lane in lanes for failure in lane.failures]
        self.folder.rewrite(FAILURES, [])  # of an attempt that was cut off
        self._append_failures(failures, 0)
        progress.totals["failed"] = len(failures)
        rounds.check(failures, len(clients))
        store_prepared(progress, lanes, down_bytes)

    def _record_failures(self, rounds: Rounds, outcome: Outcome, round: int) -> None:
        """Record which clients failed or were left out, and reports. RunError: more failed than allowed."""
        self._append_failures(outcome.failures, round)
        rounds.check(outcome.failures, outcome.cohort)
        left_out = outcome.aggregate.left_out
        rows = [{"round": round, "client": name, "layers": layers} for name, layers in left_out.items()]
        self.folder.append(LEFT_OUT, rows)
        if self.plan.evaluation.client_reports:
            self.folder.append(REPORTS, reports(outcome, round))
        for table, found in outcome.tables.items():
            self.folder.append(table, found)

    def _score(self, rounds: Rounds, after: Progress) -> Evaluation | None:
        """The scores on dev after this round; None: they are not due."""
        if "dev" not in self.splits or not self.plan.scores(after.round):
            return None
        scored = rounds.evaluate(after.state, after.round, ["dev"], final=False)["dev"]
        self.hypotheses.write(scored, after.round)
        return scored

    def _judge(self, progress: Progress, scored: Evaluation | None) -> None:
        """Update the best round. On a tie the earlier round stays the best."""
        name, mode = self.algorithm.best
        if scored is None or name not in scored.metrics or math.isnan(scored.metrics[name]):
            return
        value, sign = scored.metrics[name], 1 if mode == "min" else -1
        if progress.best is None or sign * value < sign * progress.best["value"]:
            progress.best = {"round": progress.round, "value": value}

    def _checkpoint_is_due(self, after: Progress) -> bool:
        best = after.best is not None and after.best["round"] == after.round
        last = after.round == self.plan.rounds
        turn = after.round % self.plan.engine.checkpoint_every == 0
        return turn or last or best or self.wish() is not Wish.NOT_YET

    def _append_failures(self, failures: list[Failure], round: int) -> None:
        rows = [{"round": round, "client": f.client, "reason": f.reason, "traceback": f.traceback} for f in failures]
        self.failures.append(rows)

    def _count_prepared(self, lanes: Collection[LaneResult]) -> None:
        self.gauges.cached("prepared", sum(lane.found for lane in lanes), sum(len(lane.prepared) for lane in lanes))

    def _write_scalars(self, scalars: Scalars, values: Mapping[str, Any], step: int) -> None:
        self.tracking.log(scalars.write(values, step), step)

    def _finish(self, pool: Pool, rounds: Rounds, initial: Progress, progress: Progress) -> dict[str, Any]:
        """Run the final evaluation of the initial and the best model on every split; write results and tables."""
        watch = Stopwatch()
        self.note("phase", {"text": "final evaluation"})
        best = self.folder.load(int(progress.best["round"])) if progress.best else progress
        results: dict[str, Any] = {"name": self.name, "rounds": progress.round}
        models = {"seed": initial, "best": best}
        results |= {title: {"round": which.round} for title, which in models.items()}

        def predictions() -> Iterator[dict[str, Any]]:
            for title, which in models.items():
                for split in self.splits:  # one by one: the predictions may need a lot of memory
                    scored = rounds.evaluate(which.state, which.round, [split], final=True)[split]
                    results[title] |= dict(scored.metrics)
                    yield from ({"model": title, "split": split, **row} for row in scored.predictions)

        self.folder.write_table("predictions.tsv", predictions())
        if self.plan.evaluation.personal_final and self.algorithm.overrides("evaluate_personal"):
            before = watch()
            results["personal"] = self._personal(rounds, progress)
            results["time/personal_s"] = watch() - before
        self.folder.export("clients.parquet", lambda path: write_clients(progress.clients, path))
        progress.totals["killed"] = progress.totals.get("killed", 0) + self._killed(pool)
        results |= summary(progress) | formula(self.algorithm, progress)
        results["time/total_s"] = progress.totals["seconds"] + watch()
        for option in rounds.options:
            results |= option.results(progress, self.folder)
        if signatures := dict(self.algorithm.signatures):
            results["signatures"] = signatures
        self.folder.export("model", lambda path: self.algorithm.export(best.state, path))
        self.folder.settle()
        self.folder.write_json("results.json", results)  # last: a run that has it is finished
        return results

    def _personal(self, rounds: Rounds, progress: Progress) -> dict[str, Any]:
        """Score the personal models of all clients that ever took part; returns plain means over the clients.

        Writes personal.tsv, and with `evaluation.personal_predictions` also personal_predictions.tsv. Clients get the
        last round's broadcast: those that train again for their score use its learning rate. The next may be 0.
        """
        clients = [(name, record.state) for name, record in sorted(progress.clients.items()) if record.rounds]
        last, asked = progress.round - 1, self.plan.evaluation
        what = "scoring the clients' personal models"
        scored = rounds.again(lambda: personal.evaluate_all(
            rounds.pool, clients, last, rounds.put(progress.state, last).clients, self.splits,
            asked.personal_final_utterances, asked.personal_predictions,
            lambda done, of: self.note("progress", {"done": done, "of": of, "what": what}),
        ))  # fmt: skip
        failures = [one.failure for one in scored if one.failure is not None]
        self._append_failures(failures, progress.round + 1)  # a resumed run drops them and scores again
        rounds.check(failures, len(scored))
        rows = personal.table(scored)
        self.folder.write_table("personal.tsv", rows)
        if asked.personal_predictions:
            self.folder.write_table("personal_predictions.tsv", personal.predictions(scored))
        found = {"round": progress.round, "clients": len(scored) - len(failures)}
        return found | personal.summary(rows, self.splits)
