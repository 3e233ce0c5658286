"""The course of a run: begin or go on, round after round, write down what counts, score what came out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Any

from tensorboardX import SummaryWriter

from fedray.core.types import Evaluation
from fedray.engine import own
from fedray.engine.folder import ClientRecord, Progress, RunFolder, write_clients
from fedray.engine.gauges import Gauges
from fedray.engine.lanes import PHASES, Failure, LaneResult
from fedray.engine.pool import Job, Pool
from fedray.engine.rounds import Outcome, Plan, Rounds
from fedray.engine.store import ClientStore
from fedray.engine.watches import Stopwatch
from fedray.engine.work import Program

METRICS, FAILURES, LEFT_OUT = "metrics.jsonl", "failures.jsonl", "left_out.jsonl"


class Play:
    """Plays a run in its folder, which the caller holds. `wish()`: no | after the round | now, what the user wants of the end.

    `pinned()`: rounds whose checkpoints somebody else names; these and newer ones are kept (None: nobody names any).
    """

    def __init__(
        self,
        name: str,
        program: Program,
        plan: Plan,
        folder: RunFolder,
        note: Callable[[str, dict[str, Any]], None],
        wish: Callable[[], str],
        pinned: Callable[[], Collection[int] | None] = lambda: None,
    ) -> None:
        self.name, self.program, self.plan, self.folder, self.note = name, program, plan, folder, note
        self.wish, self.pinned = wish, pinned
        assert isinstance(program.states, ClientStore)
        self.states = program.states
        self.gauges = Gauges(folder.place, lambda text: note("warning", {"text": text}))
        self._watch = Stopwatch()
        self._columns: list[str] = []  # of metrics.jsonl
        self._best: dict[int, int] = {}  # round -> the best one by then
        self._superseded: list[tuple[str, int, int]] = []  # client, version, and the round from which on another one is current

    def run(self, pool: Pool, rounds: Rounds) -> dict[str, Any]:
        """To the end; returns what results.json holds."""
        initial, progress = self._begin(pool, rounds)
        self.gauges.begin(progress.round, self.plan.rounds)
        writer = SummaryWriter(str(self.folder.scratch("tensorboard")), purge_step=progress.round + 1)
        splits = list(self.program.data.splits())
        if not progress.round and "dev" in splits:
            seed = rounds.evaluate(progress.state, 0, ["dev"], final=False)["dev"]
            self._write_scalars(writer, seed.metrics, 0)
            self.gauges.scored(seed.metrics)
            self.note("seed", dict(seed.metrics))
        while not self._over(progress) and self.wish() == "no":
            progress = self._round(pool, rounds, progress, writer)
        writer.close()
        if progress.round not in self.folder.saved_rounds():  # the wish, or the end of patience, came after the round had been written
            self.folder.save(progress)
        if not self._over(progress):
            return self.stopped()
        return self._finish(rounds, initial, progress, splits)

    def _over(self, progress: Progress) -> bool:
        """Whether all rounds are played, or dev has not become better for as many as `evaluation.patience` allows."""
        patience = self.plan.evaluation.patience
        waited = progress.round - int(progress.best["round"]) if progress.best is not None else 0
        return progress.round >= self.plan.rounds or (patience is not None and waited >= patience)

    def stopped(self) -> dict[str, Any]:
        """The user ended the run; its newest checkpoint is of this round (None: there is none)."""
        return {"stopped": max(self.folder.saved_rounds(), default=None)}

    def _begin(self, pool: Pool, rounds: Rounds) -> tuple[Progress, Progress]:
        """The initial state, and where to go on: the same in a new run, else the newest checkpoint."""
        saved = self.folder.saved_rounds()
        if saved:
            initial, progress = self.folder.load(0), self.folder.load(saved[-1])
            rounds.start(initial.state)
            for table in (METRICS, FAILURES, LEFT_OUT):
                self.folder.rewrite(table, [row for row in self.folder.rows(table) if row["round"] <= progress.round])
            self._columns = list(next(iter(self.folder.rows(METRICS)), {}))
            self._best = {round: int(best["round"]) for round in saved if (best := self.folder.load(round).best) is not None}
            self._collect_after_resume(saved)
            self.note("phase", {"text": f"going on after round {progress.round}"})
            return initial, progress
        self.note("phase", {"text": "initial model"})
        state, found = pool.run({0: Job("init", ())})[0]
        self.gauges.cached("init", int(found), 1)
        progress = Progress(state)
        rounds.start(progress.state)
        if self.plan.engine.prepare == "all" and self.program.algorithm.overrides("client_prepare"):
            self.note("phase", {"text": "preparing all clients"})
            lanes, down_bytes = rounds.prepare(self.program.data.client_ids())
            self._count_prepared(lanes)
            failures = [failure for lane in lanes for failure in lane.failures]
            self.folder.rewrite(FAILURES, [])  # of an attempt that was cut off
            self._append_failures(failures, 0)
            progress.totals["failed"] = len(failures)
            rounds.check(failures, len(self.program.data.client_ids()))
            progress.clients = {client: ClientRecord(version=0) for lane in lanes for client in lane.written}
            progress.totals["down_bytes"] += down_bytes
        progress.totals["seconds"] = self._watch()
        self.folder.save(progress)
        return progress, progress

    def _round(self, pool: Pool, rounds: Rounds, progress: Progress, writer: SummaryWriter) -> Progress:
        watch, busy = Stopwatch(), list(pool.busy_seconds)
        outcome = rounds.train(progress)
        trained = watch()
        self._append_failures(outcome.failures, progress.round + 1)
        rounds.check(outcome.failures, outcome.cohort)
        left_out = outcome.aggregate.left_out
        self.folder.append(LEFT_OUT, [{"round": progress.round + 1, "client": name, "layers": left_out[name]} for name in left_out])
        state = rounds.finish(progress, outcome)
        after, superseded = rounds.record(progress, outcome, state)
        last = after.round == self.plan.rounds
        scored: Evaluation | None = None
        if "dev" in self.program.data.splits() and (after.round % self.plan.evaluation.every == 0 or last):
            scored = rounds.evaluate(state, after.round, ["dev"], final=False)["dev"]
        self._judge(after, scored)
        if after.best is not None:
            self._best[after.round] = int(after.best["round"])
        after.totals["seconds"] = progress.totals["seconds"] + watch()
        row = self._row(progress, after, outcome, scored)
        seconds = watch()
        idle = [1 - (now - before) / seconds for now, before in zip(pool.busy_seconds, busy, strict=True)]
        row |= {"time/round_s": seconds, "time/train_s": trained, "time/idle_share": sum(idle) / pool.size}
        row |= {f"time/{phase}_actors_s": sum(lane.seconds[phase] for lane in outcome.lanes) for phase in PHASES}
        taken = rounds.phases.take()
        row |= {f"time/{phase}_s": taken.get(phase) for phase in ("broadcast", "merge", "update", "evaluate", "checkpoint", "events")}
        with rounds.phases("events"):  # this and the checkpoint stand in the next round's row
            self._append_row(row)
        best = after.best is not None and after.best["round"] == after.round
        if after.round % self.plan.engine.checkpoint_every == 0 or last or best or self.wish() != "no":
            with rounds.phases("checkpoint"):
                self.folder.save(after)
                self._prune(after)
        with rounds.phases("events"):
            self._superseded.extend((client, version, after.round) for client, version in superseded)
            self._collect(self._superseded)
            self._write_scalars(writer, {key: value for key, value in row.items() if key != "round"}, after.round)
            self._count_prepared(outcome.lanes)
            self.gauges.round(row, after, self.program.algorithm.best[0], idle, pool.replaced)
        self.note("round", {"row": row, "rounds": self.plan.rounds})
        return after

    def _judge(self, progress: Progress, scored: Evaluation | None) -> None:
        """Note the best round so far; of equals the earlier one."""
        name, mode = self.program.algorithm.best
        if scored is None or name not in scored.metrics or math.isnan(scored.metrics[name]):
            return
        value, sign = scored.metrics[name], 1 if mode == "min" else -1
        if progress.best is None or sign * value < sign * progress.best["value"]:
            progress.best = {"round": progress.round, "value": value}

    def _row(self, before: Progress, after: Progress, outcome: Outcome, scored: Evaluation | None) -> dict[str, Any]:
        totals = after.totals
        row: dict[str, Any] = {"round": after.round}
        row |= dict(outcome.partial.metrics.prefixed("train")) | {"train/loss": outcome.partial.metrics.get("loss")}
        if outcome.server is not None:
            row |= dict(outcome.server.metrics.prefixed("server"))
        row |= dict(scored.metrics) if scored is not None else {}
        row |= dict(outcome.partial.own.prefixed("own"))
        row |= {
            "clients/cohort": outcome.cohort,
            "clients/ok": outcome.succeeded,
            "clients/failed": len(outcome.failures),
            "clients/dropped": outcome.dropped,
            "clients/prepared": sum(len(lane.prepared) for lane in outcome.lanes),
            "clients/effective": outcome.aggregate.effective,
            "clients/left_out": len(outcome.aggregate.left_out),
            "traffic/up_bytes": totals["up_bytes"] - before.totals["up_bytes"],
            "traffic/down_bytes": totals["down_bytes"] - before.totals["down_bytes"],
            "traffic/total_bytes": totals["up_bytes"] + totals["down_bytes"],
            "engine/driver_bytes": outcome.aggregate.bytes,
        }
        return row | self._formula(after) | dict(outcome.settings)

    def _formula(self, progress: Progress) -> dict[str, float]:
        """Beside the bytes that have been counted those of the paper's own formula, where it has one."""
        updates = [client.rounds for client in progress.clients.values() if client.rounds]
        found = self.program.algorithm.formula_bytes(len(updates), sum(updates))
        return {} if found is None else {"traffic/formula_bytes": found}

    def _append_row(self, row: dict[str, Any]) -> None:
        """One more row; when a key is new, the rows before get it as null, so that all rows have the same keys."""
        row = {key: (None if isinstance(value, float) and not math.isfinite(value) else value) for key, value in row.items()}
        keys = list(dict.fromkeys([*self._columns, *row]))
        if len(keys) > len(self._columns):
            self.folder.rewrite(METRICS, [{key: old.get(key) for key in keys} for old in self.folder.rows(METRICS)])
            self._columns = keys
        self.folder.append(METRICS, [{key: row.get(key) for key in keys}])

    def _append_failures(self, failures: list[Failure], round: int) -> None:
        self.folder.append(FAILURES, [{"round": round, "client": f.client, "reason": f.reason, "traceback": f.traceback} for f in failures])

    def _prune(self, progress: Progress) -> None:
        latest = self.folder.saved_rounds()[-self.plan.engine.keep :]
        best = {int(progress.best["round"])} if progress.best else set()
        self.folder.prune({0, *latest} | best | self._pinned())

    def _pinned(self) -> set[int]:
        """The rounds that somebody names, those after them, and the best ones that these name in turn."""
        pinned = self.pinned()
        if pinned is None:
            return set()
        kept = {*pinned, *(round for round in self.folder.saved_rounds() if round > max(pinned, default=0))}
        return kept | {self._best[round] for round in kept if round in self._best}

    def _collect(self, superseded: list[tuple[str, int, int]]) -> None:
        """Remove versions of client states, current in rounds [from, to), that no checkpoint names."""
        saved = self.folder.saved_rounds()
        named = [any(since <= round < until for round in saved) for _, since, until in superseded]
        self._superseded = [entry for entry, kept in zip(superseded, named, strict=True) if kept]
        self.states.remove_all((client, since) for (client, since, _), kept in zip(superseded, named, strict=True) if not kept)

    def _collect_after_resume(self, saved: list[int]) -> None:
        """Keep the versions of client states that checkpoints name, and remember until when each of them is current."""
        named: dict[str, set[int]] = {}  # client -> versions
        for round in saved:
            for client, record in self.folder.load_clients(round).items():
                if record.version is not None:
                    named.setdefault(client, set()).add(record.version)
        self.states.keep_only({(client, version) for client, versions in named.items() for version in versions})
        for client, versions in named.items():
            self._superseded += [(client, version, following) for version, following in pairwise(sorted(versions))]

    def _count_prepared(self, lanes: Collection[LaneResult]) -> None:
        self.gauges.cached("prepared", sum(lane.found for lane in lanes), sum(len(lane.prepared) for lane in lanes))

    def _write_scalars(self, writer: SummaryWriter, values: Mapping[str, Any], step: int) -> None:
        for key, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                writer.add_scalar(key, value, step)
        writer.flush()
        self.folder.publish("tensorboard")

    def _finish(self, rounds: Rounds, initial: Progress, progress: Progress, splits: list[str]) -> dict[str, Any]:
        """Score the initial and the best model on every split, as it is reported; write results and tables."""
        watch = Stopwatch()
        self.note("phase", {"text": "final evaluation"})
        best = self.folder.load(int(progress.best["round"])) if progress.best else progress
        results: dict[str, Any] = {"name": self.name, "rounds": progress.round}
        predictions: list[dict[str, Any]] = []
        for title, which in (("seed", initial), ("best", best)):
            scored = rounds.evaluate(which.state, which.round, splits, final=True)
            results[title] = {"round": which.round} | {k: v for split in scored.values() for k, v in split.metrics.items()}
            predictions += [{"model": title, "split": split, **row} for split, part in scored.items() for row in part.predictions]
        if self.plan.evaluation.own_final and self.program.algorithm.overrides("client_evaluate"):
            before = watch()
            results["own"] = self._own(rounds, progress, splits)
            results["time/own_s"] = watch() - before
        self.folder.export("clients.parquet", lambda path: write_clients(progress.clients, path))
        self.folder.write_table("predictions.tsv", predictions)
        results |= {
            "clients/failed": progress.totals["failed"],
            "traffic/up_bytes": progress.totals["up_bytes"],
            "traffic/down_bytes": progress.totals["down_bytes"],
            "traffic/total_bytes": progress.totals["up_bytes"] + progress.totals["down_bytes"],
            **self._formula(progress),
            "time/total_s": progress.totals["seconds"] + watch(),
        }
        self.folder.write_json("results.json", results)
        self.folder.export("model", lambda path: self.program.algorithm.export(best.state, path))
        return results

    def _own(self, rounds: Rounds, progress: Progress, splits: list[str]) -> dict[str, Any]:
        """The own models of all that ever took part, after the last round: plain means over the clients, and own.tsv with each."""
        results, rows, failed = own.at_the_end(
            rounds,
            progress,
            splits,
            lambda done, of: self.note("progress", {"done": done, "of": of, "what": "scoring the clients' own models"}),
        )
        failures = [Failure(*fault) for fault in failed]
        self._append_failures(failures, progress.round)
        rounds.check(failures, results["clients"] + len(failures))
        self.folder.write_table("own.tsv", rows)
        return results
