"""What a round costs besides its steps: memory of the driver, nanoseconds a parameter, 100,000 clients.

`python -m benchmarks.engine.scale --only driver cost many` prints tables; `--write` keeps them in results/scale.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import ray
import torch

from benchmarks import study
from benchmarks.engine import toys
from benchmarks.engine.runs import ray_here
from fedray.core import vectors
from fedray.core.algorithm import Parts
from fedray.core.metrics import Metrics
from fedray.core.parameters import FlatModel
from fedray.core.sums import WeightedSum
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, Update
from fedray.engine.cluster.resources import Share
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.work import Program
from fedray.engine.round.plan import Plan
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.runs.client_states import ClientStore
from fedray.runs.folder import RunFolder

COMMAND = "python -m benchmarks.engine.scale"
SAMPLE_SECONDS = 0.002


@dataclass(frozen=True)
class LightSettings:
    parameters: int = 1000
    memory: str = ""  # a file for the driver's peak


class Light(toys.Toy):
    """A client sends the same numbers without training. The driver watches its own memory."""

    Settings = LightSettings
    settings: LightSettings  # type: ignore[assignment]
    _delta: np.ndarray | None = None
    _watched = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_delta": None, "_watched": False}

    def init(self, server: Server) -> ServerState:
        return ServerState(np.zeros(self.settings.parameters, np.float32))

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        if not self._watched:
            self._watched = True
            threading.Thread(target=watch, args=(Path(self.settings.memory),), daemon=True).start()
        return Broadcast(state.params)

    def client_update(self, client: Client, received: Received) -> Update:
        if self._delta is None:
            self._delta = np.full(self.settings.parameters, 1e-3, np.float32)
        return Update(self._delta, {"examples": 1.0 + client.seed % 3}, Metrics(loss=(0.0, 1)))

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        assert change.clients is not None
        return ServerState(state.params + change.clients)


def watch(file: Path) -> None:
    """Write the private memory of this process when it began and its peak, in bytes, again and again."""
    first = most = private()
    while True:
        most = max(most, private())
        (new := file.with_suffix(".new")).write_text(f"{first} {most}")
        new.replace(file)
        time.sleep(SAMPLE_SECONDS)


def private() -> int:
    """Bytes of this process's own memory, without the object store."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise AssertionError("Linux only")


def light(folder: Path, parameters: int, lanes: int, clients: int, rounds: int, actors: int = 2) -> Assignment:
    folder.mkdir(parents=True)
    algorithm = Light(LightSettings(parameters, str(folder / "memory")), Parts(rounds=rounds))
    program = Program(algorithm, toys.Population(clients), 0, ClientStore(folder / "states"))
    engine = EngineSettings(actors=actors, lanes=lanes)
    plan = Plan(rounds, CohortSettings(size=clients), engine, EvaluationSettings())
    return Assignment("light", program, {}, plan, Share(actors, 0.4, 0.0), folder)


def driver(lanes: tuple[int, ...], parameters: tuple[int, ...]) -> list[dict[str, Any]]:
    """Bytes through the driver and its peak memory, in vectors of the model's size."""
    found = []
    for count in parameters:
        for width in lanes:
            with tempfile.TemporaryDirectory() as place, ray_here():
                folder = Path(place) / "run"
                session.run(light(folder, count, width, width, rounds=3))
                before, most = map(int, (folder / "memory").read_text().split())
                rows = RunFolder(folder).rows("metrics.jsonl")
            one = {
                "parameters": count,
                "lanes": width,
                "vectors through the driver": rows[-1]["engine/driver_bytes"] / 4 / count,
                "peak, vectors": (most - before) / 4 / count,
                "seconds a round": median(row["time/round_s"] for row in rows),
            }
            print(one, flush=True)
            found.append(one)
    return found


def timed(work: Callable[[], object], parameters: int, repeats: int = 9) -> float:
    """The least nanoseconds a parameter."""
    work()
    seconds = []
    for _ in range(repeats):
        since = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - since)
    return 1e9 * min(seconds) / parameters


def cost(parameters: int) -> dict[str, Any]:
    """Nanoseconds a parameter and client of each step besides training, beside numpy's plain add."""
    torch.set_num_threads(1)
    side = max(1, round((parameters / 10) ** 0.5))
    flat = FlatModel(torch.nn.Sequential(*(torch.nn.Linear(side, side) for _ in range(10))))
    size = flat.layout.size
    broadcast, other, total = np.zeros(size, np.float32), np.ones(size, np.float32), WeightedSum()
    total.add(other, 0.0)

    def client() -> None:
        flat.load(broadcast)
        delta = flat.difference(broadcast)
        assert vectors.finite(delta)
        total.add(delta, 0.3)

    found = {
        "parameters": size,
        "load": timed(lambda: flat.load(broadcast), size),
        "difference": timed(lambda: flat.difference(broadcast), size),
        "check": timed(lambda: vectors.finite(other), size),
        "fold": timed(lambda: total.add(other, 0.3), size),
        "all": timed(client, size),
        "numpy's add": timed(lambda: np.add(broadcast, other, out=broadcast), size),
    }
    print({name: round(value, 3) for name, value in found.items()}, flush=True)
    return found


def many(clients: int) -> list[dict[str, Any]]:
    """A round of many clients: seconds, and the memory of the driver and of the actors."""
    with tempfile.TemporaryDirectory() as place, ray_here():
        given = light(Path(place) / "run", 1000, EngineSettings().lane_count(clients), clients, rounds=2)
        session.run(given)
        _, most = map(int, (Path(place) / "run" / "memory").read_text().split())
        rows = RunFolder(Path(place) / "run").rows("metrics.jsonl")
    one = {"clients": clients, "lanes": EngineSettings().lane_count(clients), "driver, MB": most / 1e6}
    one |= {name: rows[-1][f"time/{name}"] for name in ("round_s", "train_s", "merge_s")}
    print(one, flush=True)
    return [one]


PARTS: Mapping[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "driver": lambda given: driver(tuple(given.lanes), tuple(given.parameters)),
    "cost": lambda given: [cost(parameters) for parameters in given.parameters],
    "many": lambda given: many(given.clients),
}


def main(arguments: list[str] | None = None) -> None:
    form = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    form.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    form.add_argument("--lanes", nargs="+", type=int, default=[8, 64, 512])
    form.add_argument("--parameters", nargs="+", type=int, default=[200_000, 2_600_000, 30_000_000])
    form.add_argument("--clients", type=int, default=100_000)
    form.add_argument("--write", action="store_true")
    given = form.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    numbers = {part: PARTS[part](given) for part in given.only}
    if ray.is_initialized():
        ray.shutdown()
    if given.write:
        text = "\n\n".join(f"## {part}\n\n{study.table(rows)}" for part, rows in numbers.items())
        study.write("scale", f"# Scale\n\n{text}\n", numbers, COMMAND, ())


if __name__ == "__main__":
    main()
