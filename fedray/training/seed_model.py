"""The seed model: AdamW on the server's labelled data, with each batch in shards that any process may compute.

The shards depend on the configuration alone, and a shard's random numbers on the seed, its step and its number, so the
number of processes changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedray.core.seeds import numpy_generator, seed_all
from fedray.core.types import Server, ServerState, Vector
from fedray.data.features.dataset import Utterances, collate, shuffled_groups
from fedray.data.manifest import Rows
from fedray.training.local import LocalModel, finite
from fedray.training.optimizers import AdamW, PretrainSettings
from fedray.training.task import Targets, Task, targets_at


@dataclass(frozen=True)
class Shard:
    """A part of a step's batch: utterances of similar lengths."""

    step: int
    number: int  # within the batch
    positions: Rows  # int64 [utterances], in the server's data
    targets: Targets  # of these utterances


@dataclass(frozen=True)
class Gradient:
    """The gradient of a shard's mean loss, followed by the running statistics of batch norm after the shard."""

    vector: Vector  # [layout.moving]
    loss: float


def seed_model(task: Task, server: Server, settings: PretrainSettings) -> ServerState:
    """theta_0: initial weights (drawn at random, or from `model.init`), trained on the server's labelled data.

    `server.spread` lets any actor compute the shards; without it they are computed here. What is personal changes only
    the order of the result.
    """
    trained = _seed_model(task.plain, server, settings)
    if task.plain is task:
        return ServerState(trained)
    return ServerState(task.layout.join(task.plain.layout.cut(trained)))


def _seed_model(task: Task, server: Server, settings: PretrainSettings) -> Vector:
    """The parameters of theta_0, of a task with nothing personal."""
    seed_all(server.seed, "weights")
    params = task.initial()
    if not settings.steps:
        return params
    if server.data is None:
        raise ValueError(
            "the server has no labelled data to train a seed model on: set data.server, or algorithm.pretrain.steps=0"
        )
    if not len(server.data):
        raise ValueError("there is no utterance to train the seed model on")

    def here(params: Vector, shards: Sequence[Shard]) -> list[Gradient]:
        return [shard_gradient(task, server, params, shard) for shard in shards]

    spread, targets = server.spread or here, task.targets(server.data)
    flat = LocalModel(task, params, server.device).flat
    optimizer = AdamW(flat, settings, settings.steps, {})
    for step, batch in enumerate(batches_of(server.data, settings, server.seed)):
        shards = cut(step, batch, server.data, targets, settings.shards)
        mean = torch.from_numpy(mean_gradient(shards, spread(params, shards)))
        flat.gradient.copy_(mean[: flat.layout.trainable])
        flat.values[flat.layout.trainable : flat.layout.moving] = mean[flat.layout.trainable :]
        optimizer.step()
        params = flat.read()
        server.progress(step + 1, settings.steps, "training the seed model")
    return params


def batches_of(data: Utterances, settings: PretrainSettings, seed: int) -> Iterator[Rows]:
    """Yield the positions of each step's batch, epoch after epoch."""
    done = epoch = 0
    while done < settings.steps:
        groups = shuffled_groups(data.lengths, settings.batch, numpy_generator(seed, "epoch", epoch))
        yield from groups[: settings.steps - done]
        done, epoch = done + len(groups), epoch + 1


def cut(step: int, batch: Rows, data: Utterances, targets: Targets, count: int) -> list[Shard]:
    """Sort a batch by length and cut it into `count` shards, or fewer if a shard would have a single utterance."""
    by_length = batch[np.argsort(data.lengths[batch], kind="stable")]
    parts = np.array_split(by_length, max(1, min(count, len(batch) // 2)))
    return [Shard(step, number, part, targets_at(targets, part)) for number, part in enumerate(parts)]


def shard_gradient(task: Task, server: Server, params: Vector, shard: Shard) -> Gradient:
    """The gradient of a shard at `params`. It depends on the arguments alone, whichever process computes it."""
    seed_all(server.seed, "shard", shard.step, shard.number)
    task = task.plain
    model = LocalModel(task, params, server.device)
    flat = model.flat
    with model.training():
        batch = model.augmented(collate(server.data, shard.positions))
        loss = task.loss(flat.model, batch, shard.targets)
        flat.backward(loss)
    statistics = flat.values[flat.layout.trainable : flat.layout.moving]
    return Gradient(torch.cat([flat.gradient, statistics.detach()]).cpu().numpy(), float(loss.detach()))


def mean_gradient(shards: Sequence[Shard], gradients: Sequence[Gradient]) -> Vector:
    """The mean over the batch's utterances, summed in the shards' order. ValueError: a loss is NaN or infinite."""
    size = sum(len(shard.positions) for shard in shards)
    mean = np.zeros_like(gradients[0].vector)
    for shard, gradient in zip(shards, gradients, strict=True):
        finite(gradient.loss)
        mean += np.float32(len(shard.positions) / size) * gradient.vector
    return mean
