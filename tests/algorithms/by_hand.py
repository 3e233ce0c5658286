"""What the engine does around an algorithm, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedray import experiment, programs
from fedray.core.algorithm import Algorithm
from fedray.core.types import Client, Received, Server, ServerState
from fedray.data.federated import SpeechData
from fedray.engine import work


def build(settings: Mapping[str, Any]) -> tuple[Algorithm, SpeechData, ServerState]:
    config, source = experiment.load(settings)
    data, _ = programs.build_data(config, source)
    algorithm = programs.build_algorithm(config, data)
    return algorithm, data, algorithm.begin(algorithm.init(Server(data.server(), None, 1)), 1)


def arrived(algorithm: Algorithm, state: ServerState, round: int = 0) -> Received:
    broadcast = algorithm.broadcast(state, round)
    return Received(broadcast.params, broadcast.settings, round, algorithm.assets())


def client(data: SpeechData, position: int = 0, state: Any = None) -> Client:
    name = data.client_ids()[position]
    work.seed_all(1, name)
    return Client(name, data.load(name), 5, state)
