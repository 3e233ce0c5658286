"""The seed model: training on the server's labelled data before the first round."""

from __future__ import annotations

import numpy as np

from fedray.core.seeds import seed_all
from fedray.core.types import Server, ServerState
from fedray.training.local import AdamW, LocalModel, PretrainSettings
from fedray.training.task import Task


def seed_model(task: Task, server: Server, settings: PretrainSettings) -> ServerState:
    """theta_0: initial weights (drawn at random, or from `model.init`), trained on the server's labelled data."""
    seed_all(server.seed, "weights")
    initial = task.initial()
    if not settings.steps:
        return ServerState(initial)
    if server.data is None:
        raise ValueError(
            "the server has no labelled data to train a seed model on: set data.server, or algorithm.pretrain.steps=0"
        )
    if not len(server.data):
        raise ValueError("there is no utterance to train the seed model on")
    model, targets = LocalModel(task, initial, server.device), task.targets(server.data)
    optimizer, generator = AdamW(model.flat, settings, settings.steps, {}), np.random.default_rng(server.seed)
    with model.training():
        while model.steps < settings.steps:
            for _, loss in model.losses(server.data, targets, settings.batch, generator):
                model.descend(loss, optimizer)
                server.progress(model.steps, settings.steps, "training the seed model")
                if model.steps == settings.steps:
                    break
    return ServerState(model.params())
