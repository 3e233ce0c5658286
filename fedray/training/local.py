"""Training of a task's model on one data set in one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedray.core.metrics import Metrics
from fedray.core.types import Vector
from fedray.data.features.dataset import Batch, Utterances, batches
from fedray.data.manifest import Rows
from fedray.models.norms import frozen_statistics
from fedray.training.large import StepSettings, micro_batches, stepping
from fedray.training.means import MeanLoss
from fedray.training.optimizers import AdamW, AdamWSettings, Adjust, ClientOptimizer, ClientSettings, Optimizer
from fedray.training.stack import Function, Row, answer
from fedray.training.task import Targets, Task, targets_at
from fedray.training.together import flat_model

NAMED = 6  # utterances of a batch that an error names
Anneal = Callable[[float], float]  # the mean loss of an epoch -> the learning rate of the next one
Loss = Callable[["LocalModel", Batch, Targets], Tensor]  # (model, augmented batch, its targets) -> the mean loss


class LocalModel:
    """theta_i: the task's model on this process' device, starting from theta_t.

    Each LocalModel has weights of its own: a client may train several models of one task.
    """

    def __init__(self, task: Task, start: Vector, device: str, frozen: bool = False, work: float = 1.0) -> None:
        """`start`: theta_t. `frozen`: `delta` leaves out the running statistics. `work`: the share of steps to take."""
        self.task, self.start, self.device, self.frozen, self.work = task, start, device, frozen, work
        self.flat = flat_model(task, device, frozen, holder=self)
        self.flat.load(start)
        self.steps = 0
        self._batch: tuple[Utterances, Rows] | None = None  # the newest: data and positions

    def time_left(self, steps: int) -> int:
        """The number of steps still to take, out of `steps` without a deadline; there is always time for one."""
        return max(1, math.ceil(self.work * steps)) - self.steps

    def params(self) -> Vector:
        """theta_i, [size], as a copy."""
        return self.flat.read()

    def own(self) -> Vector:
        """The personal part of theta_i, as a copy."""
        return self.params()[self.flat.layout.personal]

    def delta(self) -> Vector:
        """theta_i - theta_t of what travels: trainable parameters, and the running statistics unless `frozen`."""
        return self.flat.difference(self.start, buffers=not self.frozen)

    def training(self) -> AbstractContextManager[None]:
        """Switch to training mode, in which frozen running statistics stay as they are."""
        self.flat.model.train()
        if isinstance(self.flat, Row):
            return nullcontext()  # `Stack._mode` sets the mode for each batched call
        return frozen_statistics(self.flat.model) if self.frozen else nullcontext()

    def logits(self, batch: Batch) -> Tensor:
        """The model's outputs for a batch of features."""
        outputs: Tensor = self.flat.model(batch.features, batch.lengths)
        return outputs

    def call(self, function: Function, *tensors: Tensor) -> Any:
        """Call `function(model, *tensors)` with the weights of this model, for parts of it: an encoder, a hidden layer.

        The first tensors are the features [batch, time, ...] and their lengths [batch], all have the batch as first
        dimension, and the function returns a tensor or a tuple of tensors [batch, ...]. Define the function once,
        outside the client's code: then clients that train side by side share the call.
        """
        return answer(self.flat.model, function, *tensors)

    def teacher(self) -> Teacher:
        """A frozen copy of this model as it is now."""
        return Teacher(self.task, self.params(), self.device)

    def augmented(self, batch: Batch) -> Batch:
        """The batch with the task's masks, on the model's device. Masks are made on the CPU: many tiny operations."""
        return self.task.augment(batch).to(self.device)

    def descend(self, loss: Tensor, optimizer: Optimizer) -> float:
        """Take one step down the gradient of `loss`, and return the loss. ValueError when it is NaN or infinite."""
        with self._naming_the_batch():
            self.flat.backward(loss)
            value = finite(float(loss.detach()))
            optimizer.step()
        self.steps += 1
        return value

    def fit(
        self,
        data: Utterances,
        targets: Targets,
        settings: ClientSettings,
        seed: int,
        adjust: Adjust | None = None,
        anneal: Anneal | None = None,
        loss: Loss | None = None,
    ) -> Metrics:
        """Train for `settings.epochs` epochs. Returns `loss`, the mean over utterances, as `MeanLoss.metrics` does.

        `targets`: those of the utterances, by position. `loss` replaces the task's; it may call this model and others.
        `adjust` changes the gradient of each step after clipping, `anneal` the learning rate after each epoch that
        takes a step.
        """
        optimizer, generator = ClientOptimizer(self.flat, settings, adjust), np.random.default_rng(seed)
        before, steps = self.steps, settings.epochs * math.ceil(len(data) / settings.batch)
        unlearnable = self.task.unlearnable(data, targets)
        total = MeanLoss(unlearnable)
        with self.training(), self.stepping(settings):
            for _ in range(settings.epochs):
                if (left := before + self.time_left(steps)) <= 0:
                    break
                epoch = MeanLoss(unlearnable)
                for batch in islice(batches(data, settings.batch, generator), left):
                    value = self.step(data, batch, targets, optimizer, loss, settings.micro_batch)
                    total.add_batch(value, batch.positions)
                    epoch.add_batch(value, batch.positions)
                if anneal is not None:
                    optimizer.set_rate(anneal(epoch.value()))
        return total.metrics()

    def fit_epoch(
        self, data: Utterances, targets: Targets, settings: AdamWSettings, optimizer: AdamW, seed: int, epochs: int = 1
    ) -> Metrics:
        """Train one of `epochs` epochs, with an optimiser that the caller keeps. Returns `loss`, as `fit` does."""
        total, steps = MeanLoss(self.task.unlearnable(data, targets)), epochs * math.ceil(len(data) / settings.batch)
        large = settings if isinstance(settings, StepSettings) else StepSettings()
        with self.training(), self.stepping(large):
            epoch = batches(data, settings.batch, np.random.default_rng(seed))
            for batch in islice(epoch, self.time_left(steps)):
                value = self.step(data, batch, targets, optimizer, None, large.micro_batch)
                total.add_batch(value, batch.positions)
        return total.metrics()

    def step(
        self,
        data: Utterances,
        batch: Batch,
        targets: Targets,
        optimizer: Optimizer,
        loss: Loss | None = None,
        size: int | None = None,
    ) -> float:
        """Take one step on a batch of `data`, and return its mean loss (None: the task's loss).

        `size`: utterances of a micro-batch; None: all at once. ValueError when the loss is NaN or infinite.
        """
        self._batch, loss, value, more = (data, batch.positions), loss or LocalModel.task_loss, 0.0, False
        with self._naming_the_batch():
            for part in micro_batches(self.augmented(batch), size):
                of_part = loss(self, part, targets_at(targets, part.positions))
                if len(part) < len(batch):
                    of_part = of_part * (len(part) / len(batch))
                self.flat.backward(of_part, more)
                value, more = value + float(of_part.detach()), True
                del of_part  # its graph holds the inputs of recomputed layers
            finite(value)
            optimizer.step()
        self.steps += 1
        return value

    def stepping(self, settings: StepSettings) -> AbstractContextManager[None]:
        """Compute as these settings say while open. ValueError: clients train side by side, which they forbid."""
        if isinstance(self.flat, Row):
            if settings.alone:
                raise ValueError("micro_batch, recompute, precision and compile need engine.vectorise=never")
            return nullcontext()
        return stepping(self.flat.model, settings, self.device)

    @contextmanager
    def _naming_the_batch(self) -> Iterator[None]:
        """Add a note to an error: the step that raised it, and the utterances of its batch."""
        try:
            yield
        except Exception as error:
            if self._batch is not None:
                data, positions = self._batch
                names = [data.ids[position] for position in positions[:NAMED]]
                more = f" and {len(positions) - NAMED} more" if len(positions) > NAMED else ""
                error.add_note(f"in step {self.steps + 1} of its training, on {', '.join(names)}{more}")
            raise

    def task_loss(self, batch: Batch, targets: Targets) -> Tensor:
        """The task's mean loss of an augmented batch. `targets`: those of its utterances, in its order."""
        return self.task.loss(self.flat.model, batch, targets)


class Teacher(LocalModel):
    """A frozen model: it predicts in evaluation mode, without gradients, and is not trained."""

    def __init__(self, task: Task, params: Vector, device: str) -> None:
        super().__init__(task, params, device)
        self.flat.model.eval()

    def logits(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            return super().logits(batch)

    def call(self, function: Function, *tensors: Tensor) -> Any:
        with torch.no_grad():
            return super().call(function, *tensors)

    def descend(self, loss: Tensor, optimizer: Optimizer) -> float:
        """TypeError: a teacher is not trained."""
        raise TypeError("a Teacher is frozen: train a LocalModel")

    def stepping(self, settings: StepSettings) -> AbstractContextManager[None]:
        """TypeError: a teacher is not trained."""
        raise TypeError("a Teacher is frozen: train a LocalModel")


def finite(loss: float) -> float:
    """Return the loss. ValueError when it is NaN or infinite."""
    if not math.isfinite(loss):
        raise ValueError(f"the training loss is {loss}: lower the learning rate (lr), or clip gradients (clip)")
    return loss
