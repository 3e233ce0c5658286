"""A trial: one run, whose driver actor and client actors lie in the bundles of the trial's placement group.

A trial reports a row a round. Its checkpoint, as Tune sees it, is a pointer to a checkpoint of its run folder, which the driver keeps as
long as Tune may come back to it. A trial that gets another's checkpoint (PBT) begins a run folder of its own with that state: client
states are written once and never changed, so they are linked, not copied.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import yaml
from ray import tune
from ray.exceptions import RayActorError, RayTaskError

from fedray import experiment, runs
from fedray.core.config import plain
from fedray.core.parallel import serial
from fedray.core.storage import below
from fedray.core.types import RunError
from fedray.engine import driver as drivers
from fedray.engine import session
from fedray.engine.folder import RunFolder
from fedray.engine.play import FAILURES, LEFT_OUT, METRICS
from fedray.engine.store import ClientStore
from fedray.programs import description
from fedray.sweep.study import Study

POINTER, CONFIG = "pointer.json", "config.yaml"
POLL_SECONDS = 5.0
END_SECONDS = 20.0  # for a driver that was asked to end at once


class Trial(tune.Trainable):
    """Tune makes it, asks it for rows and checkpoints, and ends it; `study` comes by `tune.with_parameters`."""

    def setup(self, config: dict[str, Any], study: Study) -> None:
        self.study, self.values, self.name = study, config, Path(self.logdir).name
        self.round = 0  # reported last
        self.source: dict[str, Any] | None = None  # the pointer to go on from
        self.pinned: deque[int] = deque([0], maxlen=study.keep + 1)  # Tune removes a checkpoint only after it has got the next
        self.metric: float | None = None
        self.driver: Any = None
        self._reports = self._play()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next trial in the same process: importing torch takes seconds."""
        self.cleanup()
        Trial.setup(self, new_config, self.study)
        return True

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.source = json.loads(Path(checkpoint_dir, POINTER).read_text(encoding="utf-8"))
        self.round = self.source["round"]
        self.pinned.append(self.round)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        saved = max(round for round in self.folder.saved_rounds() if round <= self.round)
        pointer = {"trial": self.name, "run": self.run, "round": saved}
        Path(checkpoint_dir, POINTER).write_text(json.dumps(pointer), encoding="utf-8")
        self.pinned.append(saved)
        ray.get(self.driver.pin.remote(list(self.pinned)))

    def step(self) -> dict[str, Any]:
        """The next round's row; the last one comes with the run's results."""
        row = next(self._reports)
        self.round = row["round"]
        value = row.get(self.study.metric)
        self.metric = self.metric if value is None else value  # where a round was not scored, the score before it stands
        return {"run": self.run} | row | {self.study.metric: self.metric}

    def cleanup(self) -> None:
        if self.driver is not None:
            self.driver.stop.remote(now=True)
            ray.wait([self.finished], timeout=END_SECONDS)
            ray.kill(self.driver)

    def _play(self) -> Iterator[dict[str, Any]]:
        """Begin or go on; rows, from the one after `self.round` on."""
        config, source = self.study.config(self.values)
        self.run, new = self._choose(plain(config))
        where = self._where(self.name, self.run)
        self.folder = RunFolder(where)
        saved = max(self.folder.saved_rounds(), default=0)
        before = [row for row in self.folder.rows(METRICS) if self.round < row["round"] <= saved]
        program = experiment.build(config, source, where, self.study.share, serial)
        described = description(config, program, self.study.share) if new else json.loads(self.folder.read_text("run.json"))
        group = ray.util.get_current_placement_group()
        self.driver = drivers.start(experiment.assign(config, program, self.study.share, where, described, group))
        ray.get(self.driver.pin.remote(list(self.pinned)))
        self.finished = self.driver.run.remote()
        last = None
        for last in self._rows(before):
            if last["round"] < config.rounds:
                yield last
        results = self._results()
        scores = {f"{title}/{name}": value for title in ("seed", "best", "own") for name, value in results.get(title, {}).items()}
        yield (last or self.folder.rows(METRICS)[-1]) | scores | {"done": True}

    def _rows(self, before: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        yield from before
        done = before[-1]["round"] if before else self.round
        seen, ended = 0, False
        while not ended:
            try:
                events = ray.get(self.driver.events.remote(seen, POLL_SECONDS))
            except RayActorError as error:
                raise RunError(f"the driver of {self.folder.place} died: {error}") from None
            for event in events:
                seen, ended = event.number + 1, event.kind == "end"
                if event.kind == "round" and event.data["row"]["round"] > done:
                    yield event.data["row"]

    def _results(self) -> dict[str, Any]:
        try:
            return dict(ray.get(self.finished))
        except RayTaskError as error:
            raise session.cause_of(error) from None

    def _where(self, trial: str, run: str) -> Path | str:
        return runs.place(below(self.study.place, f"{trial}/{run}"))

    def _choose(self, config: dict[str, Any]) -> tuple[str, bool]:
        """The run folder of the trial, and whether it is a new run: it is where none is there yet, or another checkpoint is taken over."""
        run = next_run = "run"
        for number in itertools.count(1):
            if not RunFolder(self._where(self.name, next_run)).exists(CONFIG):
                break
            run, next_run = next_run, f"run-{number:02d}"
        current = RunFolder(self._where(self.name, run))
        if self.source is None or self.source["trial"] == self.name and self.source["run"] == run:
            if not current.exists(CONFIG):
                return run, True
            if yaml.safe_load(current.read_text(CONFIG)) == yaml.safe_load(yaml.safe_dump(config)):
                return run, False
        source = self.source or {"trial": self.name, "run": run, "round": max(current.saved_rounds(), default=0)}
        take_over(RunFolder(self._where(source["trial"], source["run"])), source["round"], RunFolder(self._where(self.name, next_run)))
        return next_run, True


def take_over(source: RunFolder, round: int, target: RunFolder) -> None:
    """Have `target` stand where `source` stood after a round: checkpoints, client states, rows."""
    best = source.load(round).best
    states, theirs = (ClientStore(folder.storage.child("states")) for folder in (target, source))
    for saved in sorted({0, round} | ({int(best["round"])} if best else set())):
        progress = source.load(saved)
        states.adopt(theirs, [(client, record.version) for client, record in progress.clients.items() if record.version is not None])
        target.save(progress)
    for table in (METRICS, FAILURES, LEFT_OUT):
        target.rewrite(table, [row for row in source.rows(table) if row["round"] <= round])
