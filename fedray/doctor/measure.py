"""The pieces of a run, each played for some seconds on the client actors that the run would have, all of them at work at once."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError

from fedray.core.types import Change, RunError, ServerState, Update
from fedray.data.dataset import Utterances
from fedray.data.federated import SpeechData
from fedray.engine import cohort as cohorts
from fedray.engine.actors import ClientActor
from fedray.engine.folder import ClientRecord, Progress, RunFolder
from fedray.engine.lanes import Lane, LaneResult
from fedray.engine.resources import Share
from fedray.engine.rounds import Plan, size
from fedray.engine.store import ClientStore
from fedray.engine.work import Program

MOST = 64  # utterances that a client or the server shows, and that are scored of a split
CLIENTS = 3  # that each actor plays, the first of them to get warm
STEPS = 100  # of the seed model
SECONDS = 600.0  # for a piece, before something must be wrong


@dataclass(frozen=True)
class Measured:
    """Seconds of one actor while all are at work, and bytes."""

    start: float  # until driver and actors answer, and what their first clients take longer than the next
    step: float  # of the seed model
    train: float  # an utterance of a client, all epochs
    prepare: float  # an utterance that is labelled before the client's first round
    server: float  # an utterance of the server's pass in a round
    examples: int  # utterances of that pass, as it was measured; 0: there is none
    driver: float  # a round, with nobody else at work: the server's update, its finish, the checkpoint
    score: float  # an utterance of dev, as in every round
    final: Mapping[str, float]  # split -> an utterance, as at the end
    up: int  # bytes that a client sends
    down: int  # bytes of a broadcast
    assets: int  # bytes that a client gets besides, when it is prepared
    prepares: bool  # whether clients have a state from before their first round
    state: int  # bytes of a client's state on disk
    checkpoint: Callable[[int], int] = field(repr=False)  # clients that have taken part -> bytes


@dataclass(frozen=True)
class Short:
    """A federation whose clients and server show some of their utterances, evenly spread over all."""

    data: SpeechData

    def client_ids(self) -> Sequence[str]:
        return self.data.client_ids()

    def cost(self, client: str) -> float:
        return min(MOST, self.data.cost(client))

    def load(self, client: str) -> Utterances:
        return _some(self.data.load(client))

    def server(self) -> Utterances | None:
        own = self.data.server()
        return None if own is None else _some(own)

    def own(self, client: str, split: str) -> None:
        return None

    def splits(self) -> Sequence[str]:
        return self.data.splits()

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> Utterances:
        return self.data.evaluation(split, index, count)


def _some(data: Utterances) -> Utterances:
    return data.take(np.linspace(0, len(data) - 1, min(MOST, len(data))).astype(np.int64))


class Probe(ClientActor):
    """A client actor that tells how long its work takes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._marks: list[float] = []  # when each step of the seed model was done

    def timed(self, method: str, *arguments: Any) -> tuple[Any, float]:
        since = time.perf_counter()
        result = getattr(self, method)(*arguments)
        return result, time.perf_counter() - since

    def seed(self) -> tuple[ServerState, float]:
        """theta_0 after some steps, and the seconds that a step takes once it is warm (0: it was in the cache)."""
        state, _ = self.init()
        steps = np.diff(self._marks)[len(self._marks) // 4 :]
        return state, float(np.mean(steps)) if len(steps) else 0.0

    def _progress(self) -> Callable[[int, int, str], None]:
        return lambda done, of, what: self._marks.append(time.perf_counter())


def measure(program: Program, plan: Plan, share: Share, folder: RunFolder, say: Callable[[str], None]) -> Measured:
    """Measure a program whose seed model takes few steps. `folder`: empty, and all nodes see it. `say` is told what goes on."""
    real, algorithm = program.data, program.algorithm
    program = replace(program, data=Short(real), states=ClientStore(folder.storage.child("states")), prepare_cache=None)
    assets = dict(algorithm.assets())
    make = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)(Probe)
    references = ray.put(program), ray.put(assets)
    arguments = (*references, share.gpus, plan.engine.hold_gb * 1e9, False, f"estimate-{os.getpid()}", None)
    say(f"starting {share.actors} client actor{'s' * (share.actors > 1)}")
    since = time.perf_counter()
    actors = [make.remote(*arguments)]
    try:
        _get([actors[0].ping.remote(None)])
        alone = time.perf_counter() - since  # a driver takes as long
        actors += [make.remote(*arguments) for _ in range(share.actors - 1)]
        _get([actor.ping.remote(None) for actor in actors])
        started = max(2 * alone, time.perf_counter() - since)
        say("playing the first steps of the seed model")
        (state, step), *_ = _get([actors[0].seed.remote()])
        broadcast = algorithm.broadcast(state, 0)
        received = ray.put(broadcast)
        say("playing clients")
        lanes, warm = _clients(actors, program, plan, received)
        utterances = [program.data.cost(lane.chosen) for lane in lanes]
        update, server, examples = None, 0.0, 0
        if algorithm.overrides("server_train"):
            say("playing the server's pass")
            update, server, examples = _server(actors, received)
        say("scoring")
        score, final = _scores(actors, real, received)
        change = Change(np.zeros_like(state.params), None if update is None else update.delta)
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
        down=size(broadcast),
        assets=sum(int(getattr(asset, "nbytes", 0)) for asset in assets.values()),
        state=_bytes(folder, "states") // max(1, states),
        prepares=any(lane.result.prepared for lane in lanes),
        checkpoint=checkpoint,
    )


def _get(references: Sequence[Any]) -> list[Any]:
    try:
        return list(ray.get(list(references), timeout=SECONDS))
    except GetTimeoutError as error:
        raise RunError(f"no answer within {SECONDS:.0f} s: something else holds the cores or GPUs (see `ray status`)") from error


@dataclass(frozen=True)
class Played:
    """A client that was alone in a lane."""

    chosen: str
    result: LaneResult
    seconds: float

    @property
    def trained(self) -> float:
        return self.seconds - self.result.seconds["prepare"]


def _clients(actors: Sequence[Any], program: Program, plan: Plan, received: Any) -> tuple[list[Played], float]:
    """Every actor plays clients of the first cohort; what each played when it was warm, and the seconds that the first cost more."""
    data = program.data
    cohort = cohorts.sample(data.client_ids(), plan.cohort, data.cost, program.seed, 0) or list(data.client_ids())
    warm: list[Played] = []
    cold: list[Played] = []
    for turn in range(CLIENTS):
        chosen = [cohort[(turn * len(actors) + number) % len(cohort)] for number in range(len(actors))]
        lanes = [Lane(number, 0, ((client, None),)) for number, client in enumerate(chosen)]
        played = _get([actor.timed.remote("train_lane", lane, received, received) for actor, lane in zip(actors, lanes, strict=True)])
        for client, (result, seconds) in zip(chosen, played, strict=True):
            if result.failures:
                raise RunError(f"client {client} fails: {result.failures[0].reason}\n{result.failures[0].traceback}")
            (warm if turn else cold).append(Played(client, result, seconds))
    each = sum(one.seconds for one in warm) / sum(data.cost(one.chosen) for one in warm)
    return warm, max(0.0, *(one.seconds - each * data.cost(one.chosen) for one in cold))


def _server(actors: Sequence[Any], received: Any) -> tuple[Update | None, float, int]:
    """What the server learns in a round, the seconds for an utterance of it, and how many these were."""
    _get([actor.timed.remote("server_train", 0, received) for actor in actors])
    played = _get([actor.timed.remote("server_train", 0, received) for actor in actors])
    update = played[0][0]
    if update is None:
        return None, 0.0, 0
    examples = int(update.report["examples"])
    return update, statistics.mean(seconds for _, seconds in played) / examples, examples


def _scores(actors: Sequence[Any], data: SpeechData, received: Any) -> tuple[float, dict[str, float]]:
    """Seconds an utterance: of dev as in every round, and of every split as at the end."""

    def seconds(split: str, final: bool) -> float:
        utterances = len(data.evaluation(split))
        count = max(1, utterances // MOST)
        parts = [number % count for number in range(len(actors))]
        calls = [actor.timed.remote("evaluate", split, part, count, 0, received, final) for actor, part in zip(actors, parts, strict=True)]
        return statistics.mean(spent for _, spent in _get(calls)) / (utterances / count)

    splits = [split for split in data.splits() if len(data.evaluation(split))]
    if splits:
        seconds(splits[0], final=False)  # to get warm
    return seconds("dev", final=False) if "dev" in splits else 0.0, {split: seconds(split, final=True) for split in splits}


def _driver(actor: Any, program: Program, state: ServerState, change: Change, folder: RunFolder) -> tuple[float, Callable[[int], int]]:
    """Seconds of what happens once in a round, and how large a checkpoint is that knows so many clients."""
    algorithm, since = program.algorithm, time.perf_counter()
    after = algorithm.server_update(state, change, 0)
    if algorithm.overrides("server_finish"):
        after, _ = _get([actor.timed.remote("server_finish", 0, after)])[0]
    folder.save(Progress(after))
    seconds = time.perf_counter() - since

    def checkpoint(clients: int) -> int:
        record = ClientRecord(0, 1, 0, 1, {"examples": 1.0, "loss": 1.0})
        folder.save(Progress(after, 1, dict.fromkeys(program.data.client_ids()[:clients], record)))
        return _bytes(folder, "checkpoints/round_000001")

    return seconds, checkpoint


def _bytes(folder: RunFolder, name: str) -> int:
    return sum(len(folder.storage.read(f"{name}/{file}")) for file in folder.storage.files(name))
