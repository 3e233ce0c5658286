"""fedray's side of the engine's benchmark: the standard workload as a run, and runs timed and weighed from outside."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import engine_floor
import engine_toys
import numpy as np
import psutil
import ray
import yaml
from engine_floor import BINS, FRAMES, POOL, Workload
from engine_toys import Wide

from fedray import experiment, programs
from fedray.core.config import plain
from fedray.data.dataset import Utterances
from fedray.data.features import FeatureStore
from fedray.data.federated import SpeechData
from fedray.data.manifest import Manifest
from fedray.engine import driver as drivers
from fedray.engine import session
from fedray.engine.driver import Assignment
from fedray.engine.resources import share
from fedray.engine.rounds import Plan
from fedray.engine.store import ClientStore
from fedray.engine.work import Program
from fedray.models import MODELS

LABELS = [f"{i:02d}" for i in range(engine_floor.CLASSES)]
# Width, hidden and bidirectional of fedray's own models; what is none of them is played by `Wide`.
OURS = {(64, 128, True): "base", (32, 64, False): "lite"}


def write_clips(folder: Path) -> Utterances:
    """The pool of clips as a feature store with its manifest, made once."""
    clips, classes = engine_floor.pool()
    frames = folder / "frames.f16"
    if not frames.exists():
        folder.mkdir(parents=True)
        np.save(folder / "offsets.npy", np.arange(POOL + 1, dtype=np.int64) * FRAMES)
        (folder / "store.json").write_text(json.dumps({"bins": BINS, "broken": {}}), encoding="utf-8")
        clips.astype(np.float16).tofile(frames)
    columns = {
        "utterance": [f"clip-{i:04d}" for i in range(POOL)],
        "path": [str(frames.resolve())] * POOL,
        "seconds": np.ones(POOL),
        "speaker": ["nobody"] * POOL,
        "label": [LABELS[i] for i in classes],
    }
    return Utterances(Manifest.from_columns(columns, str(folder)), FeatureStore(folder), np.arange(POOL))


def federation(clips: Utterances, workload: Workload, scored: int = 0) -> SpeechData:
    """The workload's clients; with `scored`, so many clips are a development set."""
    rows = {f"client-{client:04d}": workload.rows(client) for client in range(workload.clients)}
    return SpeechData(clips, rows, {"dev": clips.take(np.arange(scored))} if scored else {}, None)


def configuration(workload: Workload, rounds: int, actors: int) -> dict[str, Any]:
    """As in a YAML file."""
    workload, whole = workload.shared(), workload
    shape = (workload.width, workload.hidden, workload.bidirectional)
    client = {"lr": engine_floor.LR, "batch": engine_floor.BATCH, "epochs": 1, "clip": None}
    wide = {"kind": "wide", "width": workload.width, "hidden": workload.hidden, "bidirectional": workload.bidirectional}
    return {
        "name": "engine",
        "rounds": rounds,
        "task": {"kind": "classification", "classes": LABELS},
        "model": {"kind": "crnn", "size": OURS[shape]} if shape in OURS else wide,
        "algorithm": {"kind": "fedmlac", "sizes": [OURS[whole.width, whole.hidden, whole.bidirectional]], "client": client}
        if whole.mutual
        else {"kind": "fedavg", "client": client, "pretrain": {"steps": 0}},
        "cohort": {"size": workload.cohort},
        "engine": {"actors": actors},
    }


def build(
    folder: Path, clips: Utterances, workload: Workload, rounds: int, actors: int, scored: int = 0
) -> tuple[experiment.Config, Program]:
    """The workload's configuration, and what the actors of a run in `folder` need to know."""
    data = federation(clips, workload, scored)
    config, _ = experiment.load(configuration(workload, rounds, actors))
    return config, Program(programs.build_algorithm(config, data), data, config.seed, ClientStore(folder / "states"))


def assignment(folder: Path, clips: Utterances, workload: Workload, rounds: int, actors: int, scored: int = 0) -> Assignment:
    """The workload as a run in `folder`: what `fedray run` hands to a driver, without a corpus on disk behind it."""
    with mock.patch.dict(MODELS, wide=Wide):
        config, program = build(folder, clips, workload, rounds, actors, scored)
        texts = {"config.yaml": yaml.safe_dump(plain(config), sort_keys=False)}
    plan = Plan(config.rounds, config.cohort, config.engine, config.evaluation)
    folder.mkdir(parents=True)
    return Assignment(config.name, program, program.algorithm.assets(), plan, share(config.engine, session.resources()), folder, texts)


@contextmanager
def ray_here() -> Iterator[None]:
    """Ray while it is needed, so that it takes nothing from what else is measured; one that is there already stays."""
    there = ray.is_initialized()
    session.connect()
    for module in (engine_floor, engine_toys):
        session.ship(module)
    try:
        yield
    finally:
        if not there:
            ray.shutdown()


class Memory(threading.Thread):
    """Proportional set size (PSS) of this process and all below it, in bytes by kind of process, each `period` seconds while open."""

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
                kinds = {":Driver": "driver", ":ClientActor": "client actors"}  # a driver's has its name in front
                kind = next((kind for part, kind in kinds.items() if part in title[0]), "Ray")
                # PSS, for what is shared (libraries, the object store) would else count once a process.
                found["this process" if process == me else kind] += process.memory_full_info().pss
            except psutil.Error:  # it ended meanwhile
                continue
        return found

    def peak(self) -> dict[str, int]:
        """The sample with the largest sum, of those in which driver and client actors are there; empty where there is none."""
        whole = [sample for sample in self.samples if sample["driver"] and sample["client actors"]]
        return max(whole, key=lambda sample: sum(sample.values()), default={})


@dataclass
class Played:
    """A run, seen from outside. A round lasts from the end of the one before to its own: with its checkpoint and its events."""

    seconds: list[float]  # of every round but the first
    start_s: float  # from the call to the first round: processes, imports, the initial model and its checkpoint
    rows: list[dict[str, Any]]  # of metrics.jsonl
    memory: dict[str, int] = field(default_factory=dict)  # bytes at the peak; empty: not measured
    memories: list[int] = field(default_factory=list)  # bytes of all processes at the end of every round; empty: not measured


def play(given: Assignment, period: float | None = None) -> Played:
    """Run to the end; `period`: seconds between two looks at the memory (None: none, they cost CPU)."""
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
            ray.get(finished)  # raises what went wrong
        finally:
            ray.kill(driver)
    seconds = [after - before for before, after in pairwise(ends)]
    return Played(seconds, ends[0] - started - rows[0]["time/round_s"], rows, watch.peak() if watch else {}, memories)
