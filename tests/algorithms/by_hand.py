"""What the engine does around an algorithm, done by hand in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedray import experiment
from fedray.config.schema import pick, plain
from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, Client, Received, Server, ServerState
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.jobs import work
from fedray.experiment.config import Config

SEED_MODELS: dict[str, ServerState] = {}  # by `seed_name`; clear it to train them again


def build(settings: Mapping[str, Any]) -> tuple[Algorithm, SpeechData, ServerState]:
    """The algorithm, its federation, and the state before round 0. Tests with the same settings share a seed model."""
    config, source = experiment.load(settings)
    experiment.check_setup(config, source)
    data, _ = experiment.build_data(config, source)
    algorithm = experiment.build_algorithm(config, data)
    name = seed_name(config, algorithm)
    if name not in SEED_MODELS:
        SEED_MODELS[name] = algorithm.init(Server(data.server(), None, 1))
    theta_0 = replace(SEED_MODELS[name], params=SEED_MODELS[name].params.copy())
    return algorithm, data, algorithm.begin(theta_0, 1)


def seed_name(config: Config, algorithm: Algorithm) -> str:
    """A seed model's name: the keys theta_0 depends on (`init_depends`), and the classes of algorithm and model."""
    classes = [f"{cls.__module__}.{cls.__qualname__}" for cls in (type(algorithm), algorithm.task.model_class)]
    values = plain(config)
    kept = [classes, algorithm.task.personal, values["data"], pick(values, algorithm.init_depends)]
    return json.dumps(kept, sort_keys=True)


def arrived(algorithm: Algorithm, state: ServerState, round: int = 0, data: Any = None) -> Received:
    broadcast = algorithm.broadcast(state, round)
    return Received(broadcast.params, broadcast.settings, round, algorithm.assets(data), vectors=broadcast.vectors)


def play(algorithm: Algorithm, data: SpeechData, state: ServerState, rounds: int) -> tuple[list[float], ServerState]:
    """Play rounds of the first client alone: its training losses, and the state after the last round."""
    losses = []
    for round in range(rounds):
        update = algorithm.client_update(client(data), arrived(algorithm, state, round))
        losses.append(update.metrics["loss"])
        state = algorithm.server_update(state, Change(update.delta), round)
    return losses, state


def personal(
    algorithm: Algorithm, client: Client, received: Received, parts: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """The scores of a client's personal model on each data set."""
    found = algorithm.evaluate_personal(client, received, parts, final=False)
    return {name: dict(one.metrics) for name, one in found.items()}


def client(data: SpeechData, position: int = 0, state: Any = None) -> Client:
    name = data.client_ids()[position]
    work.seed_all(1, name)
    return Client(name, data.load(name), 5, state)
