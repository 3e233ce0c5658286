"""Rounds of an algorithm in this process, without Ray: the jobs of client actors, run one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedray.algorithms import ALGORITHMS
from fedray.config import schema
from fedray.config import source as sources
from fedray.core.algorithm import Parts
from fedray.core.metrics import Metrics
from fedray.core.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from fedray.core.settings import Choice, choice, kinds
from fedray.core.strategies import STRATEGIES, Strategy
from fedray.core.types import Broadcast, Change, Client, ServerState, State, Update
from fedray.data.features.kinds import FEATURES
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.jobs.holding import Holder
from fedray.engine.jobs.job import Evaluate, Init, ServerFinish, ServerTrain, Workplace
from fedray.engine.jobs.work import Program
from fedray.engine.lane.aggregation import TrainedLanes, aggregation_of
from fedray.engine.lane.lane import Lane
from fedray.engine.lane.training import TrainLane
from fedray.models import MODELS
from fedray.runs.client_states import Written
from fedray.storage import serialize
from fedray.training.task import Task
from fedray.training.tasks import TASKS


@dataclass(frozen=True)
class Sections:
    """The sections of a configuration that a federation in one process reads."""

    seed: int = 0
    rounds: int = 2
    features: FeatureSettings = kinds(FEATURES, "logmel")
    task: Choice = choice(TASKS, "recognition")
    model: Choice = choice(MODELS, "conformer")
    algorithm: Choice = choice(ALGORITHMS, "fedavg")
    strategy: Strategy = kinds(STRATEGIES, "by_examples")
    server_optimizer: ServerOptimizer = kinds(SERVER_OPTIMIZERS, "sgd")


def sections(values: Mapping[str, Any]) -> Sections:
    """The sections, checked as those of a configuration file are."""
    return schema.build(Sections, sources.from_mapping(values))


def task_of(settings: Sections, data: SpeechData) -> Task:
    return TASKS[settings.task.kind](settings.task.settings, settings.model, settings.features, data)


class Kept:
    """Client states in memory, as a store on disk would return them."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}

    def load(self, client: str, written: Written) -> State:
        return self.states[client]

    def save(self, client: str, version: int, state: State) -> Written:
        self.states[client] = serialize.plain(state)
        return Written(version, 0, "")

    def sync(self, written: Mapping[str, Written]) -> None:
        return None


class Federation:
    """An algorithm with its clients on one device. Every client takes part in every round, all in one lane.

    Strategies that need the whole cohort at once are not supported.
    """

    def __init__(
        self, settings: Sections, data: SpeechData, device: str, start: ServerState | None = None, together: int = 1
    ) -> None:
        """`start`: the state before round 0 (None: the algorithm makes it on this device). `together`: how many clients
        train side by side.
        """
        parts = Parts(task_of(settings, data), settings.strategy, settings.server_optimizer, settings.rounds)
        self.algorithm = ALGORITHMS[settings.algorithm.kind](settings.algorithm.settings, parts)
        self.algorithm.check(data)
        self.kept = Kept()
        holder = Holder(Path(tempfile.gettempdir()) / "fedray-gpu-check", 1e9)
        self.workplace = Workplace(
            Program(self.algorithm, data, settings.seed, self.kept),
            tuple(self.algorithm.layers()),
            self.algorithm.assets(data),
            holder,
            lambda done, of, what: None,
            device,
        )
        self.state = start or Init().run(self.workplace)[0]
        self.first = self.algorithm.broadcast(self.state, 0)
        self.done = 0
        self.together = together
        self.written: dict[str, Written] = {}

    def round(self) -> Metrics:
        """Run a round and return the metrics of its clients. RuntimeError: a client failed."""
        broadcast = self._broadcast()
        data = self.workplace.program.data
        lane = Lane(
            0,
            self.done,
            tuple((client, self.written.get(client)) for client in data.client_ids()),
            together=self.together,
        )
        result = TrainLane(lane).run(self.workplace, broadcast, self.first)
        for failure in result.failures:
            raise RuntimeError(f"client {failure.client} failed: {failure.reason}\n{failure.traceback}")
        update = self._server(broadcast)
        lanes = TrainedLanes(self.done, [result], [0], result.partial, result.packing, 0)
        aggregate = aggregation_of(self.algorithm.strategy).aggregate(None, lanes, self.workplace.layers)  # type: ignore[arg-type]
        mean, vectors = aggregate.parts()
        change = Change(mean, None if update is None else update.delta, vectors, result.counted, len(data.client_ids()))
        state = self.algorithm.server_update(self.state, change, self.done)
        if self.algorithm.overrides("server_finish"):
            state = ServerFinish(self.done).run(self.workplace, state)
        self.state = ServerState(state.params, serialize.plain(state.extra))
        self.written |= result.written
        self.done += 1
        return lanes.partial.metrics

    def score(self, final: bool = False) -> Metrics:
        """The scores of the global model on dev."""
        return Evaluate("dev", 0, 1, self.done, final).run(self.workplace, self._broadcast()).metrics

    def personal(self, client: str) -> Mapping[str, Metrics]:
        """The scores on dev of a client's personal model, after its last round."""
        program = self.workplace.program
        name = Client(client, program.data.load(client), 0, self.kept.states.get(client))
        received = self.workplace.receive(self._broadcast(), self.done)
        parts = {"dev": program.data.evaluation("dev")}
        found = self.algorithm.evaluate_personal(name, received, parts, final=False)
        return {split: one.metrics for split, one in found.items()}

    def numbers(self) -> dict[str, np.ndarray]:
        """All arrays that a run would keep, by name: parameters, the server's extra state and the clients' states."""
        found = {"params": self.state.params} | _arrays(self.state.extra, "server")
        for client, state in sorted(self.kept.states.items()):
            found |= _arrays(state, client)
        return found

    def _broadcast(self) -> Broadcast:
        return self.algorithm.broadcast(self.state, self.done)

    def _server(self, broadcast: Broadcast) -> Update | None:
        if not self.algorithm.overrides("server_train"):
            return None
        return ServerTrain(self.done).run(self.workplace, broadcast)


def _arrays(state: Any, prefix: str) -> dict[str, np.ndarray]:
    if isinstance(state, Mapping):
        return {name: array for key in state for name, array in _arrays(state[key], f"{prefix}/{key}").items()}
    if isinstance(state, str) or state is None:
        return {}
    array = np.asarray(state)
    return {prefix: array} if array.dtype.kind in "fiub" else {}
