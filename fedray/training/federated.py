"""What the algorithms that train a task share: the seed model, a client's pass over its data, the server's pass, and mixing the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fedray.core.algorithm import Algorithm
from fedray.core.config import positive
from fedray.core.metrics import Metrics
from fedray.core.seeds import derive, numpy_generator, seed_all
from fedray.core.types import Change, Client, Evaluation, Layer, Received, Server, ServerState, Update, Vector
from fedray.data.dataset import Utterances
from fedray.training.local import LocalSettings, PretrainSettings, pretrain, train
from fedray.training.task import Task

BUFFERS = ("frozen", "averaged")


@dataclass(frozen=True)
class ServerPassSettings:
    """One pass of SGD over the server's labelled data in each round."""

    lr: float = 0.1  # not decayed
    batch: int = 6
    utterances: int | None = None  # that many, drawn anew each round (null: all)
    clip: float | None = 5.0

    def __post_init__(self) -> None:
        positive(lr=self.lr, batch=self.batch, utterances=self.utterances, clip=self.clip)

    def local(self) -> LocalSettings:
        return LocalSettings(self.lr, self.batch, 1, self.clip)


class TaskAlgorithm(Algorithm):
    """An algorithm that leaves scoring and exporting its global model to the task. Abstract."""

    task: Task

    @property
    def best(self) -> tuple[str, str]:
        return self.task.best

    def layers(self) -> tuple[Layer, ...]:
        """One layer a module of the model: its parameters, and at another place of the vector its float buffers."""
        layout = self.task.layout
        modules = groupby(layout.entries, lambda entry: (entry.start >= layout.trainable, entry.name.rpartition(".")[0]))
        stretches = [(name, list(entries)) for (_, name), entries in modules]
        return tuple(Layer(name, entries[0].start, entries[-1].stop) for name, entries in stretches)

    def assets(self) -> Mapping[str, Any]:
        return self.task.assets()

    def evaluate(self, data: Any, received: Received, final: bool) -> Evaluation:
        return self.task.evaluate(received.params, data, received.assets, received.device, final)

    def export(self, state: ServerState, folder: Path) -> None:
        self.task.export(state.params, folder)

    def optimise(self, state: ServerState, delta: Vector) -> ServerState:
        """ServerOpt on the trainable parameters; averaged buffers take Delta as it is."""
        if not delta.ndim:  # nobody answered, and the server learnt nothing
            return state
        return self.server_optimizer.apply(state, delta, self.task.layout.trainable)


def check_mixing(alpha: float, buffers: str) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is the server's share of a change, from 0 to 1, not {alpha}")
    if buffers not in BUFFERS:
        raise ValueError(f"buffers (running statistics of batch norm) are {' or '.join(BUFFERS)}, not {buffers!r}")


def seed_model_keys(task: Task) -> tuple[str, ...]:
    """What the seed model depends on, besides the server's data."""
    return ("seed", "features", "model", "algorithm.pretrain", *task.init_depends)


def initial_model(task: Task, server: Server) -> ServerState:
    """The task's initial weights: drawn at random, or from `model.init`."""
    seed_all(server.seed, "weights")
    return ServerState(task.initial())


def seed_model(task: Task, server: Server, settings: PretrainSettings) -> ServerState:
    """theta_0: the task's initial weights (drawn at random, or from `model.init`), trained on the server's labelled data."""
    initial, flat = initial_model(task, server), task.flat(server.device)
    if settings.steps:
        flat.load(initial.params)
        if server.data is None:
            raise ValueError(
                "there is no labelled data on the server to train a seed model on: set data.server, or algorithm.pretrain.steps=0"
            )
        pretrain(task, server.data, task.targets(server.data), settings, server.seed, server.device, server.progress)
        return ServerState(flat.read())
    return initial


def train_on(
    task: Task,
    received: Received,
    data: Utterances,
    targets: Sequence[Any],
    settings: LocalSettings,
    lr: float,
    seed: int,
    buffers: str,
    proximal: float = 0.0,
) -> tuple[Vector, Metrics]:
    """Training from the broadcast; the difference to it, and the mean loss."""
    flat = task.flat(received.device)
    flat.load(received.params)
    metrics = train(task, data, targets, settings, lr, seed, buffers == "frozen", received.device, proximal)
    return flat.difference(received.params, buffers=buffers == "averaged"), metrics


def labelled_part(data: Utterances) -> Utterances:
    """A client's labelled utterances (`data.labelled`): none of them, all, or what is said."""
    assert data.labelled is not None
    return data.take(np.flatnonzero(data.labelled))


def check_labelled(data: Any, kind: str) -> None:
    """ValueError where nothing is said of what the clients have labelled."""
    clients = data.client_ids()
    if len(clients) and data.load(clients[0]).labelled is None:
        raise ValueError(f"{kind} needs clients some of whose utterances are labelled: set data.labelled.share or data.labelled.utterances")


def own_model(algorithm: Any, client: Client, received: Received, data: Mapping[str, Any]) -> Mapping[str, Metrics]:
    """Scores of a client's own model where clients keep none: the broadcast after the client's training, drawn anew [ours]."""
    task: Task = algorithm.task
    algorithm.client_update(client, received)  # leaves the trained model in the task's
    params = task.flat(received.device).read()
    return {split: task.evaluate(params, part, received.assets, received.device, final=False).metrics for split, part in data.items()}


def server_pass(task: Task, server: Server, received: Received, settings: ServerPassSettings, buffers: str) -> Update:
    """Delta_S: one pass over D_L, or over a part of it drawn anew."""
    data: Utterances = server.data
    if data is None:
        raise ValueError(
            "algorithm.alpha above 0 mixes in what the server learns, but it has no labelled data: set data.server, or alpha=0"
        )
    if settings.utterances is not None and settings.utterances < len(data):
        chosen = numpy_generator(server.seed, "utterances").choice(len(data), settings.utterances, replace=False)
        data = data.take(np.sort(chosen))
    delta, metrics = train_on(
        task, received, data, task.targets(data), settings.local(), settings.lr, derive(server.seed, "batches"), buffers
    )
    return Update(delta, {"examples": len(data)}, metrics)


def mixed(change: Change, alpha: float) -> Vector:
    """Delta = alpha Delta_S + (1 - alpha) Delta_C; a part that did not come counts as no change."""
    parts = [np.float32(share) * part for share, part in ((alpha, change.server), (1 - alpha, change.clients)) if part is not None]
    return np.asarray(sum(parts), dtype=np.float32)


def report(data: Utterances, metrics: Metrics) -> Mapping[str, float]:
    """A client's scalars for the strategy: n_i and its mean training loss."""
    return {"examples": len(data), "loss": metrics["loss"]}
