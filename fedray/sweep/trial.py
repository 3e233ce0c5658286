"""A trial: one run, whose driver and client actors use the bundles of the trial's placement group.

A trial reports a row per round. For Tune its checkpoint is a pointer to a checkpoint in the run folder, which the
driver keeps as long as Tune may return to it. A trial that takes over another's checkpoint (PBT) starts a run folder
with that state. Client states never change once written, so the new folder links them instead of copying.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray import ObjectRef, tune
from ray.actor import ActorHandle
from ray.exceptions import RayTaskError

from fedray import experiment
from fedray.core.parallel import serial
from fedray.core.types import RunError
from fedray.engine.actors.ray_deaths import DEATHS, eviction
from fedray.engine.driver import driver as drivers
from fedray.engine.driver import session
from fedray.engine.telemetry.trackers import Card
from fedray.runs import places
from fedray.runs.folder import METRICS, RunFolder
from fedray.storage.base import below
from fedray.sweep.study import Study

POINTER, CONFIG = "pointer.json", "config.yaml"
Json = dict[str, Any]  # a row of a table, or the object of a JSON file
POLL_SECONDS = 5.0
END_SECONDS = 20.0  # that a driver has to end after `stop`


class Trial(tune.Trainable):
    """Tune creates a trial, asks it for rows and checkpoints, and ends it; `tune.with_parameters` passes the study."""

    def setup(self, config: Json, study: Study) -> None:
        """Called by Tune: `config` holds the swept keys and their values."""
        self.study, self.values, self.name = study, config, Path(self.logdir).name
        self.round = 0  # the last reported one
        self.source: Json | None = None  # the pointer to the checkpoint to start from
        # One more than Tune keeps: it removes a checkpoint only after it has the next.
        self.pinned: deque[int] = deque([0], maxlen=study.keep + 1)
        self.metric = math.nan  # until the first score
        self.driver: ActorHandle | None = None
        self.finished: ObjectRef | None = None
        self._reports = self._play()

    def reset_config(self, new_config: Json) -> bool:
        """Reuse the process for another trial: importing torch takes seconds."""
        self.cleanup()
        Trial.setup(self, new_config, self.study)
        return True

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Continue from the checkpoint that a pointer names, of this trial or of another."""
        self.source = json.loads(Path(checkpoint_dir, POINTER).read_text(encoding="utf-8"))
        self.round = self.source["round"]
        self.pinned.append(self.round)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a pointer to the newest checkpoint of the run, and keep that checkpoint."""
        saved = max(round for round in self.folder.saved_rounds() if round <= self.round)
        pointer = {"trial": self.name, "run": self.run, "round": saved}
        Path(checkpoint_dir, POINTER).write_text(json.dumps(pointer), encoding="utf-8")
        self.pinned.append(saved)
        ray.get(self._driver.pin.remote(list(self.pinned)))

    def step(self) -> Json:
        """The row of the next round; the last row includes the results of the run."""
        row = next(self._reports)
        self.round = row["round"]
        self._keep_score(row)
        return {"run": self.run} | row | {self.study.metric: self.metric}

    def _keep_score(self, row: Json) -> None:
        """Remember a round's score of the metric. Tune ranks by the last score in rounds without one."""
        if (value := row.get(self.study.metric)) is not None:
            self.metric = value

    def cleanup(self) -> None:
        """Stop the driver of an unfinished run."""
        if self.driver is not None:
            if self.finished is not None:
                self.driver.stop.remote(now=True)
                ray.wait([self.finished], timeout=END_SECONDS)
            ray.kill(self.driver)

    @property
    def _driver(self) -> ActorHandle:
        assert self.driver is not None
        return self.driver

    def _play(self) -> Iterator[Json]:
        """Start or resume the run; yields the rows after round `self.round`."""
        config, source = self.study.config(self.values)
        self.run, new = self._choose()
        where = self._where(self.name, self.run)
        self.folder = RunFolder(where)
        saved = max(self.folder.saved_rounds(), default=0)
        before = []
        for row in self.folder.each(METRICS):
            if row["round"] <= self.round:
                self._keep_score(row)
            elif row["round"] <= saved:
                before.append(row)
        program = experiment.build(config, source, where, self.study.share, serial)
        share, group = self.study.share, ray.util.get_current_placement_group()
        described = experiment.description(config, source, program, share)
        if not new:
            paced, accept = experiment.paced_by(config, program.algorithm), self.study.accept_changes
            remedy = "continue the sweep with --resume --accept-changes"
            described = experiment.carried_on(self.folder, described, paced, accept, remedy)
        card = Card(
            self.name if self.run == "run" else f"{self.name}/{self.run}",
            sweep=Path(self.study.place).name,
            parent=self.study.parent,
        )
        self.driver = drivers.start(experiment.assign(config, source, program, share, where, described, group, card))
        ray.get(self.driver.pin.remote(list(self.pinned)))
        self.finished = self.driver.run.remote()
        last = None
        for last in self._rows(before):
            if last["round"] < config.rounds:
                yield last
        results = self._results()
        scores = {
            f"{title}/{name}": value
            for title in ("seed", "best", "personal")
            for name, value in results.get(title, {}).items()
        }
        yield (last or self.folder.rows(METRICS)[-1]) | scores | {"done": True}

    def _rows(self, before: list[Json]) -> Iterator[Json]:
        yield from before
        done = before[-1]["round"] if before else self.round
        seen, ended = 0, False
        while not ended:
            try:
                events = ray.get(self._driver.events.remote(seen, POLL_SECONDS))
            except DEATHS as error:
                raise RunError(f"the driver of {self.folder.place} died: {eviction(error) or error}") from None
            if events and events[0].number > seen:  # the driver keeps only the newest events
                last = next((event.data["row"]["round"] for event in events if event.kind == "round"), math.inf)
                for row in self.folder.each(METRICS):
                    if done < row["round"] < last:
                        done = row["round"]
                        yield row
            for event in events:
                seen, ended = event.number + 1, event.kind == "end"
                if event.kind == "round" and event.data["row"]["round"] > done:
                    done = event.data["row"]["round"]
                    yield event.data["row"]

    def _results(self) -> Json:
        try:
            return dict(ray.get(self.finished))
        except RayTaskError as error:
            raise session.cause_of(error) from None

    def _where(self, trial: str, run: str) -> Path | str:
        return places.place(below(self.study.place, f"{trial}/{run}"))

    def _choose(self) -> tuple[str, bool]:
        """The name of the trial's run folder, and whether the run is new: the first one, or a taken-over checkpoint."""
        run = next_run = "run"
        for number in itertools.count(1):
            if not RunFolder(self._where(self.name, next_run)).exists(CONFIG):
                break
            run, next_run = next_run, f"run-{number:02d}"
        if self.source is None or (self.source["trial"] == self.name and self.source["run"] == run):
            begun = RunFolder(self._where(self.name, run)).exists(CONFIG)
            return run, not begun  # `carried_on` reports it if it began with another configuration
        origin, target = self._where(self.source["trial"], self.source["run"]), self._where(self.name, next_run)
        take_over(RunFolder(origin), self.source["round"], RunFolder(target))
        return next_run, True


def take_over(source: RunFolder, round: int, target: RunFolder) -> None:
    """Start the run folder `target` with the checkpoints, client states and rows of `source` up to a round."""
    best = source.load(round).best
    states, theirs = target.states, source.states
    for saved in sorted({0, round} | ({int(best["round"])} if best else set())):
        progress = source.load(saved)
        states.adopt(theirs, [(client, written.version) for client, written in progress.files()])
        target.save(progress)
    for table in source.tables():
        target.rewrite(table, (row for row in source.each(table) if row["round"] <= round))
