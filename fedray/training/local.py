"""Training on one data set in one process: SGD or Adam for clients, SGD for the server's pass, AdamW for models that start from nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from fedray.core.config import positive
from fedray.core.metrics import Metrics
from fedray.core.parameters import FlatModel
from fedray.core.types import State
from fedray.data.dataset import Batch, Utterances, batches
from fedray.models.norms import frozen_statistics
from fedray.training.task import Task


@dataclass(frozen=True)
class LocalSettings:
    """SGD without momentum: a cross-device client keeps no optimiser state (FedNST, section 4)."""

    lr: float = 0.1
    batch: int = 6
    epochs: int = 1
    clip: float | None = 5.0  # largest Euclidean norm of a step's gradient

    def __post_init__(self) -> None:
        positive(lr=self.lr, batch=self.batch, epochs=self.epochs, clip=self.clip)


OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class ClientSettings(LocalSettings):
    """The same with a choice of the optimiser. It starts afresh in each round, so a client keeps no state of it either."""

    optimizer: str = "sgd"  # sgd | adam
    l2: float = 0.0  # the loss has l2 times the sum of the squares of the convolutions' weights besides (as Keras' regulariser)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer is {' or '.join(OPTIMIZERS)}, not {self.optimizer!r}")
        if self.l2 < 0:
            raise ValueError(f"l2 must not be below 0, not {self.l2}")


class Steps:
    """Steps of a flat model in place by its gradient: L2 added, clipped, then SGD or a fresh Adam."""

    def __init__(self, flat: FlatModel, settings: LocalSettings, lr: float) -> None:
        self.flat, self.clip, self.lr = flat, settings.clip, lr
        self._weights = flat.values[: flat.layout.trainable]
        self._adam: torch.optim.Adam | None = None
        self._slope: Tensor | None = None  # of the L2 term, for a weight of 1
        if isinstance(settings, ClientSettings):
            if settings.optimizer == "adam":
                parameter = torch.nn.Parameter(self._weights)
                parameter.grad = flat.gradient
                self._adam = torch.optim.Adam([parameter], lr=lr)
            if settings.l2:
                self._slope = torch.zeros_like(flat.gradient)
                convolutions = {f"{name}.weight" for name, module in flat.model.named_modules() if isinstance(module, _ConvNd)}
                for entry in flat.layout.entries:
                    if entry.name in convolutions:
                        self._slope[entry.start : entry.stop] = 2 * settings.l2

    def backward(self, loss: Tensor) -> float:
        """Leave the clipped gradient in `flat.gradient`; returns the loss, without the L2 term."""
        self.flat.gradient.zero_()
        loss.backward()
        value = finite(float(loss.detach()))
        if self._slope is not None:
            self.flat.gradient.addcmul_(self._weights, self._slope)
        clip_gradient(self.flat, self.clip)
        return value

    def step(self) -> None:
        if self._adam is not None:
            self._adam.step()
        else:
            self._weights.add_(self.flat.gradient, alpha=-self.lr)


@dataclass(frozen=True)
class AdamWSettings:
    """AdamW with linear warm-up, then half a cosine down to nothing."""

    lr: float = 3e-3
    warmup: int = 100  # steps
    batch: int = 8
    weight_decay: float = 0.01
    clip: float | None = 5.0

    def __post_init__(self) -> None:
        positive(lr=self.lr, batch=self.batch, clip=self.clip)
        if min(self.warmup, self.weight_decay) < 0:
            raise ValueError("warmup and weight_decay must not be below 0")

    def rate(self, done: int, steps: int) -> float:
        """The learning rate of the next of so many steps."""
        warm = min(1.0, (done + 1) / max(1, self.warmup))
        decay = max(0, done - self.warmup) / max(1, steps - self.warmup)
        return self.lr * warm * 0.5 * (1 + math.cos(math.pi * decay))

    def optimizer(self, flat: FlatModel) -> torch.optim.AdamW:
        parameter = torch.nn.Parameter(flat.values[: flat.layout.trainable])
        parameter.grad = flat.gradient
        return torch.optim.AdamW([parameter], lr=self.lr, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class PretrainSettings(AdamWSettings):
    steps: int = 2600  # 0: keep the initial weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 0:
            raise ValueError("steps must not be below 0")


@dataclass(frozen=True)
class WarmUpSettings(AdamWSettings):
    """Adam on a client that may remember: linear warm-up, then a constant rate."""

    lr: float = 1e-3
    warmup: int = 50
    weight_decay: float = 0.0
    epochs: int = 1
    keep: bool = True  # the client keeps moments and count between its rounds: a warm-up that starts again each round may never end

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(epochs=self.epochs)

    def rate(self, done: int, steps: int) -> float:
        return self.lr * min(1.0, (done + 1) / max(1, self.warmup))


def train(
    task: Task,
    data: Utterances,
    targets: Sequence[Any],
    settings: LocalSettings,
    lr: float,
    seed: int,
    frozen: bool,
    device: str,
    proximal: float = 0.0,
) -> Metrics:
    """Train the task's model in place on utterances with their targets, by position; returns the mean loss an utterance.

    `frozen`: batch norm keeps its running statistics; `proximal`: the weight mu of mu / 2 ||w - w_0||^2 (FedProx), w_0 the model as it is.
    Raises ValueError when the loss is no number any more.
    """
    flat = task.flat(device)
    generator = np.random.default_rng(seed)
    total, count = 0.0, 0
    weights = flat.values[: flat.layout.trainable]
    start = weights.clone() if proximal else None
    steps = Steps(flat, settings, lr)
    flat.model.train()
    with frozen_statistics(flat.model) if frozen else nullcontext():
        for _ in range(settings.epochs):
            for batch in batches(data, settings.batch, generator):
                loss = steps.backward(batch_loss(task, flat, batch, targets, device))
                if start is not None:
                    flat.gradient.add_(weights - start, alpha=proximal)
                steps.step()
                total += loss * len(batch)
                count += len(batch)
    return Metrics(loss=(total, count))


def step(task: Task, flat: FlatModel, batch: Batch, targets: Sequence[Any], clip: float | None, device: str) -> float:
    """One forward and backward pass: leaves the clipped gradient in `flat.gradient`, returns the loss."""
    flat.gradient.zero_()
    loss = batch_loss(task, flat, batch, targets, device)
    loss.backward()
    value = finite(float(loss.detach()))
    clip_gradient(flat, clip)
    return value


def batch_loss(task: Task, flat: FlatModel, batch: Batch, targets: Sequence[Any], device: str) -> Tensor:
    """The mean loss of an augmented batch, `targets` being those of all utterances."""
    chosen = targets[batch.positions] if isinstance(targets, np.ndarray) else [targets[i] for i in batch.positions]
    return task.loss(flat.model, task.augment(batch.to(device)), chosen)


def finite(loss: float) -> float:
    """The loss; ValueError when it is no number any more."""
    if not math.isfinite(loss):
        raise ValueError(f"the training loss is {loss}: lower the learning rate (lr), or clip gradients (clip)")
    return loss


def clip_gradient(flat: FlatModel, largest: float | None) -> None:
    """Scale `flat.gradient` down to this Euclidean norm where it is above."""
    if largest is not None:
        norm = float(torch.linalg.vector_norm(flat.gradient))
        if norm > largest:
            flat.gradient.mul_(largest / norm)


def pretrain(
    task: Task,
    data: Utterances,
    targets: Sequence[Any],
    settings: PretrainSettings,
    seed: int,
    device: str,
    progress: Callable[[int, int, str], None],
) -> None:
    """Train the task's model in place, from its weights as they are."""
    if not len(data):
        raise ValueError("there is no utterance to train the seed model on")
    flat = task.flat(device)
    optimizer = settings.optimizer(flat)
    generator = np.random.default_rng(seed)
    flat.model.train()
    done = 0
    while done < settings.steps:
        for batch in batches(data, settings.batch, generator):
            optimizer.param_groups[0]["lr"] = settings.rate(done, settings.steps)
            step(task, flat, batch, targets, settings.clip, device)
            optimizer.step()
            done += 1
            progress(done, settings.steps, "training the seed model")
            if done == settings.steps:
                break


def adamw(
    task: Task,
    data: Utterances,
    targets: Sequence[Any],
    settings: AdamWSettings,
    moments: State,
    steps: int,
    seed: int,
    frozen: bool,
    device: str,
) -> tuple[Metrics, State]:
    """One pass that may be one of many: trains as `train` does; returns the mean loss an utterance, and the moments for the next pass.

    `moments`: what the pass before returned, empty at first. `steps`: of all passes together; the rate has come down to nothing then.
    """
    flat = task.flat(device)
    optimizer = settings.optimizer(flat)
    if moments:
        copies = {name: torch.as_tensor(value).clone() for name, value in moments.items()}  # what came in stays as it is
        optimizer.load_state_dict({"state": {0: copies}, "param_groups": optimizer.state_dict()["param_groups"]})
    done, total = int(moments.get("step", 0)), 0.0
    flat.model.train()
    with frozen_statistics(flat.model) if frozen else nullcontext():
        for batch in batches(data, settings.batch, np.random.default_rng(seed)):
            optimizer.param_groups[0]["lr"] = settings.rate(done, steps)
            total += step(task, flat, batch, targets, settings.clip, device) * len(batch)
            optimizer.step()
            done += 1
    return Metrics(loss=(total, len(data))), optimizer.state_dict()["state"][0]
