"""Several processes on one GPU, with and without CUDA's Multi-Process Service, and on the processor's cores."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from tests.gpu.record import Item, Values, Where
from tests.gpu.workloads import Trainer

TITLE = "Several processes"
ABOUT = (
    "Clients a second of all processes together, each with its share of the GPU's memory, as client actors have it "
    "with `gpus_per_client` of 1 / processes. MPS lets kernels of several processes run at the same time. `processor` "
    "is processes of one thread on the cores."
)
OPENS_DEVICE = False
SECONDS = 150
MODELS = ("crnn lite", "crnn base", "conformer embedded")
START_SECONDS, ANSWER_SECONDS = 120.0, 60.0
MPS = "nvidia-cuda-mps-control"


def items(where: Where) -> Iterator[Item]:
    counts = (1, 2) if where.tiny else (1, 2, 4, 8)
    cores = min(16, len(os.sched_getaffinity(0)))
    yield from _series("alone", where, counts)
    if where.gpu:
        yield from _series("processor", Where("cpu", where.tiny), (1, cores))
    if where.gpu and shutil.which(MPS):
        yield from _with_mps(where, counts)
    elif where.gpu:
        yield "MPS", lambda: {"left out": f"{MPS} is not there"}


def _with_mps(where: Where, counts: tuple[int, ...]) -> Iterator[Item]:
    folder, started = tempfile.mkdtemp(prefix="fedray-mps-"), list[str]()
    os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    yield "MPS starts", lambda: _start_mps(started)
    try:
        if started:
            yield from _series("MPS", where, counts)
    finally:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([MPS], input="quit\n", text=True, timeout=30, check=False, capture_output=True)


def _start_mps(started: list[str]) -> Values:
    done = subprocess.run([MPS, "-d"], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise RuntimeError(f"{MPS} -d ended with status {done.returncode}: {done.stdout} {done.stderr}")
    started.append((done.stdout + done.stderr).strip() or "started")
    return {"answer": started[0]}


def _series(name: str, where: Where, counts: tuple[int, ...]) -> Iterator[Item]:
    """One crew of as many processes as the largest count; for a smaller count, fewer of them work."""
    crews: list[Crew] = []
    yield f"{name}: {max(counts)} processes start", lambda: _start(crews, where, max(counts))
    if not crews:
        return
    try:
        for model in MODELS[:1] if where.tiny else MODELS:
            for count in counts:
                yield f"{name}: {model}, {count}", lambda model=model, count=count: crews[0].measure(model, count)
    finally:
        crews[0].end()


def _start(crews: list[Crew], where: Where, count: int) -> Values:
    since = time.perf_counter()
    crews.append(Crew(where, count))
    return {"seconds": time.perf_counter() - since}


class Crew:
    """Processes that train clients when asked."""

    def __init__(self, where: Where, count: int) -> None:
        """RuntimeError: a process did not start."""
        self.seconds = 0.1 if where.tiny else 1.5
        self.lines: list[Connection] = []
        self.processes = []
        self.alone: dict[str, float] = {}
        context = multiprocessing.get_context("spawn")
        for _ in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, where, 1.0 / count), daemon=True)
            process.start()
            theirs.close()
            self.lines.append(mine)
            self.processes.append(process)
        try:
            for line in self.lines:
                answer(line, START_SECONDS)
        except BaseException:
            self.end()
            raise

    def measure(self, model: str, count: int) -> Values:
        """Train clients in `count` of the processes at the same time."""
        lines = self.lines[:count]
        for seconds in (0.0, self.seconds):  # first a warm-up
            for line in lines:
                line.send((model, seconds))
            speeds = [float(answer(line, ANSWER_SECONDS)) for line in lines]
        total = sum(speeds)
        self.alone.setdefault(model, total)
        return {"clients/s": total, "times one": total / self.alone[model], "slowest": min(speeds)}

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join(10)


def answer(line: Connection, seconds: float) -> Any:
    """The answer of a process. RuntimeError: it answers with an error, dies, or does not answer in time."""
    if not line.poll(seconds):
        raise RuntimeError(f"a process did not answer within {seconds:.0f} s")
    try:
        found, error = line.recv()
    except EOFError as end:
        raise RuntimeError("a process died; see log.txt") from end
    if error:
        raise RuntimeError(error)
    return found


def work(line: Connection, where: Where, share: float) -> None:
    """Run in a process of a crew: set up torch as an actor does, then train clients of each model asked for."""
    trainers: dict[str, Trainer] = {}

    def set_up() -> str:
        from fedray.engine.actors import gpu

        gpu.set_up(share if where.gpu else 0.0)
        return gpu.take(share) if where.gpu else "cpu"

    def train(model: str, seconds: float) -> float:
        if model not in trainers:
            trainers[model] = Trainer(model, where)
        return trainers[model].clients_a_second(seconds)

    _reply(line, set_up)
    with suppress(EOFError):
        while True:
            model, seconds = line.recv()
            _reply(line, lambda model=model, seconds=seconds: train(model, seconds))


def _reply(line: Connection, work: Callable[[], object]) -> None:
    try:
        line.send((work(), ""))
    except Exception:  # noqa: BLE001 - the parent raises it
        line.send((None, traceback.format_exc()))
