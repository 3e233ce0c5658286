"""Times the parts of a run, each for some seconds, on all client actors that the run would have."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError

from fedray.core.seeds import derive
from fedray.core.types import Change, FederatedData, RunError, ServerState, Update
from fedray.core.words import counted
from fedray.data.features.dataset import Utterances
from fedray.engine.actors.actor import ClientActor
from fedray.engine.cluster import reservation
from fedray.engine.cluster.resources import Share
from fedray.engine.jobs.job import Evaluate, Init, Job, ServerFinish, ServerTrain
from fedray.engine.jobs.work import Program, asset_bytes
from fedray.engine.lane.lane import Lane, LaneResult
from fedray.engine.lane.training import TrainLane
from fedray.engine.round import cohort as cohorts
from fedray.engine.round.downlink import Posted
from fedray.engine.round.plan import Plan
from fedray.runs.client_states import Written
from fedray.runs.folder import ClientRecord, Progress, RunFolder

MOST = 64  # measured utterances of a client, of the server and of a split
CLIENTS = 3  # trained by each actor; the first warms it up
STEPS = 100  # training steps of the seed model
SECONDS = 600.0  # after which a part counts as stuck
STARTING = 30.0  # seconds of actors that have not started, after which the message says what Ray has free


@dataclass(frozen=True)
class Measured:
    """Seconds of one actor while all actors work, and bytes."""

    start: float  # until driver and actors answer, plus the extra time of each actor's first client
    step: float  # per training step of the seed model
    train: float  # per utterance of a client, all epochs
    prepare: float  # per utterance that is labelled before the client's first round
    server: float  # per utterance of the server's training in a round
    examples: int  # utterances of that training, as measured; 0: the server does not train
    driver: float  # per round, while no actor works: the server's update, its finish, the checkpoint
    score: float  # per utterance of dev, as in every round
    final: Mapping[str, float]  # split -> seconds per utterance, as at the end
    up: int  # bytes that a client sends
    down: int  # bytes of a broadcast
    once: int  # bytes of what never changes, which a client receives once
    assets: int  # further bytes that a client receives for its preparation
    reads: bool  # whether the preparation reads the broadcast
    prepares: bool  # whether clients have a state before their first round
    state: int  # bytes of a client's state on disk
    checkpoint: Callable[[int], int] = field(repr=False)  # number of clients that took part -> bytes


@dataclass(frozen=True)
class Short:
    """A federation whose clients and server have at most `MOST` evenly spread utterances."""

    data: FederatedData

    def client_ids(self) -> Sequence[str]:
        return self.data.client_ids()

    def cost(self, client: str) -> float:
        return min(MOST, self.data.cost(client))

    def load(self, client: str) -> Utterances:
        return _some(self.data.load(client))

    def server(self) -> Utterances | None:
        data: Utterances | None = self.data.server()
        return None if data is None else _some(data)

    def client_part(self, client: str, split: str) -> None:
        return None

    def splits(self) -> Sequence[str]:
        return self.data.splits()

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> Utterances:
        found: Utterances = self.data.evaluation(split, index, count)
        return found


def _some(data: Utterances) -> Utterances:
    return data.take(np.linspace(0, len(data) - 1, min(MOST, len(data))).astype(np.int64))


class Probe(ClientActor):
    """A client actor that times its work."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._marks: list[float] = []  # the end of each training step of the seed model

    def timed(self, job: Job[Any], *inputs: Any) -> tuple[Any, float]:
        since = time.perf_counter()
        result = self.run(job, *inputs)
        return result, time.perf_counter() - since

    def seed(self) -> tuple[ServerState, float]:
        """theta_0 after some steps, and the seconds per step without the first quarter (0: theta_0 was cached)."""
        state, _ = self.run(Init())
        steps = np.diff(self._marks)[len(self._marks) // 4 :]
        return state, float(np.mean(steps)) if len(steps) else 0.0

    def _progress(self) -> Callable[[int, int, str], None]:
        return lambda done, of, what: self._marks.append(time.perf_counter())


def measure(program: Program, plan: Plan, share: Share, folder: RunFolder, say: Callable[[str], None]) -> Measured:
    """Measure a program whose seed model takes few training steps.

    All nodes must see the empty `folder`. `say` receives the name of each part. Raises RunError if a client fails or
    a part is stuck.
    """
    real, algorithm, store = program.data, program.algorithm, folder.states
    program = replace(program, data=Short(real), states=store, prepare_cache=None)
    assets = dict(algorithm.assets(program.data))
    make = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)(Probe)
    references = ray.put(program), ray.put(assets)
    arguments = (*references, share.gpus, plan.engine.hold_gb * 1e9, False, f"estimate-{os.getpid()}", None)
    say(f"starting {counted(share.actors, 'client actor')}")
    since = time.perf_counter()
    actors = [make.remote(*arguments)]
    try:
        _answered([actors[0].ping.remote(None)], say)
        alone = time.perf_counter() - since  # a driver takes about as long
        actors += [make.remote(*arguments) for _ in range(share.actors - 1)]
        _answered([actor.ping.remote(None) for actor in actors], say)
        started = max(2 * alone, time.perf_counter() - since)
        say("training the seed model for some steps")
        (state, step), *_ = _get([actors[0].seed.remote()])
        posted = Posted.of(algorithm.broadcast(state, 0), program.download, algorithm, ray.put)
        say("training clients")
        lanes, warm = _clients(actors, program, plan, posted.clients)
        utterances = [program.data.cost(lane.chosen) for lane in lanes]
        update, server, examples = None, 0.0, 0
        if algorithm.overrides("server_train"):
            say("training on the server")
            update, server, examples = _server(actors, posted.server)
        say("scoring")
        score, final = _scores(actors, real, posted.server)
        packing = lanes[0].result.packing
        assert packing is not None
        zeros, vectors = packing.unpack(np.zeros(packing.size, np.float32))
        population = len(program.data.client_ids())
        change = Change(zeros, None if update is None else update.delta, vectors, len(lanes), population)
        driver, checkpoint = _driver(actors[0], program, state, change, folder)
    finally:
        for actor in actors:
            actor.clear.remote()
            actor.__ray_terminate__.remote()
    states = len(folder.storage.files("states"))
    return Measured(
        start=started + warm,
        step=step,
        train=sum(lane.trained for lane in lanes) / sum(utterances),
        prepare=sum(lane.result.seconds["prepare"] for lane in lanes) / sum(utterances),
        server=server,
        examples=examples,
        driver=driver,
        score=score,
        final=final,
        up=max(lane.result.up_bytes for lane in lanes),
        down=posted.bytes,
        once=4 * posted.broadcast.constant,
        assets=asset_bytes(assets) * program.algorithm.prepare_reads,
        reads=program.algorithm.prepare_reads,
        state=_bytes(folder, "states") // max(1, states),
        prepares=any(lane.result.prepared for lane in lanes),
        checkpoint=checkpoint,
    )


def _answered(pings: Sequence[ObjectRef], say: Callable[[str], None]) -> None:
    """Wait until the pinged actors answer. Other runs may hold the cores that they need."""
    _, waiting = ray.wait(list(pings), num_returns=len(pings), timeout=STARTING)
    if waiting:
        say(f"waiting for {counted(len(waiting), 'client actor')} to start: {reservation.standing()}")
    _get(pings)


def _get(references: Sequence[ObjectRef]) -> list[Any]:
    try:
        return list(ray.get(list(references), timeout=SECONDS))
    except GetTimeoutError as error:
        raise RunError(f"no answer within {SECONDS:.0f} s: {reservation.standing()}") from error


@dataclass(frozen=True)
class Played:
    """The result of a lane with one client."""

    chosen: str
    result: LaneResult
    seconds: float

    @property
    def trained(self) -> float:
        return self.seconds - self.result.seconds["prepare"]


def _clients(
    actors: Sequence[ActorHandle], program: Program, plan: Plan, received: ObjectRef
) -> tuple[list[Played], float]:
    """Train clients of the first cohort on every actor; returns warm results and the first client's extra seconds."""
    data = program.data
    cohort = cohorts.sample(data.client_ids(), plan.cohort, data.cost, program.seed, 0) or list(data.client_ids())
    warm: list[Played] = []
    cold: list[Played] = []
    for turn in range(CLIENTS):
        chosen = [cohort[(turn * len(actors) + number) % len(cohort)] for number in range(len(actors))]
        lanes = [Lane(number, 0, ((client, None),)) for number, client in enumerate(chosen)]
        pairs = zip(actors, lanes, strict=True)
        results = _get([actor.timed.remote(TrainLane(lane), received, received) for actor, lane in pairs])
        for client, (result, seconds) in zip(chosen, results, strict=True):
            if result.failures:
                raise RunError(f"client {client} fails: {result.failures[0].reason}\n{result.failures[0].traceback}")
            (warm if turn else cold).append(Played(client, result, seconds))
    each = sum(one.seconds for one in warm) / sum(data.cost(one.chosen) for one in warm)
    return warm, max(0.0, *(one.seconds - each * data.cost(one.chosen) for one in cold))


def _server(actors: Sequence[ActorHandle], received: ObjectRef) -> tuple[Update | None, float, int]:
    """The server's update of a round, its seconds per utterance, and its number of utterances."""
    _get([actor.timed.remote(ServerTrain(0), received) for actor in actors])
    results = _get([actor.timed.remote(ServerTrain(0), received) for actor in actors])
    update = results[0][0]
    if update is None:
        return None, 0.0, 0
    examples = int(update.report["examples"])
    return update, statistics.mean(seconds for _, seconds in results) / examples, examples


def _scores(actors: Sequence[ActorHandle], data: FederatedData, received: ObjectRef) -> tuple[float, dict[str, float]]:
    """Seconds of scoring per utterance: of dev as in every round, and of every split as at the end."""

    def seconds(split: str, final: bool) -> float:
        utterances = len(data.evaluation(split))
        count = max(1, utterances // MOST)
        parts = [number % count for number in range(len(actors))]
        pairs = zip(actors, parts, strict=True)
        calls = [actor.timed.remote(Evaluate(split, part, count, 0, final), received) for actor, part in pairs]
        mean: float = statistics.mean(spent for _, spent in _get(calls))
        return mean / (utterances / count)

    splits = [split for split in data.splits() if len(data.evaluation(split))]
    if splits:
        seconds(splits[0], final=False)  # warms up the actors
    dev = seconds("dev", final=False) if "dev" in splits else 0.0
    return dev, {split: seconds(split, final=True) for split in splits}


def _driver(
    actor: ActorHandle, program: Program, state: ServerState, change: Change, folder: RunFolder
) -> tuple[float, Callable[[int], int]]:
    """Seconds of the driver's work in a round, and the bytes of a checkpoint by its number of clients."""
    algorithm, since = program.algorithm, time.perf_counter()
    after = algorithm.server_update(state, change, 0)
    if algorithm.overrides("server_finish"):
        after, _ = _get([actor.timed.remote(ServerFinish(0), after)])[0]
    folder.save(Progress(after))
    seconds = time.perf_counter() - since

    def checkpoint(clients: int) -> int:
        scores = {"examples": 1.0, "loss": 1.0}
        records = {
            # The hash is another for each client: hashes hardly compress.
            client: ClientRecord(Written(0, number, f"{derive(client):032x}"), 1, 0, 1, scores)
            for number, client in enumerate(program.data.client_ids()[:clients])
        }
        folder.save(Progress(after, 1, records))
        return _bytes(folder, "checkpoints/round_000001")

    return seconds, checkpoint


def _bytes(folder: RunFolder, name: str) -> int:
    return sum(len(folder.storage.read(f"{name}/{file}")) for file in folder.storage.files(name))
