"""Gradient inversion: the features whose gradient is most similar to an update.

    x ~ N(0, 1) / 10
    for each step:
        g <- grad_theta L(x, y; theta)
        x <- Adam(x, grad_x cos(g, -update))

The attacker knows theta, and of each utterance its target y and its length. Compiled loops and CTC have no second
derivatives, so the gradient of the match is a central difference (Dang, Thakkar, Ramaswamy, Mathews, Chin, Beaufays. A
Method to Reveal Speaker Identity in Distributed ASR Training, and How to Counter It. ICASSP 2022). With v = d cos / dg:

    grad_x cos = (grad_x L(x, y; theta + e v) - grad_x L(x, y; theta - e v)) / 2 e
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedray.core.types import Vector
from fedray.data.features.dataset import Batch
from fedray.models.norms import batch_norms, frozen_statistics
from fedray.training.task import Targets, Task

APART = 1e-3  # |e v| / |theta|
FIRST = 0.1  # standard deviation of the features at the start
LAST = 0.1  # the rate of the last step, relative to the first


@dataclass(frozen=True)
class Inverted:
    """Features, float32 [utterances, frames, bins], zeros behind each utterance's end; the cosine of their gradient."""

    features: Tensor
    match: float


def invert(
    task: Task, params: Vector, update: Vector, lengths: Tensor, targets: Targets, device: str, steps: int, rate: float
) -> Inverted:
    """Reconstruct the features of the utterances from which a client's update came.

    `params`: theta, [size]. `update`: the client's difference, whose first numbers are those of the trained parameters.
    `lengths`: frames of each utterance. `rate`: Adam's, of features with a standard deviation of about 1. The start is
    drawn from torch's global generator. RuntimeError: no frame has an influence on the gradient.
    """
    match = Match(task, params, update, lengths, targets, device)
    shape = len(lengths), int(lengths.max()), task.features.bins
    x = (FIRST * torch.randn(shape)).to(device).requires_grad_()
    adam = torch.optim.Adam([x], rate)
    falls = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps, LAST * rate)
    best = Inverted(match.inside(x.detach()), -math.inf)
    for _ in range(steps):
        value, x.grad = match.value_and_gradient(x.detach())
        if value > best.match:
            best = Inverted(match.inside(x.detach()), value)
        x.grad.neg_()
        adam.step()
        falls.step()
    return Inverted(best.features.cpu(), best.match)


class Match:
    """How similar the gradient of features is to an update: their cosine, over the numbers that were sent."""

    def __init__(
        self, task: Task, params: Vector, update: Vector, lengths: Tensor, targets: Targets, device: str
    ) -> None:
        self.task, self.targets, self.lengths = task, targets, lengths.to(device)
        self.flat = task.lend(device, holder=self)
        self.flat.load(params)
        self.flat.model.eval()  # dropout's masks are unknown
        for norm in batch_norms(self.flat.model).values():
            norm.train()
        wanted = -torch.from_numpy(update[: task.layout.trainable].copy()).to(device)
        self.sent = wanted != 0  # a sparse update says nothing of the others
        self.wanted = wanted / wanted.norm()
        frames = torch.arange(int(lengths.max()), device=device)
        self.frames = (frames < self.lengths[:, None])[..., None]

    def inside(self, x: Tensor) -> Tensor:
        """The features with zeros behind each utterance's end."""
        return x * self.frames

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """The cosine, and its gradient by the features."""
        weights = self.flat.weights
        self._gradient(x)
        # The numbers that travel come first among those that are trained.
        g = self.flat.gradient[: len(self.wanted)] * self.sent
        length = g.norm()
        if not length > 0:
            raise RuntimeError("no frame has an influence on the gradient")
        value = torch.dot(g, self.wanted) / length
        v = (self.wanted - value * g / length) / length
        e = APART * float(weights.norm() / v.norm().clamp(min=1e-30))
        before, sides = weights.clone(), list[Tensor]()
        for sign in (1, -1):
            weights.copy_(before)
            weights[: len(v)] += sign * e * v
            sides.append(self._gradient(x))
        weights.copy_(before)
        return float(value), (sides[0] - sides[1]) / (2 * e)

    def _gradient(self, x: Tensor) -> Tensor:
        """The loss's gradient by the features; that by the parameters is in `flat.gradient`."""
        x = self.inside(x).requires_grad_()
        batch = Batch(x, self.lengths, torch.arange(len(x)).numpy())
        with frozen_statistics(self.flat.model):
            self.flat.backward(self.task.loss(self.flat.model, batch, self.targets))
        assert x.grad is not None
        return x.grad * self.frames
