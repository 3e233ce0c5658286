"""Times a small standard workload on the client actors that default settings give, on the Ray that a run would use."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import ray
import torch
from ray.actor import ActorHandle
from ray.exceptions import RayError
from rich.console import Console
from torch import nn

from fedray.core.machine import Allowed, allowed
from fedray.core.words import counted
from fedray.doctor.checks import Findings, size
from fedray.engine.cluster import reservation
from fedray.engine.cluster.resources import Node, Share, share
from fedray.engine.driver import session
from fedray.engine.settings import EngineSettings

# A client of the standard workload trains one epoch over 20 clips of a second.
CLIPS, FRAMES, BINS, WORDS, BATCH, LR = 20, 98, 40, 35, 16, 0.01
COHORT = 100
TRAIN_SECONDS = 2.0
START_SECONDS = 60.0  # after which an actor counts as missing: CUDA's libraries may come from a cold disk
OBJECT_FLOATS = 13_000_000  # 52 MB: a model of 13 million parameters


def crnn() -> nn.Module:
    """CRNN-Base, 178 thousand parameters."""
    from fedray.models.crnn import CRNN, CRNNSettings  # here: if it does not load, `checks.versions` says why

    return CRNN(CRNNSettings(), BINS, WORDS)


class Bench:
    """A client actor that trains the standard workload."""

    def __init__(self, build: Callable[[], nn.Module], gpus: float) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.device = "cuda" if gpus else "cpu"
        self.model = build().to(self.device).train()
        self.clips = torch.randn(CLIPS, FRAMES, BINS).to(self.device)
        self.words = torch.randint(WORDS, (CLIPS,)).to(self.device)
        self.lengths = torch.full((CLIPS,), FRAMES)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=LR)

    def client(self) -> None:
        """Train one client for a round; the first call is slower than the others."""
        for batch in (slice(start, start + BATCH) for start in range(0, CLIPS, BATCH)):
            self.optimiser.zero_grad()
            loss = nn.functional.cross_entropy(self.model(self.clips[batch], self.lengths[batch]), self.words[batch])
            torch.autograd.backward(loss)
            self.optimiser.step()
            loss.item()  # waits for a GPU

    def clients_a_second(self, seconds: float) -> float:
        since, clients = time.perf_counter(), 0
        while not clients or time.perf_counter() - since < seconds:
            self.client()
            clients += 1
        return clients / (time.perf_counter() - since)

    def memory(self) -> float:
        """Bytes that one more such process needs: resident memory without the libraries that processes share."""
        _, resident, shared, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
        return float((int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE"))


def capacity(console: Console, build: Callable[[], nn.Module]) -> Findings:
    """The actors that a run with default settings would get, and their speed."""
    found, mine = Findings(), not ray.is_initialized()
    busy(found, os.getloadavg()[0], allowed().whole_cores())
    try:
        with doing(console, "connecting to Ray"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's warnings about itself
            since = time.perf_counter()
            session.connect()
            took = time.perf_counter() - since
        nodes = session.resources()
        state = f"ready in {took:.1f} s" if mine else "was running already"
        found.lines.append(("Ray", f"{cluster(nodes)}, {state}"))
        overcounted(found, nodes, allowed())
        shares = share(EngineSettings(), nodes)
        found.lines.append(("a run gets", words(shares)))
        memory = measure(found, shares, build, console)
        there = sum(node.memory or 0.0 for node in nodes)
        room = f"Ray has {size(there)} for actors: room for {there // memory:,.0f}"
        found.lines.append(("memory", f"{size(memory)} per actor; {room}"))
    except (RayError, ConnectionError, OSError, RuntimeError, ValueError, SystemExit) as error:  # Ray may exit
        found.problem(f"a trial of client actors failed: {reason(error)}", stops=True)
    finally:
        if mine and ray.is_initialized():
            ray.shutdown()
    return found


def overcounted(found: Findings, nodes: Sequence[Node], limits: Allowed) -> None:
    """Report a Ray that counts more cores or memory on this machine than this process may use, as a problem."""
    here = next((node for node in nodes if node.driver), None)
    cores, memory = limits.whole_cores(), limits.least_memory()
    more = []
    if here and here.cpus > cores:
        more.append(f"{here.cpus:g} cores here, but this process may use {cores}")
    if here and here.memory and memory and here.memory > memory:
        more.append(f"{size(here.memory)} of memory here, but this process may use {size(memory)}")
    for text in more:
        found.problem(
            f"Ray counts {text}: actors will share what there is. Start it with what is allowed "
            "(`ray start --head $(python -m fedray.core.machine)`), or unset RAY_ADDRESS: fedray counts right"
        )


def busy(found: Findings, load: float, cores: int) -> None:
    """Report a busy machine as a problem; `load` is the mean number of runnable processes in the last minute."""
    if load > cores / 2:
        found.problem(
            f"{load:.1f} processes competed for the {counted(cores, 'core')} in the last minute: "
            "an idle machine is faster"
        )


def measure(found: Findings, shares: Share, build: Callable[[], nn.Module], console: Console) -> float:
    """Start the actors of a run, time one alone and all together, and end them; returns the bytes per actor."""
    make = ray.remote(num_cpus=shares.cpus, num_gpus=shares.gpus, max_restarts=0)(Bench)
    actors: list[ActorHandle] = []
    try:
        with doing(console, "starting a client actor"):
            since = time.perf_counter()
            actors.append(make.remote(build, shares.gpus))
            if not _answer(actors):
                raise RuntimeError(f"no client actor started in {START_SECONDS:.0f} s: {reservation.standing()}")
            found.lines.append(("an actor starts", f"in {time.perf_counter() - since:.1f} s"))
        with doing(console, f"starting all {shares.actors:,}"):
            actors += [make.remote(build, shares.gpus) for _ in range(shares.actors - 1)]
            ready = _answer(actors)
            if len(ready) < len(actors):
                found.problem(
                    f"{len(actors) - len(ready)} of {len(actors)} client actors did not start within "
                    f"{START_SECONDS:.0f} s ({reservation.standing()}): others hold what they need, or the machine is "
                    "slow; the numbers are those of the other actors"
                )
        with doing(console, "putting 52 MB into the object store"):
            found.lines.append(("object store", f"a put of 52 MB takes {1000 * put_seconds():.0f} ms"))
        with doing(console, "training on one actor alone"):
            alone = ray.get(ready[0].clients_a_second.remote(TRAIN_SECONDS), timeout=60)
        with doing(console, f"training on {counted(len(ready), 'actor')} at once"):
            together = sum(ray.get([actor.clients_a_second.remote(TRAIN_SECONDS) for actor in ready], timeout=60))
        memory = statistics.median(ray.get([actor.memory.remote() for actor in ready], timeout=60))
    finally:
        for actor in actors:
            ray.kill(actor)
    found.lines += speeds(alone, together, len(ready))
    return float(memory)


def speeds(alone: float, together: float, actors: int) -> list[tuple[str, str]]:
    """The speed of one actor alone and of all together, in words."""
    one, thousand = duration(COHORT / together), duration(1000 * COHORT / together)
    workload = "CRNN-Base, 178,000 parameters, 20 one-second clips, batches of 16"
    return [
        ("one actor alone", f"{alone:,.1f} clients per second ({workload})"),
        (
            "all at once",
            f"{together:,.1f} clients per second: {100 * together / alone / actors:.0f} % of {actors} x {alone:,.1f}",
        ),
        ("a round", f"of {COHORT} such clients takes about {one}, 1,000 rounds {thousand}"),
    ]


def _answer(actors: Sequence[ActorHandle]) -> list[ActorHandle]:
    """The actors that have trained their first client in time."""
    calls = {actor.client.remote(): actor for actor in actors}
    ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=START_SECONDS)
    ray.get(ready)
    return [calls[call] for call in ready]


def reason(error: BaseException) -> str:
    """The error in one line: Ray's errors begin with the event, and end, below tracebacks, with the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} ... {lines[-1]}" if isinstance(error, RayError) and len(lines) > 1 else lines[0]


def put_seconds() -> float:
    """The median time to put 52 MB into the object store."""
    values = np.ones(OBJECT_FLOATS, dtype=np.float32)
    times = []
    for _ in range(3):
        since = time.perf_counter()
        reference = ray.put(values)
        times.append(time.perf_counter() - since)
        del reference
    return statistics.median(times)


@contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Show work in progress: a spinner on a terminal, otherwise a line."""
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        console.print(f"  {what} ...", highlight=False)
        yield


def words(shares: Share) -> str:
    """A pool in words: "4 client actors with 3 cores and 0.25 GPUs each"."""
    gpu = f" and {counted(shares.gpus, 'GPU')}" if shares.gpus else ""
    each = " each" if shares.actors > 1 else ""
    without = "" if shares.gpus else ", no GPU"
    return f"{counted(shares.actors, 'client actor')} with {counted(shares.cpus, 'core')}{gpu}{each}{without}"


def cluster(nodes: Sequence[Node]) -> str:
    """The nodes in words: "2 nodes with 12 cores and 1 GPU"."""
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    return f"{counted(len(nodes), 'node')} with {counted(cpus, 'core')} and {counted(gpus, 'GPU')}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best: ms, s, min or h."""
    for length, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def three(value: float) -> str:
    """A number with three significant digits, without a power of ten."""
    return f"{float(f'{value:.3g}'):,.10g}"
