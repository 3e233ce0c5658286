"""fedray's side of the engine's benchmark: the standard workload as a run, with times and memory from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import ray
import yaml

from benchmarks.engine import networks, toys
from benchmarks.engine.stores import configuration, federation
from benchmarks.engine.toys import Own
from benchmarks.engine.workloads import Workload
from fedray import experiment
from fedray.config.schema import plain
from fedray.data.features.dataset import Utterances
from fedray.engine.cluster.resources import share
from fedray.engine.driver import driver as drivers
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.work import Program
from fedray.engine.round.plan import Plan
from fedray.models import MODELS
from fedray.runs.client_states import ClientStore


def build(
    folder: Path, clips: Utterances, workload: Workload, rounds: int, actors: int, scored: int = 0
) -> tuple[experiment.Config, Program]:
    """The workload's configuration, and the program of a run in `folder`."""
    data = federation(clips, workload, scored)
    config, _ = experiment.load(configuration(workload, rounds, actors))
    return config, Program(experiment.build_algorithm(config, data), data, config.seed, ClientStore(folder / "states"))


def assignment(
    folder: Path, clips: Utterances, workload: Workload, rounds: int, actors: int, scored: int = 0
) -> Assignment:
    """The workload as a run in `folder`: the assignment of a driver, without a corpus on disk."""
    with mock.patch.dict(MODELS, own=Own):
        config, program = build(folder, clips, workload, rounds, actors, scored)
        texts = {"config.yaml": yaml.safe_dump(plain(config), sort_keys=False)}
    return assigned(config, program, folder, texts)


def configured(config: str | Path, overrides: Sequence[str], folder: Path) -> Assignment:
    """A run of a configuration in `folder`: the assignment of a driver."""
    checked, source = experiment.load(config, overrides)
    data, _ = experiment.build_data(checked, source)
    program = experiment.build_program(checked, data, ClientStore(folder / "states"), 0.0)
    return assigned(checked, program, folder, {})


def assigned(config: experiment.Config, program: Program, folder: Path, texts: Mapping[str, str]) -> Assignment:
    """The assignment of a driver that plays a program in `folder`, which this makes."""
    plan = Plan(config.rounds, config.cohort, config.engine, config.evaluation)
    folder.mkdir(parents=True)
    assets, shares = program.algorithm.assets(program.data), share(config.engine, session.resources())
    return Assignment(config.name, program, assets, plan, shares, folder, texts)


@contextmanager
def ray_here() -> Iterator[None]:
    """Start Ray for a measurement and stop it after; a Ray that runs already stays."""
    there = ray.is_initialized()
    session.connect()
    for module in (networks, toys):
        session.ship(module)
    try:
        yield
    finally:
        if not there:
            ray.shutdown()


class Memory(threading.Thread):
    """Samples the proportional set size (PSS) of this process and its children, in bytes by kind, in a thread."""

    def __init__(self, period: float) -> None:
        super().__init__(daemon=True)
        self.period, self.samples = period, list[dict[str, int]]()
        self._over = threading.Event()

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(self.period):
            self.samples.append(self.sample())

    @staticmethod
    def sample() -> dict[str, int]:
        found = {"this process": 0, "driver": 0, "client actors": 0, "Ray": 0}
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                title = process.cmdline()[:1] or [""]
                kinds = {":Driver": "driver", ":ClientActor": "client actors"}  # a driver's title starts with its name
                kind = next((kind for part, kind in kinds.items() if part in title[0]), "Ray")
                # PSS counts shared pages (libraries, the object store) once, not once a process.
                found["this process" if process == me else kind] += process.memory_full_info().pss
            except psutil.Error:  # the process has ended
                continue
        return found

    def peak(self) -> dict[str, int]:
        """The sample with the largest sum, among those with driver and client actors; empty if there is none."""
        whole = [sample for sample in self.samples if sample["driver"] and sample["client actors"]]
        return max(whole, key=lambda sample: sum(sample.values()), default={})


@dataclass
class Played:
    """A run from outside. A round lasts from the end of the previous one to its end, with checkpoint and events."""

    seconds: list[float]  # of each round after the first
    start_s: float  # to the first round: processes, imports, initial model and checkpoint
    rows: list[dict[str, Any]]  # of metrics.jsonl
    memory: dict[str, int] = field(default_factory=dict)  # bytes at the peak; empty if not measured
    memories: list[int] = field(
        default_factory=list
    )  # bytes of all processes at the end of each round; empty if not measured


def play(given: Assignment, period: float | None = None) -> Played:
    """Run to the end; `period`: seconds between two samples of the memory (None: no samples)."""
    started, ends, rows, memories = time.perf_counter(), list[float](), list[dict[str, Any]](), list[int]()
    with Memory(period) if period else nullcontext() as watch:
        driver = drivers.start(given)
        try:
            finished, seen, over = driver.run.remote(), 0, False
            while not over:
                for event in ray.get(driver.events.remote(seen, 1.0)):
                    seen, over = event.number + 1, event.kind == "end"
                    if event.kind == "round":
                        ends.append(time.perf_counter())
                        rows.append(event.data["row"])
                        memories += [sum(watch.sample().values())] if watch else []
            ray.get(finished)  # raises the error of a failed run
        finally:
            session.end(driver, given.folder)
    seconds = [after - before for before, after in pairwise(ends)]
    return Played(seconds, ends[0] - started - rows[0]["time/round_s"], rows, watch.peak() if watch else {}, memories)
