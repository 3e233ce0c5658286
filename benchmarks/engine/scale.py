"""What a round costs besides its steps: memory of the driver, nanoseconds a parameter, rounds of many clients.

`python -m benchmarks.engine.scale [--only cost many]` prints tables; `--write` keeps them in results/scale.md and .json
beside those of the other parts.
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
from benchmarks.engine import feeds, speakers, toys
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
LEAST = 1000  # parameters


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
    """Bytes through the driver and its peak memory, in vectors of the model's size.

    The memory that a run of `LEAST` parameters takes, for threads and tables, is subtracted.
    """
    without = {width: played(LEAST, width)[1] for width in lanes}
    found = []
    for count in parameters:
        for width in lanes:
            rows, most = played(count, width)
            one = {
                "parameters": count,
                "lanes": width,
                "vectors through the driver": rows[-1]["engine/driver_bytes"] / 4 / count,
                "peak, vectors": (most - without[width]) / 4 / count,
                "without vectors, MB": without[width] / 1e6,
                "seconds a round": median(row["time/round_s"] for row in rows),
            }
            print(one, flush=True)
            found.append(one)
    return found


def played(parameters: int, lanes: int) -> tuple[list[dict[str, Any]], int]:
    """The rows of a run's rounds, and by how many bytes its driver grew from the first broadcast on."""
    with tempfile.TemporaryDirectory() as place, ray_here():
        folder = Path(place) / "run"
        session.run(light(folder, parameters, lanes, lanes, rounds=3))
        before, most = map(int, (folder / "memory").read_text().split())
        return RunFolder(folder).rows("metrics.jsonl"), most - before


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
    # As the object store has it, it begins at a cache line.
    broadcast, total = vectors.copied(np.ones(size, np.float32)), WeightedSum()
    one, other = np.ones(size, np.float32), np.ones(size, np.float32)
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
        "numpy's add": timed(lambda: np.add(one, other, out=one), size),
    }
    print({name: round(value, 3) for name, value in found.items()}, flush=True)
    return found


def many(clients: int, parameters: int = 1000, lanes: int | None = None) -> dict[str, Any]:
    """A round of many clients: seconds, and the memory of the driver."""
    lanes = lanes or EngineSettings().lane_count(clients)
    with tempfile.TemporaryDirectory() as place, ray_here():
        session.run(light(Path(place) / "run", parameters, lanes, clients, rounds=2))
        _, most = map(int, (Path(place) / "run" / "memory").read_text().split())
        rows = RunFolder(Path(place) / "run").rows("metrics.jsonl")
    one = {"clients": clients, "parameters": parameters, "lanes": lanes, "driver, MB": most / 1e6}
    one |= {name: rows[-1][f"time/{name}"] for name in ("round_s", "train_s", "merge_s")}
    print(one, flush=True)
    return one


def speaking(count: int) -> dict[str, Any]:
    """A round of so many embedded speakers with two utterances each, who train a small Conformer."""
    with tempfile.TemporaryDirectory() as place:
        since = time.perf_counter()
        played = speakers.play(Path(place) / "run", count, 2, count, 2, 2)
        rows = RunFolder(Path(place) / "run").rows("metrics.jsonl")
    one = {
        "speakers": count,
        "seconds a round": rows[-1]["time/round_s"],
        "with the corpus, s": time.perf_counter() - since,
    }
    one |= {f"{kind}, GB": size / 1e9 for kind, size in played.memory.items()}
    print(one, flush=True)
    return one


PARTS: Mapping[str, tuple[str, Callable[[argparse.Namespace], list[dict[str, Any]]]]] = {
    "driver": (
        "What passes through the driver in a round, and the peak of its own memory, in vectors of the model's size. "
        "Sums below 1 MB come with the lanes' results; above, one vector comes, for any number of lanes. What a run "
        f"with {LEAST:,} parameters takes is subtracted. Clients send the same numbers without training.",
        lambda given: driver(tuple(given.lanes), tuple(given.parameters)),
    ),
    "cost": (
        "Nanoseconds a parameter and client of each step besides training, on one core (the least of nine), beside "
        "numpy's plain add.",
        lambda given: [cost(parameters) for parameters in (200_000, 2_600_000, 12_000_000, 38_000_000)],
    ),
    "many": (
        "Rounds of many clients, and of few clients with 255 million parameters, without training.",
        lambda given: [many(given.clients), many(8, 255_000_000, 8)],
    ),
    "speakers": ("A round of recognition, in which every speaker trains.", lambda given: [speaking(given.speakers)]),
    "feeds": (
        "Default settings on larger machines: lanes and actors as the functions decide that a run asks, and the share "
        "of the actors' time that is spent on training if the clients' costs are log-normal (sigma 1).",
        lambda given: feeds.feeds(),
    ),
}
PAPER = (
    "On paper: 50 nodes of 8 GPUs, 100,000 clients a round, 255 million parameters. The constants are those of `cost`, "
    "and the assumptions beside each phase; nobody has measured it."
)


def main(arguments: list[str] | None = None) -> None:
    form = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    form.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    form.add_argument("--lanes", nargs="+", type=int, default=[8, 64, 512])
    form.add_argument("--parameters", nargs="+", type=int, default=[200_000, 2_600_000, 30_000_000])
    form.add_argument("--clients", type=int, default=100_000)
    form.add_argument("--speakers", type=int, default=20_480)
    form.add_argument("--write", action="store_true")
    given = form.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    numbers = study.page_before("scale").get("parts", {}) | {part: PARTS[part][1](given) for part in given.only}
    if ray.is_initialized():
        ray.shutdown()
    numbers = {part: numbers[part] for part in PARTS if part in numbers}
    texts = [f"## {part.capitalize()}\n\n{PARTS[part][0]}\n\n{table(rows)}" for part, rows in numbers.items()]
    if "cost" in numbers:
        texts.append(f"## A large cluster\n\n{PAPER}\n\n{table(feeds.paper(numbers['cost'][-1]))}")
    text = "\n\n".join(["# Scale", *texts])
    print(text)
    if given.write:
        study.write("scale", text, {"parts": numbers}, COMMAND, (0,))


def table(rows: list[dict[str, Any]]) -> str:
    """A table with three digits."""
    return study.table([{name: _short(value) for name, value in row.items()} for row in rows])


def _short(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
