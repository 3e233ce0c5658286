"""`fedray doctor --estimate CONFIG`: estimates a run's time, traffic, memory and disk from measurements."""

from __future__ import annotations

import heapq
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from fedray import experiment
from fedray.config.source import Source
from fedray.core.texts import rich_text
from fedray.core.types import Server
from fedray.core.words import counted
from fedray.data.features.dataset import Utterances
from fedray.data.features.packed import file_of
from fedray.data.federation.speech_data import SpeechData
from fedray.doctor.checks import size
from fedray.doctor.forecast import Cohort, by_clock, by_draw
from fedray.doctor.measure import STEPS, Measured, measure
from fedray.doctor.speed import duration, three, words
from fedray.engine.cluster.resources import Share, share
from fedray.engine.driver import session
from fedray.engine.jobs import work
from fedray.engine.jobs.work import Program
from fedray.engine.round import cohort as cohorts
from fedray.engine.round.downlink import deliver
from fedray.experiment import Config, build_data, build_program
from fedray.experiment.builders import build_plan
from fedray.experiment.fitted import pool, together
from fedray.experiment.learnable import check_learnable
from fedray.experiment.memory import activation_bytes, actor_bytes
from fedray.runs import places
from fedray.runs.client_states import folder_name
from fedray.runs.folder import RunFolder
from fedray.storage.base import below
from fedray.storage.cache import fetch
from fedray.training.optimizers import PretrainSettings


@dataclass(frozen=True)
class Estimate:
    """Wall-clock `seconds` by part, working seconds of all actors (`busy`), and `up`, `down` and `disk` in bytes.

    `memory`: bytes of a client actor; None: not known.
    """

    seconds: dict[str, float]
    busy: float
    up: int
    down: int
    disk: dict[str, int]
    virtual: dict[str, float] | None = (
        None  # with `devices`, at the end: hours, device hours, energy (Wh), share wasted
    )
    memory: float | None = None
    activations: float = 0.0  # bytes of `memory` that the activations of a training step take, or of scoring if more
    unlearnable: str | None = None  # what the model cannot learn, in words


def show(config_path: str | os.PathLike[str], overrides: Iterable[str], console: Console) -> int:
    """Print the estimate of a run; returns 0. Raises ValueError or RunError if the run cannot be measured."""
    config, source = experiment.load(config_path, overrides)
    experiment.tell_replaced(config, source)
    config = experiment.check(config, source)
    found = estimate(config, source, lambda text: console.print(f"  {text} ...", highlight=False))
    console.print(page(config, *found), highlight=False, soft_wrap=True)
    return 0


def estimate(config: Config, source: Source, say: Callable[[str], None]) -> tuple[Estimate, Measured, Share, int]:
    """Returns the estimate, the measurements, the client actors of the run, and the training steps of its seed model.

    The data are read or synthesised as for the run, and stay in the cache. A cached seed model and cached labels cost
    nothing.
    """
    since = time.perf_counter()
    session.connect()
    nodes = session.resources()
    if len(nodes) > 1 and not os.environ.get("FEDRAY_RUNS"):
        raise ValueError("set FEDRAY_RUNS to a folder that all machines of this Ray see: the measurement writes there")
    connected, shares = time.perf_counter() - since, share(config.engine, nodes)
    say("reading the data")
    build_data(config, source)
    since = time.perf_counter()  # timed the second time, since the run will find them in the cache
    data, _ = build_data(config, source)
    path = below(os.environ.get("FEDRAY_RUNS") or tempfile.gettempdir(), f"fedray-estimate-{os.getpid()}")
    folder = RunFolder(places.place(path))
    program = build_program(config, data, folder.states, shares.gpus)
    unlearnable = check_learnable(config, program.algorithm, data)
    began = connected + time.perf_counter() - since
    side = together(config, shares.gpus > 0)
    activations = activation_bytes(program, side)
    memory = actor_bytes(program, side, activations)
    shares, _ = pool(config, program, shares.gpus > 0, session.resources(), activations)
    plan = build_plan(config, program, shares.gpus)
    known = program.init_cache is not None and (program.init_cache.exists() or fetch(program.init_cache))
    try:
        short = program if known else _shortened(config, program, data, folder, shares)
        measured = measure(short, plan, shares, folder, say)
        steps = 0 if known else _steps(config)
        rounds = by_draw(data, config.cohort, config.seed, config.rounds)
        if plan.clock is not None:
            algorithm, first = program.algorithm, measured.once + measured.assets * measured.prepares
            rounds = by_clock(plan.clock, data, algorithm, config.rounds, measured.up, measured.down, first)
        found = extrapolate(config, data, measured, shares.actors, rounds, steps, labelled(program) if known else ())
    finally:
        folder.remove("")
    found.seconds["start"] += began
    return replace(found, memory=memory, activations=activations, unlearnable=unlearnable), measured, shares, steps


def _steps(config: Config) -> int:
    """Training steps of the seed model."""
    pretrain = getattr(config.algorithm.settings, "pretrain", None)
    return 0 if pretrain is None else pretrain.steps


def _shortened(config: Config, program: Program, data: SpeechData, folder: RunFolder, shares: Share) -> Program:
    """The program with a seed model of a few training steps, which is not cached."""
    if _steps(config) > STEPS:
        pretrain = replace(config.algorithm.settings.pretrain, steps=STEPS)
        settings = replace(config.algorithm.settings, pretrain=pretrain)
        config = replace(config, algorithm=replace(config.algorithm, settings=settings))
        program = build_program(config, data, folder.states, shares.gpus)
    return replace(program, init_cache=None)


def labelled(program: Program) -> Collection[str]:
    """The clients whose first state is in the cache; the seed model must be in the cache too."""
    if program.prepare_cache is None:
        return ()
    state, _ = work.init(program, lambda: Server(None, None, 0))  # theta_0 comes from the cache
    first, _ = deliver(program.algorithm.broadcast(state, 0), program.download, program.algorithm)
    where = program.prepare_cache / work.broadcast_key(first)
    return {client for client in program.data.client_ids() if (where / f"{folder_name(client)}.pt").exists()}


def extrapolate(
    config: Config,
    data: SpeechData,
    measured: Measured,
    actors: int,
    rounds: Iterable[Cohort],
    steps: int = 0,
    labelled: Collection[str] = (),
) -> Estimate:
    """The estimate of a run: simulates every round's cohort in the order in which the pool gives lanes to actors.

    `actors`: client actors; `rounds`: who takes part; `steps`: training steps of the seed model; `labelled`: clients
    whose first state is cached.
    """
    ids, virtual = data.client_ids(), None
    most = getattr(config.algorithm.settings, "utterances", None)  # of a central algorithm, per round
    clients = config.cohort.count(len(ids))
    lanes = config.engine.lane_count(clients) if config.engine.placement == "pooled" else len(ids)

    def scores(split: str, seconds: float) -> list[float]:
        """Seconds of each shard of a split. `seconds`: of an utterance."""
        size = len(data.evaluation(split))
        shards = config.evaluation.shard_count(config.engine.lane_count(clients), size)
        return [seconds * size / shards] * shards

    dev = scores("dev", measured.score) if "dev" in data.splits() else []
    finals = [seconds for split, each in measured.final.items() for seconds in scores(split, each)]
    server = [measured.server * _pass(config, data, measured)] if measured.examples else []
    seen: set[str] = set()
    up = down = 0
    busy = measured.step * steps + sum(dev) + 2 * sum(finals)
    parts = getattr(config.algorithm.settings, "pretrain", PretrainSettings()).shards
    step = makespan([measured.step / parts] * parts, actors)
    seconds = {"start": measured.start, "seed model": step * steps, "labels": 0.0, "rounds": 0.0}
    seconds["scores"] = makespan(dev, actors)

    def label(client: str) -> float:
        return 0.0 if client in labelled else measured.prepare * data.cost(client)

    if measured.prepares and config.engine.prepare == "all":
        labels = [sum(map(label, ids[first : first + 32])) for first in range(0, len(ids), 32)]
        seconds["labels"], busy = makespan(labels, actors), busy + sum(labels)
        down += len(ids) * (measured.down * measured.reads + measured.assets)
        seen.update(ids)

    def trained(client: str) -> float:
        return min(data.cost(client), most or data.cost(client))

    taking_part = set[str]()
    for t, cohort in enumerate(rounds):
        chosen, answering, virtual = cohort.chosen, cohort.answering, cohort.virtual
        new = {client for client in answering if measured.prepares and client not in seen}
        first = set(chosen) - taking_part
        seen |= set(answering)
        taking_part |= set(answering)
        up += len(answering) * measured.up
        down += len(chosen) * measured.down + len(first) * measured.once
        down += len(new) * (measured.assets + (measured.down * measured.reads if t else 0))
        cut = sorted(cohorts.cut(answering, lanes, data.cost), key=lambda lane: -sum(map(data.cost, lane)))
        train = [sum(measured.train * trained(client) for client in lane) for lane in cut]
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
    saved = 1 + min(config.rounds, config.engine.keep + 1)  # the first, the last ones, the best
    disk = {
        "checkpoints": saved * measured.checkpoint(len(seen)),
        "client states": len(seen) * measured.state,
        "features": sum(2 * int(part.lengths.sum()) * part.features.bins for part in _parts(data)),
        "audio": sum(
            Path(file).stat().st_size
            for file in {file_of(path) for part in _parts(data) for path in part.distinct("path")}
        ),
    }
    return Estimate(seconds, busy, up, down, disk, virtual)


def _pass(config: Config, data: SpeechData, measured: Measured) -> int:
    """Utterances that the server trains on in a round; the measurement used fewer."""
    settings = getattr(config.algorithm.settings, "server", None)
    server = data.server()
    count = measured.examples if server is None else len(server)
    return min(count, getattr(settings, "utterances", None) or count)


def _parts(data: SpeechData) -> list[Utterances]:
    return [*data.training(), *(data.evaluation(split) for split in data.splits())]


def makespan(jobs: Sequence[float], actors: int) -> float:
    """Seconds until all jobs are done; they start in this order, each on the first free actor."""
    free = [0.0] * actors
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def page(config: Config, found: Estimate, measured: Measured, shares: Share, steps: int) -> str:
    """The estimate as text for a terminal."""
    total, hours = sum(found.seconds.values()), sum(found.seconds.values()) / 3600
    each = found.seconds["rounds"] / config.rounds
    step = 1000 * found.seconds["seed model"] / max(1, steps)
    busy = 100 * found.busy / total / shares.actors
    said = {
        "start": "Ray, data, actors",
        "seed model": f"{steps:,} steps of {step:.0f} ms" if steps else "none, or cached",
        "labels": f"{1000 * measured.prepare:.1f} ms per utterance" if measured.prepares else "none",
        "rounds": f"{config.rounds:,} of {each:.2f} s; {1000 * measured.train:.1f} ms per utterance",
        "scores": "dev, during training",
        "final scores": "all splits, initial model and best round",
    }
    booked = [f"{hours * shares.cpus * shares.actors:.2f} core-hours"]
    if shares.gpus:
        booked.append(f"{hours * shares.gpus * shares.actors:.2f} GPU-hours")
    lines = [f"[bold]{rich_text(config.name)}[/bold]: {config.rounds:,} rounds on {words(shares)}", "[bold]Time[/bold]"]
    lines += [f"  {part:<18}{duration(spent):<12}{said[part]}" for part, spent in found.seconds.items()]
    lines.append(f"  {'in all':<18}{duration(total):<12}{' and '.join(booked)}, {busy:.0f} % busy")
    if config.evaluation.personal_final or config.evaluation.personal_every:
        lines.append(f"  {'personal scores':<18}{'not counted':<12}each client's model is scored as well")
    lines += ["[bold]Traffic[/bold]", f"  {'up':<18}{size(found.up):<12}{size(measured.up)} per client and round"]
    lines.append(f"  {'down':<18}{size(found.down):<12}{size(measured.down)} per client and round")
    if (virtual := found.virtual) is not None:
        lines += ["[bold]Virtual time[/bold]", f"  {'until the end':<18}{three(virtual['hours'])} virtual hours"]
        spent = f"{three(virtual['device hours'])} device hours, {100 * virtual['wasted']:.0f} % of them wasted"
        lines.append(f"  {'of all devices':<18}{spent}; {three(virtual['energy'])} Wh")
    if found.memory is not None:
        actors = counted(shares.actors, "client actor")
        lines.append("[bold]Memory[/bold]")
        inside = f"{size(found.activations)} of it for activations of the longest utterances, by this machine's kernels"
        lines.append(f"  {'client actor':<18}{size(found.memory):<12}{inside}")
        lines.append(
            f"  {'in all':<18}{size(found.memory * shares.actors):<12}{actors}, without the driver and Ray itself"
        )
    lines += ["[bold]Disk[/bold]", *(f"  {name:<18}{size(count)}" for name, count in found.disk.items())]
    if found.unlearnable is not None:
        lines.append(f"[yellow]warning:[/yellow] {rich_text(found.unlearnable)}")
    return "\n".join(lines)
