"""The parts of the engine's benchmark: each measures, reports its progress, and returns its numbers as plain data."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.engine import floor as bare
from benchmarks.engine import lane_profile, stores, toys
from benchmarks.engine import runs as fedray_runs
from benchmarks.engine import speakers as speech
from benchmarks.engine.runs import Played
from benchmarks.engine.workloads import KEYWORDS, Keywords
from fedray.engine.settings import EngineSettings

# Phase of a round -> its key in metrics.jsonl, and whether it is a sum over all actors.
BARE = "fedray's steps alone, a process a core"
PHASES = {
    "broadcast": ("time/broadcast_s", False),
    "hydration": ("time/hydrate_actors_s", True),
    "preparation": ("time/prepare_actors_s", True),
    "training": ("time/train_actors_s", True),
    "folding": ("time/fold_actors_s", True),
    "merging": ("time/merge_s", False),
    "server update": ("time/update_s", False),
    "evaluation": ("time/evaluate_s", False),
    "checkpoint": ("time/checkpoint_s", False),  # of the previous round: the row is written first
    "events": ("time/events_s", False),  # of the previous round: TensorBoard, and the row
}


@dataclass(frozen=True)
class Sizes:
    """How much to measure."""

    pairs: int = 5  # of a run of the floor and one of fedray
    rounds: int = 6  # of each; the first does not count
    clients: int = 4000
    cohort: int = 100  # (of the larger models: 40 %)
    scored: int = 2000  # clips of the development set, where the phases are measured
    lanes: int = 20  # that are profiled
    populations: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    toy_rounds: int = 60
    cohorts: tuple[int, ...] = (10, 100, 1000, 4000)
    parameters: tuple[int, ...] = (100_000, 1_000_000, 12_000_000)
    toy_cohorts: tuple[int, ...] = (8, 40, 200)
    size_rounds: int = 4
    speakers: int = 4000

    def workload(self, model: str) -> Keywords:
        workload = KEYWORDS[model]
        return replace(workload, clients=self.clients, cohort=workload.cohort * self.cohort // 100)


QUICK = Sizes(rounds=4)
TINY = Sizes(1, 3, 16, 5, 32, 2, (10, 1000), 4, (2, 8), (1000, 10_000), (4, 8), 3, 40)


class Bench:
    """The folder and the sizes of a measurement."""

    def __init__(self, work: Path, sizes: Sizes, cores: int) -> None:
        self.work, self.sizes, self.cores = work, sizes, cores
        self._runs, self._since = 0, time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._since:5.0f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def folder(self) -> Any:
        """A folder for one run, removed after the run."""
        self._runs += 1
        folder = self.work / f"run-{self._runs:03d}"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def fedray(self, workload: Keywords, rounds: int, scored: int = 0, period: float | None = None) -> Played:
        clips = stores.write(self.work / "clips", workload)
        with self.folder() as folder, fedray_runs.ray_here():
            return fedray_runs.play(fedray_runs.assignment(folder, clips, workload, rounds, self.cores, scored), period)

    def toy(self, population: int, cohort: int, parameters: int, rounds: int, period: float | None = None) -> Played:
        with self.folder() as folder, fedray_runs.ray_here():
            given = toys.assignment(folder, population, cohort, parameters, rounds, self.cores)
            return fedray_runs.play(given, period)


def floor(bench: Bench, models: Sequence[str], side_by_side: bool = True) -> dict[str, Any]:
    """Each model: floor and fedray in turns."""
    return {model: _pairs(bench, model, side_by_side) for model in models}


def _pairs(bench: Bench, model: str, side_by_side: bool) -> dict[str, Any]:
    workload, rounds, cores = bench.sizes.workload(model), bench.sizes.rounds, bench.cores
    seconds: dict[str, list[list[float]]] = {"one core": [], "fedray": []}
    for pair in range(bench.sizes.pairs):
        seconds["one core"] += [run[1:] for run in bare.measure(workload, rounds)]
        seconds["fedray"].append(bench.fedray(workload, rounds).seconds)
        if side_by_side:
            parts = bare.measure(replace(workload, lean=not workload.own), rounds, cores)
            seconds.setdefault(BARE, []).append(list(chain.from_iterable(run[1:] for run in parts)))
        shown = "  ".join(f"{name} {median(runs[-1]):.3f}" for name, runs in seconds.items())
        bench.say(f"{workload.title}, pair {pair + 1} of {bench.sizes.pairs}: seconds a round: {shown}")
    floors = [median(run) / cores for run in seconds["one core"]]
    ratios = {
        name: [median(run) / one for run, one in zip(runs, floors, strict=True)]
        for name, runs in seconds.items()
        if name != "one core"
    }
    found = {name: median(chain.from_iterable(runs)) for name, runs in seconds.items()}
    overhead = (found["fedray"] - found.get(BARE, found["one core"] / cores)) * cores * 1000 / workload.cohort
    return {
        "title": workload.title,
        "cohort": workload.cohort,
        "clips": workload.clips,
        "parameters": sum(parameter.numel() for parameter in workload.net().parameters()),
        "floor_s": found["one core"] / cores,
        "seconds": {name: value for name, value in found.items() if name != "one core"},
        "ratios": ratios,
        "ratio": {name: median(values) for name, values in ratios.items()},
        "overhead_ms": overhead,
        "runs": seconds,
    }


def phases(bench: Bench) -> dict[str, Any]:
    """The time of a round by phase, from the run's metrics, and of a client by piece, from a profile here."""
    workload, cores = bench.sizes.workload("base"), bench.cores
    played = bench.fedray(workload, bench.sizes.rounds, bench.sizes.scored)
    rows = played.rows[1:]
    found: dict[str, float] = {}
    for phase, (key, summed) in PHASES.items():
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            found[phase] = median(values) / (cores if summed else 1)
    bench.say(f"phases of a round: {', '.join(f'{phase} {1000 * value:.1f} ms' for phase, value in found.items())}")
    clips = stores.write(bench.work / "clips", workload)
    clients = max(1, workload.cohort // EngineSettings().lane_count(workload.cohort))
    with bench.folder() as folder:
        _, program = fedray_runs.build(folder, clips, workload, 1, cores)
        lane = lane_profile.lane_ms(program, clients, bench.sizes.lanes)
    steps = lane_profile.floor_ms(workload, max(1, bench.sizes.rounds - 3))
    bench.say(f"a client in a lane: {sum(lane.values()):.2f} ms, the bare steps {steps:.2f} ms")
    return {
        "cohort": workload.cohort,
        "scored": bench.sizes.scored,
        "round_s": median(played.seconds),
        "train_s": median(row["time/train_s"] for row in rows),
        "row_s": median(row["time/round_s"] for row in rows),
        "phases_s": found,
        "lane_ms": lane,
        "floor_ms": steps,
    }


def population(bench: Bench) -> dict[str, Any]:
    """A toy without training, 100 clients a round, growing populations."""
    found = []
    for count in bench.sizes.populations:
        played = bench.toy(count, min(bench.sizes.cohort, count), 1000, bench.sizes.toy_rounds, period=0.5)
        found.append(
            {"population": count, "start_s": played.start_s, "round_s": mean(played.seconds), "memory": played.memory}
        )
        bench.say(
            f"population {count:,}: start {played.start_s:.1f} s, {1000 * mean(played.seconds):.0f} ms, {_gb(played)}"
        )
    return {"cohort": bench.sizes.cohort, "rounds": bench.sizes.toy_rounds, "runs": found}


def cohort(bench: Bench) -> dict[str, Any]:
    """CRNN-Lite, 10 clips a client, growing cohorts of the same population."""
    workload = replace(bench.sizes.workload("lite"), clips=10)
    steps = median(bare.measure(workload, bench.sizes.rounds)[0][1:]) / workload.cohort
    found = []
    for size in bench.sizes.cohorts:
        rounds = max(3, min(12, 4 * max(bench.sizes.cohorts) // size))
        played = bench.fedray(replace(workload, cohort=size), rounds, period=0.5)
        seconds = mean(played.seconds)
        found.append(
            {
                "cohort": size,
                "rounds": rounds,
                "round_s": seconds,
                "client_ms": 1000 * seconds / size,
                "memory": played.memory,
            }
        )
        bench.say(f"cohort {size:,}: {1000 * seconds / size:.2f} ms a client, {_gb(played)}")
    return {
        "population": workload.clients,
        "clips": workload.clips,
        "floor_ms": 1000 * steps / bench.cores,
        "runs": found,
    }


def size(bench: Bench) -> dict[str, Any]:
    """The toy with growing models: the cost of a client and of a round without a step of training."""
    sizes, found = bench.sizes, []
    with fedray_runs.ray_here():  # one Ray for all: neither floor nor memory is measured here
        for parameters, count in product(sizes.parameters, sizes.toy_cohorts):
            played = bench.toy(max(sizes.toy_cohorts), count, parameters, sizes.size_rounds)
            seconds, through = mean(played.seconds), played.rows[-1]["engine/driver_bytes"]
            found.append({"parameters": parameters, "cohort": count, "round_s": seconds, "driver_bytes": through})
            bench.say(
                f"{parameters:,} parameters, cohort {count}: {1000 * seconds:.1f} ms a round, {through / 1e6:.2f} MB"
            )
    return {"rounds": sizes.size_rounds, "runs": found}


def speakers(bench: Bench) -> dict[str, Any]:
    """Speech of many speakers: 7 % of them a round, then all in one round."""
    count, utterances, found = bench.sizes.speakers, 10, []
    for cohort, rounds in ((round(0.07 * count), 3), (count, 1)):
        with bench.folder() as folder:
            played = speech.play(folder, count, utterances, cohort, rounds, bench.cores)
        seconds = mean(row["time/round_s"] for row in played.rows)  # with all speakers there is one round
        found.append(
            {
                "cohort": cohort,
                "rounds": rounds,
                "round_s": seconds,
                "client_ms": 1000 * seconds / cohort,
                "memory": played.memory,
            }
        )
        bench.say(f"{cohort:,} of {count:,} speakers: {seconds:.1f} s a round, {_gb(played)}")
    return {"population": count, "clips": utterances, "runs": found}


def _gb(played: Played) -> str:
    return f"{sum(played.memory.values()) / 1e9:.2f} GB in all processes"


PARTS = {
    "floor": floor,
    "phases": phases,
    "population": population,
    "cohort": cohort,
    "size": size,
    "speakers": speakers,
}
