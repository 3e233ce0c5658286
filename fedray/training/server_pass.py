"""The server's own training: one pass of SGD over its labelled data, while the clients train or after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.ranges import Count, Positive, Ranged
from fedray.core.seeds import derive, numpy_generator
from fedray.core.types import Received, Server, ServerState, Update
from fedray.data.features.dataset import Utterances
from fedray.training.local import LocalModel, Loss
from fedray.training.optimizers import ClientSettings
from fedray.training.task import Task


@dataclass(frozen=True)
class ServerPassSettings(Ranged):
    """One epoch of SGD over the server's labelled data."""

    lr: Positive = 0.1  # eta_S, the learning rate
    batch: Count = 6  # utterances in a step
    utterances: Count | None = None  # utterances in a pass, drawn anew each round; null: all
    clip: Positive | None = 5.0  # largest Euclidean norm of a step's gradient; null: no clipping


def server_pass(
    task: Task,
    server: Server,
    received: Received,
    settings: ServerPassSettings,
    frozen: bool,
    factor: float,
    loss: Loss | None = None,
) -> Update:
    """Compute Delta_S by one epoch over the server's labelled data D_L, or over a part drawn anew each round.

    `frozen`: running statistics stay as they are. `factor`: of the learning rate, by its schedule. `loss`: in place of
    the task's.
    """
    data = labelled_data(server.data)
    if settings.utterances is not None and settings.utterances < len(data):
        chosen = numpy_generator(server.seed, "utterances").choice(len(data), settings.utterances, replace=False)
        data = data.take(np.sort(chosen))
    model = LocalModel(task, received.params, received.device, frozen)
    local = ClientSettings(lr=settings.lr * factor, batch=settings.batch, epochs=1, clip=settings.clip)
    metrics = model.fit(data, task.targets(data), local, derive(server.seed, "batches"), loss=loss)
    scores = metrics + Metrics(lr=(local.lr, 1), steps=(model.steps, 1))
    return Update(model.delta(), {"examples": len(data)}, scores)


def labelled_data(data: Utterances | None) -> Utterances:
    """The server's labelled data D_L. ValueError: it has none."""
    if data is None:
        raise ValueError(
            "algorithm.alpha above 0, or strategy.kind fltrust, trains on the server, which has no labelled data: set "
            "data.server, or neither"
        )
    return data


def after_pass(
    task: Task,
    server: Server,
    state: ServerState,
    settings: ServerPassSettings,
    frozen: bool,
    factor: float,
    loss: Loss | None = None,
) -> ServerState:
    """The server's state after a pass, for training that follows the aggregation. The arguments are `server_pass`'s."""
    received = Received(state.params, {}, server.round, server.assets, server.device)
    update = server_pass(task, server, received, settings, frozen, factor, loss)
    params = state.params.copy()
    # the delta has no frozen buffers, which follow the parameters
    params[: update.delta.size] += update.delta
    return ServerState(params, state.extra)
