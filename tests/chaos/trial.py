"""One disturbed run: it is restarted until it is finished, and compared with the undisturbed run."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from fedray.core.types import RunError
from fedray.runs.folder import RunFolder
from tests.chaos.faults import FAULTS, Fault, Scene, kill_all, processes
from tests.chaos.stage import Line, Stage
from tests.engine.runs import rows

ROUNDS = 6
WORKLOADS: list[dict[str, Any]] = [
    {"strategy": "by_examples"},
    {"strategy": "layerwise_pruning"},
    {"strategy": "by_examples", "wide": True, "clients": 25, "lanes": 12},
    {"strategy": "median"},
    {"strategy": "krum"},
    {"strategy": "layerwise_pruning", "placement": "dedicated", "clients": 4, "lanes": 2},
    {"private": "gaussian"},
    {"private": "correlated"},
    {"private": "skellam"},
]
DEADLINE = {"factor": 5.0, "floor_s": 6.0}
# Limits: starts of a run, strikes per start, seconds until a start ends. If a node dies while actors start, the crew
# waits READY_SECONDS for them before the run ends with an error.
STARTS, STRIKES, SECONDS = 30, 4, 420.0
Bits = tuple[bytes, dict[str, bytes]]


@dataclass
class Found:
    """What happened in a disturbed run."""

    strikes: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    driver_mb: float = 0.0  # the driver's largest resident memory
    driver_files: int = 0  # the driver's most open files


def bits(run: RunFolder) -> Bits:
    """The parameters of the last round, and all client states."""
    names = [f"states/{name}" for name in run.storage.files("states") if name.endswith(".pt")]
    return run.load(ROUNDS).state.params.tobytes(), {name: run.storage.read(name) for name in names}


def undisturbed(stage: Stage, kind: int) -> RunFolder:
    folder = stage.scratch / f"straight-{kind}"
    if not (folder / "results.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        cpus = 0.3 if "placement" in WORKLOADS[kind] else 0.8
        log = stage.scratch / f"straight-{kind}.log"
        options = {"rounds": ROUNDS, **WORKLOADS[kind], "cpus": cpus}
        assert stage.start(folder, options, log).wait(timeout=300) == 0, f"see {log}"
    return RunFolder(folder)


def trial(name: str, kind: int, stage: Stage, dice: random.Random) -> Found:
    """Disturb one run until it is finished. AssertionError if its rows or bits differ, or a client is blamed."""
    workload, straight, found = WORKLOADS[kind], undisturbed(stage, kind), Found()
    folder, log = stage.scratch / name, stage.scratch / f"{name}.log"
    folder.mkdir(exist_ok=True)
    place = stage.bucket(name) if dice.random() < 0.25 else str(folder / "run")
    run = RunFolder(place)
    while not finished(run, stage.line):
        chosen = dice.choice([name for name, fault in FAULTS.items() if possible(fault, workload, place)])
        fault, killed_in, struck = FAULTS[chosen], -1, 0
        two = fault.needs == "two nodes"
        options = {"rounds": ROUNDS, **workload, "seconds": 0.12, "replacements": 50, "deadline": DEADLINE}
        options |= {"place": place, "nodes": 2 if two else 1}
        if "placement" in workload:
            options["cpus"] = 0.3
        else:
            options |= {"actors": 2} if two else {"actors": 2, "cpus": 0.4}
        process = stage.start(folder / "run", options, log)
        scene = Scene(process, folder / "run", stage, dice)
        try:
            for _ in moments(process, run, stage.line, dice, found):
                done = rounds_done(run)
                if done < fault.after or (fault.blames and killed_in == (killed_in := done)):
                    continue  # a client in training at two strikes in a round is blamed, rightly
                print(f"  {name}: {fault.strike(scene)}", flush=True)
                found.strikes[chosen] += 1
                struck += 1
                if fault.ends or struck == STRIKES:
                    break
            process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} hangs; see {log}") from None
        finally:
            stage.shim.stop()
            if process.poll() is None:
                kill_all(process)
        found.starts += 1
        assert found.starts < STARTS, f"{name} does not end; see {log}"
    assert rows(run) == rows(straight), f"{name}: other rows; see {place}"
    assert bits(run) == bits(straight), f"{name}: other bits; see {place}"
    assert run.rows("failures.jsonl") == [], f"{name}: a client was blamed; see {place}"
    shutil.rmtree(folder)
    log.unlink()
    return found


def possible(fault: Fault, workload: dict[str, Any], place: str) -> bool:
    """Whether the fault can strike a run of this workload, stored at `place`."""
    if fault.needs == "two nodes":
        return "placement" not in workload
    return fault.needs == "any" or (fault.needs == "bucket") == place.startswith("s3:")


def moments(
    process: subprocess.Popen[bytes], run: RunFolder, line: Line, dice: random.Random, found: Found
) -> Iterator[None]:
    """Yield at random moments of a run until it ends. Between them, measure the driver."""
    first = True
    while True:
        until = time.monotonic() + (dice.uniform(6, 14) if first else dice.uniform(0.5, 6))
        first = False
        while time.monotonic() < until:
            if process.poll() is not None:
                return
            measure(process, found)
            time.sleep(0.1)
        if finished(run, line):
            return
        yield


def measure(process: subprocess.Popen[bytes], found: Found) -> None:
    try:
        for driver in processes(process, ":Driver"):
            found.driver_mb = max(found.driver_mb, driver.memory_info().rss / 1e6)
            found.driver_files = max(found.driver_files, driver.num_fds())
    except psutil.Error:
        pass


def finished(run: RunFolder, line: Line) -> bool:
    """Whether the run has its results. False while the line to the bucket is cut."""
    try:
        return run.exists("results.json")
    except RunError:
        if not line.whole:
            return False
        time.sleep(1.0)  # it was cut a moment ago
        return run.exists("results.json")


def rounds_done(run: RunFolder) -> int:
    try:
        return len(run.rows("metrics.jsonl"))
    except (OSError, ValueError, RunError):
        return 0
