"""The driver actor: it owns the run folder, plays the rounds, and says what happens. It needs no GPU."""

from __future__ import annotations

import math
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tensorboardX import SummaryWriter

from fedray.core.types import Evaluation
from fedray.engine.actors import ClientActor
from fedray.engine.events import Event, Events
from fedray.engine.folder import ClientRecord, Progress, RunFolder, write_clients
from fedray.engine.pool import Job, Pool, Stopped
from fedray.engine.resources import DRIVER_CPUS, Share
from fedray.engine.rounds import Outcome, Plan, Rounds, Stopwatch
from fedray.engine.work import Failure, Program

METRICS, FAILURES = "metrics.jsonl", "failures.jsonl"


@dataclass(frozen=True)
class Assignment:
    """What a driver is to do."""

    name: str
    program: Program
    assets: Mapping[str, Any]  # the algorithm's, taken before it was copied
    plan: Plan
    share: Share
    folder: Path
    texts: Mapping[str, str] = field(default_factory=dict)  # files that describe the run, written once the folder is locked


class Driver:
    """A Ray actor of several threads: one runs, the others answer `events`, `note` and `stop`."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.program, self.plan = assignment.program, assignment.plan
        self.folder = RunFolder(assignment.folder)
        self.log = Events()
        self._stop = "no"  # no | after the round | now
        self._watch = Stopwatch()
        self._columns: list[str] = []  # of metrics.jsonl
        self._superseded: list[tuple[str, int, int]] = []  # client, version, and the round from which on another one is current

    def events(self, after: int, timeout: float) -> list[Event]:
        return self.log.after(after, timeout)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        self.log.add(kind, data)

    def stop(self, now: bool) -> None:
        """End after the current round with a checkpoint, or at once."""
        self._stop = "now" if now else "after the round"

    def run(self) -> dict[str, Any]:
        """Play the run to its end; returns what results.json holds."""
        with self.folder.locked():
            for name, text in self.assignment.texts.items():
                self.folder.write_text(name, text)
            (self.folder.root / "error.txt").unlink(missing_ok=True)
            program = ray.put(self.program)
            assets = ray.put(dict(self.assignment.assets))
            me = ray.get_runtime_context().current_actor
            share = self.assignment.share

            def make() -> Any:
                remote = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)(ClientActor)
                return remote.remote(program, assets, share.gpus, me)

            self.note("phase", {"text": f"starting {share.actors} client actors"})
            try:
                pool = Pool(make, share.actors, self.plan.engine.replacements, stopped=lambda: self._stop == "now")
                return self._run(pool)
            except Stopped:
                return self._stopped()
            except Exception:  # whatever it is: kept with its traceback beside the run, and passed on
                self.folder.write_text("error.txt", traceback.format_exc())
                raise

    def _run(self, pool: Pool) -> dict[str, Any]:
        markers = self.folder.root / "lanes"
        markers.mkdir(exist_ok=True)
        asset_bytes = sum(int(getattr(asset, "nbytes", 0)) for asset in self.assignment.assets.values())
        rounds = Rounds(self.program, self.plan, pool, markers, asset_bytes, self.note)
        initial, progress = self._begin(pool, rounds)
        writer = SummaryWriter(str(self.folder.root / "tensorboard"), purge_step=progress.round + 1)
        splits = list(self.program.data.splits())
        if not progress.round and "dev" in splits:
            seed = rounds.evaluate(progress.state, 0, ["dev"], final=False)["dev"]
            self._write_scalars(writer, seed.metrics, 0)
            self.note("seed", dict(seed.metrics))
        while progress.round < self.plan.rounds and self._stop == "no":
            progress = self._round(pool, rounds, progress, writer)
        writer.close()
        shutil.rmtree(markers)
        if progress.round < self.plan.rounds:
            if progress.round not in self.folder.saved_rounds():  # the wish came after the round had been written
                self.folder.save(progress)
            return self._stopped()
        return self._finish(rounds, initial, progress, splits)

    def _stopped(self) -> dict[str, Any]:
        """The user ended the run; its newest checkpoint is of this round (None: there is none)."""
        return {"stopped": max(self.folder.saved_rounds(), default=None)}

    def _begin(self, pool: Pool, rounds: Rounds) -> tuple[Progress, Progress]:
        """The initial state, and where to go on: the same in a new run, else the newest checkpoint."""
        saved = self.folder.saved_rounds()
        if saved:
            initial, progress = self.folder.load(0), self.folder.load(saved[-1])
            rounds.start(initial.state)
            for table in (METRICS, FAILURES):
                self.folder.rewrite(table, [row for row in self.folder.rows(table) if row["round"] <= progress.round])
            self._columns = list(next(iter(self.folder.rows(METRICS)), {}))
            self._collect_after_resume(saved)
            self.note("phase", {"text": f"going on after round {progress.round}"})
            return initial, progress
        self.note("phase", {"text": "initial model"})
        progress = Progress(pool.run({0: Job("init", ())})[0])
        rounds.start(progress.state)
        if self.plan.engine.prepare == "all" and self.program.algorithm.overrides("client_prepare"):
            self.note("phase", {"text": "preparing all clients"})
            lanes, down_bytes = rounds.prepare_all(progress)
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
        watch, busy = Stopwatch(), pool.busy_seconds
        outcome = rounds.train(progress)
        trained = watch()
        self._append_failures(outcome.failures, progress.round + 1)
        rounds.check(outcome.failures, outcome.cohort)
        state = rounds.finish(progress, outcome)
        after, superseded = rounds.record(progress, outcome, state)
        last = after.round == self.plan.rounds
        scored: Evaluation | None = None
        if "dev" in self.program.data.splits() and (after.round % self.plan.evaluation.every == 0 or last):
            scored = rounds.evaluate(state, after.round, ["dev"], final=False)["dev"]
        self._judge(after, scored)
        after.totals["seconds"] = progress.totals["seconds"] + watch()
        row = self._row(progress, after, outcome, scored)
        row |= {"time/round_s": watch(), "time/train_s": trained, "time/idle_share": 1 - (pool.busy_seconds - busy) / (watch() * pool.size)}
        for phase in ("hydrate", "prepare", "train", "fold"):
            row[f"time/{phase}_cpu_s"] = sum(lane.seconds[phase] for lane in outcome.lanes)
        self._append_row(row)
        best = after.best is not None and after.best["round"] == after.round
        if after.round % self.plan.engine.checkpoint_every == 0 or last or best or self._stop != "no":
            self.folder.save(after)
            self._prune(after)
        self._superseded.extend((client, version, after.round) for client, version in superseded)
        self._collect(self._superseded)
        self._write_scalars(writer, {key: value for key, value in row.items() if key != "round"}, after.round)
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
            "clients/effective": outcome.partial.updates.effective_clients(),
            "traffic/up_bytes": totals["up_bytes"] - before.totals["up_bytes"],
            "traffic/down_bytes": totals["down_bytes"] - before.totals["down_bytes"],
            "traffic/total_bytes": totals["up_bytes"] + totals["down_bytes"],
        }
        return row | dict(outcome.settings)

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
        self.folder.prune({0, *latest} | best)

    def _collect(self, superseded: list[tuple[str, int, int]]) -> None:
        """Remove versions of client states, current in rounds [from, to), that no checkpoint names."""
        saved = self.folder.saved_rounds()
        self._superseded = []
        for client, since, until in superseded:
            if any(since <= round < until for round in saved):
                self._superseded.append((client, since, until))
            else:
                self.program.states.remove(client, since)

    def _collect_after_resume(self, saved: list[int]) -> None:
        """Keep the versions of client states that checkpoints name, and remember until when each of them is current."""
        named: dict[str, set[int]] = {}  # client -> versions
        for round in saved:
            for client, record in self.folder.load_clients(round).items():
                if record.version is not None:
                    named.setdefault(client, set()).add(record.version)
        self.program.states.keep_only({(client, version) for client, versions in named.items() for version in versions})
        for client, versions in named.items():
            self._superseded += [(client, version, following) for version, following in pairwise(sorted(versions))]

    def _write_scalars(self, writer: SummaryWriter, values: Mapping[str, Any], step: int) -> None:
        for key, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                writer.add_scalar(key, value, step)
        writer.flush()

    def _finish(self, rounds: Rounds, initial: Progress, progress: Progress, splits: list[str]) -> dict[str, Any]:
        """Score the initial and the best model on every split, as it is reported; write results and tables."""
        watch = Stopwatch()
        self.note("phase", {"text": "final evaluation"})
        best = self.folder.load(int(progress.best["round"])) if progress.best else progress
        results: dict[str, Any] = {"name": self.assignment.name, "rounds": progress.round}
        predictions: list[dict[str, Any]] = []
        for title, which in (("seed", initial), ("best", best)):
            scored = rounds.evaluate(which.state, which.round, splits, final=True)
            results[title] = {"round": which.round} | {k: v for split in scored.values() for k, v in split.metrics.items()}
            predictions += [{"model": title, "split": split, **row} for split, part in scored.items() for row in part.predictions]
        write_clients(progress.clients, self.folder.root / "clients.parquet")
        self.folder.write_table("predictions.tsv", predictions)
        results |= {
            "clients/failed": progress.totals["failed"],
            "traffic/up_bytes": progress.totals["up_bytes"],
            "traffic/down_bytes": progress.totals["down_bytes"],
            "traffic/total_bytes": progress.totals["up_bytes"] + progress.totals["down_bytes"],
            "time/total_s": progress.totals["seconds"] + watch(),
        }
        self.folder.write_json("results.json", results)
        self.program.algorithm.export(best.state, self.folder.root / "model")
        return results


def start(assignment: Assignment) -> Any:
    """A driver actor on this node, which holds the run folder."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote = ray.remote(num_cpus=DRIVER_CPUS, max_concurrency=4, max_restarts=0, scheduling_strategy=here)(Driver)
    return remote.remote(assignment)
