"""Parts of the engine's benchmark that travel to actors: a model of any width, and a toy without training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from benchmarks.engine.networks import CRNN
from fedray.core.algorithm import Algorithm, Parts
from fedray.core.metrics import Metrics
from fedray.core.parameters import FlatModel
from fedray.core.types import Broadcast, Change, Client, Received, Server, ServerState, Update
from fedray.engine.cluster.resources import share
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.work import Program
from fedray.engine.round.plan import Plan
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.runs.client_states import ClientStore

LAYERS = 10  # of the toy's model


@dataclass(frozen=True)
class OwnSettings:
    width: int = 256
    hidden: int = 512
    bidirectional: bool = True
    init: str | None = None


class Own(CRNN):
    """The workload's network at any width, as a user's model."""

    Settings: ClassVar[type] = OwnSettings

    def __init__(self, settings: OwnSettings, bins: int, classes: int) -> None:
        super().__init__(settings.width, settings.hidden, settings.bidirectional, bins, classes)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return super().forward(features)


@dataclass(frozen=True)
class Ids(Sequence[str]):
    """The names of any number of clients, made on demand."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.count))]
        if not -self.count <= index < self.count:
            raise IndexError(f"client {index} of {self.count}")
        return f"client-{int(index) % self.count:07d}"


@dataclass(frozen=True)
class Population:
    """Clients without data."""

    count: int

    def client_ids(self) -> Ids:
        return Ids(self.count)

    def cost(self, client: str) -> float:
        return 1.0

    def load(self, client: str) -> None:
        return None

    def server(self) -> None:
        return None

    def client_part(self, client: str, split: str) -> None:
        return None

    def splits(self) -> list[str]:
        return []

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> None:
        raise AssertionError("there is nothing to score")

    def fingerprint(self, part: str = "all") -> str:
        return str(self.count)


@dataclass(frozen=True)
class ToySettings:
    parameters: int = 1000  # about


class Toy(Algorithm):
    """A client loads the broadcast, changes one number instead of training, and returns the difference."""

    Settings = ToySettings
    settings: ToySettings
    _model: FlatModel | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}

    def flat(self) -> FlatModel:
        if self._model is None:
            side = max(1, round(math.sqrt(self.settings.parameters / LAYERS)))
            self._model = FlatModel(nn.Sequential(*(nn.Linear(side, side) for _ in range(LAYERS))))
        return self._model

    def init(self, server: Server) -> ServerState:
        return ServerState(np.zeros(self.flat().layout.size, np.float32))

    def broadcast(self, state: ServerState, round: int) -> Broadcast:
        return Broadcast(state.params)

    def client_update(self, client: Client, received: Received) -> Update:
        flat = self.flat()
        flat.load(received.params)
        flat.values[0] += 1
        return Update(flat.difference(received.params), {"examples": 1.0}, Metrics(loss=(0.0, 1)))

    def server_update(self, state: ServerState, change: Change, round: int) -> ServerState:
        return state if change.clients is None else ServerState(state.params + change.clients)


def assignment(folder: Path, population: int, cohort: int, parameters: int, rounds: int, actors: int) -> Assignment:
    """A run of the toy in `folder`."""
    algorithm, engine = Toy(ToySettings(parameters), Parts(rounds=rounds)), EngineSettings(actors=actors)
    program = Program(algorithm, Population(population), 0, ClientStore(folder / "states"))
    folder.mkdir(parents=True)
    plan = Plan(rounds, CohortSettings(size=cohort), engine, EvaluationSettings())
    return Assignment("toy", program, {}, plan, share(engine, session.resources()), folder)
