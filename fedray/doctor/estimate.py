"""`fedray doctor --estimate CONFIG`: what a study costs, from pieces of it that are played for some seconds: time, cores, traffic, disk."""

from __future__ import annotations

import hashlib
import heapq
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from fedray import experiment, runs
from fedray.core.cache import fetch
from fedray.core.config import Source
from fedray.core.storage import below
from fedray.core.types import Server
from fedray.data.dataset import Utterances
from fedray.doctor.looks import size
from fedray.doctor.measure import STEPS, Measured, measure
from fedray.doctor.speed import duration, words
from fedray.engine import cohort as cohorts
from fedray.engine import session, work
from fedray.engine.folder import RunFolder
from fedray.engine.resources import Share, share
from fedray.engine.rounds import Plan
from fedray.engine.store import folder_name
from fedray.engine.work import Program
from fedray.experiment import Config
from fedray.programs import build_data, build_program


@dataclass(frozen=True)
class Estimate:
    """`seconds` of the wall clock by part, `busy` seconds of all client actors together, `up`, `down` and `disk` in bytes."""

    seconds: dict[str, float]
    busy: float
    up: int
    down: int
    disk: dict[str, int]


def show(config_path: str | os.PathLike[str], overrides: Iterable[str], console: Console) -> int:
    """Print what a run would cost. 0; a ValueError or a RunError tells why nothing could be measured."""
    config, source = experiment.load(config_path, overrides)
    config = experiment.with_absolute_paths(config)
    found = estimate(config, source, lambda text: console.print(f"  {text} ...", highlight=False))
    console.print(page(config, *found), highlight=False, soft_wrap=True)
    return 0


def estimate(config: Config, source: Source, say: Callable[[str], None]) -> tuple[Estimate, Measured, Share, int]:
    """What a run would cost on the Ray that it would use; what was measured, the actors it would have, and steps of its seed model.

    The data are read, or made, as for the run, and stay in the cache. A seed model that is there is not counted, nor are labels.
    """
    since = time.perf_counter()
    session.connect()
    connected, shares = time.perf_counter() - since, share(config.engine, session.resources())
    say("reading the data")
    build_data(config, source)
    since = time.perf_counter()  # once more: the run finds them in the cache
    data, _ = build_data(config, source)
    place = below(os.environ.get("FEDRAY_RUNS") or tempfile.gettempdir(), f"fedray-estimate-{os.getpid()}")
    folder = RunFolder(runs.place(place))
    program = build_program(config, data, folder, shares.gpus)
    began = connected + time.perf_counter() - since
    if config.engine.placement == "dedicated":
        shares = share(config.engine, session.resources(), len(data.client_ids()))
    plan = Plan(config.rounds, config.cohort, config.engine, config.evaluation)
    known = program.init_cache is not None and (program.init_cache.exists() or fetch(program.init_cache))
    try:
        measured = measure(program if known else _shortened(config, program, folder, shares), plan, shares, folder, say)
        steps = 0 if known else _steps(config)
        found = extrapolate(config, program, measured, shares.actors, steps, labelled(program) if known else ())
    finally:
        folder.remove("")
    found.seconds["start"] += began
    return found, measured, shares, steps


def _steps(config: Config) -> int:
    pretrain = getattr(config.algorithm, "pretrain", None)
    return 0 if pretrain is None else pretrain.steps


def _shortened(config: Config, program: Program, folder: RunFolder, shares: Share) -> Program:
    """The same with a seed model of a few steps, of which nothing is cached."""
    if _steps(config) > STEPS:
        pretrain = replace(config.algorithm.pretrain, steps=STEPS)
        config = replace(config, algorithm=replace(config.algorithm, pretrain=pretrain))
        program = build_program(config, program.data, folder, shares.gpus)
    return replace(program, init_cache=None)


def labelled(program: Program) -> Collection[str]:
    """The clients whose first state is in the cache, for the seed model that is there too."""
    if program.prepare_cache is None:
        return ()
    state, _ = work.init(program, lambda: Server(None, None, 0))  # theta_0 is there: no server is asked
    where = program.prepare_cache / hashlib.blake2b(state.params.tobytes(), digest_size=8).hexdigest()
    return {client for client in program.data.client_ids() if (where / f"{folder_name(client)}.pt").exists()}


def extrapolate(
    config: Config, program: Program, measured: Measured, actors: int, steps: int = 0, labelled: Collection[str] = ()
) -> Estimate:
    """A run of so many client actors: every round with its own cohort, in the order in which the pool leases its actors out.

    `steps`: of the seed model; `labelled`: clients whose first state is in the cache.
    """
    data, plan, ids = program.data, config.cohort, program.data.client_ids()
    most = getattr(config.algorithm, "utterances", None)  # that a central algorithm trains on in a round
    shards, lanes = config.evaluation.shards, config.engine.lanes if config.engine.placement == "pooled" else len(ids)
    dev = [measured.score * len(data.evaluation("dev")) / shards] * shards if "dev" in data.splits() else []
    finals = [seconds * len(data.evaluation(split)) / shards for split, seconds in measured.final.items() for _ in range(shards)]
    server = [measured.server * _pass(config, program, measured)] if measured.examples else []
    seen: set[str] = set()
    up = down = 0
    busy = measured.step * steps + sum(dev) + 2 * sum(finals)
    seconds = {"start": measured.start, "seed model": measured.step * steps, "labels": 0.0, "rounds": 0.0}
    seconds["scores"] = makespan(dev, actors)

    def label(client: str) -> float:
        return 0.0 if client in labelled else measured.prepare * data.cost(client)

    if measured.prepares and config.engine.prepare == "all":
        labels = [sum(map(label, ids[first : first + 32])) for first in range(0, len(ids), 32)]
        seconds["labels"], busy = makespan(labels, actors), busy + sum(labels)
        down += len(ids) * (measured.down + measured.assets)
        seen.update(ids)
    for t in range(config.rounds):
        chosen = cohorts.sample(ids, plan, data.cost, program.seed, t)
        answering = [client for client in chosen if not cohorts.drops_out(client, plan, program.seed, t)]
        new = {client for client in answering if measured.prepares and client not in seen}
        seen |= set(answering)
        up += len(answering) * measured.up
        down += len(chosen) * measured.down + len(new) * (measured.assets + (measured.down if t else 0))
        cut = sorted(cohorts.cut(answering, lanes, data.cost), key=lambda lane: -sum(map(data.cost, lane)))  # as they start
        train = [sum(measured.train * min(data.cost(client), most or data.cost(client)) for client in lane) for lane in cut]
        labels = [sum(label(client) for client in lane if client in new) for lane in cut]
        both = makespan([*server, *(sum(pair) for pair in zip(train, labels, strict=True))], actors)
        alone = makespan([*server, *train], actors)
        seconds["labels"] += both - alone
        seconds["rounds"] += alone + measured.driver
        busy += sum(train) + sum(labels) + sum(server)
        if dev and ((t + 1) % config.evaluation.every == 0 or t + 1 == config.rounds):
            seconds["scores"] += makespan(dev, actors)
            busy += sum(dev)
    seconds["final scores"] = 2 * makespan(finals, actors)  # of the seed model and of the best round
    saved = 1 + min(config.rounds, config.engine.keep + 1)  # the first, the latest, the best
    disk = {
        "checkpoints": saved * measured.checkpoint(len(seen)),
        "client states": len(seen) * measured.state,
        "features": sum(2 * int(part.lengths.sum()) * part.features.bins for part in _parts(program)),
        "audio": sum(Path(path).stat().st_size for path in {path for part in _parts(program) for path in part.distinct("path")}),
    }
    return Estimate(seconds, busy, up, down, disk)


def _pass(config: Config, program: Program, measured: Measured) -> int:
    """Utterances of the server's pass: it was measured on a few."""
    settings = getattr(config.algorithm, "server", None)
    own = program.data.server()
    count = measured.examples if own is None else len(own)
    return min(count, getattr(settings, "utterances", None) or count)


def _parts(program: Program) -> list[Utterances]:
    return [*program.data.training(), *(program.data.evaluation(split) for split in program.data.splits())]


def makespan(jobs: Sequence[float], actors: int) -> float:
    """Seconds until all jobs are done that begin in this order, each on the actor that is free first."""
    free = [0.0] * actors
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def page(config: Config, found: Estimate, measured: Measured, shares: Share, steps: int) -> str:
    """The estimate in words."""
    total, hours = sum(found.seconds.values()), sum(found.seconds.values()) / 3600
    said = {
        "start": "Ray, data, actors",
        "seed model": f"{steps:,} steps of {1000 * measured.step:.0f} ms" if steps else "none, or in the cache",
        "labels": f"{1000 * measured.prepare:.1f} ms an utterance" if measured.prepares else "none",
        "rounds": f"{config.rounds:,} of {found.seconds['rounds'] / config.rounds:.2f} s; {1000 * measured.train:.1f} ms an utterance",
        "scores": "dev, after rounds",
        "final scores": "all splits, of the seed model and of the best round",
    }
    booked = [f"{hours * shares.cpus * shares.actors:.2f} core-hours"]
    if shares.gpus:
        booked.append(f"{hours * shares.gpus * shares.actors:.2f} GPU-hours")
    lines = [f"[bold]{escape(config.name)}[/bold]: {config.rounds:,} rounds on {words(shares)}", "[bold]Time[/bold]"]
    lines += [f"  {part:<18}{duration(spent):<12}{said[part]}" for part, spent in found.seconds.items()]
    lines.append(f"  {'in all':<18}{duration(total):<12}{' and '.join(booked)}, {100 * found.busy / total / shares.actors:.0f} % at work")
    lines += ["[bold]Traffic[/bold]", f"  {'up':<18}{size(found.up):<12}{size(measured.up)} a client and round"]
    lines.append(f"  {'down':<18}{size(found.down):<12}{size(measured.down)} a client and round")
    lines += ["[bold]Disk[/bold]", *(f"  {name:<18}{size(count)}" for name, count in found.disk.items())]
    return "\n".join(lines)
