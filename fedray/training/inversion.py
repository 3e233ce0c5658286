"""Gradient inversion: the features whose gradient is most similar to an update.

    z ~ N(0, 0.3^2), on a grid of every 8th frame and bin
    for each grid (every 8th, 4th, 2nd frame and bin; from one to the next by interpolation):
        for each step:
            x <- interpolated z
            g <- grad_theta L(x, y; theta)
            z <- Adam(z, grad_z C)              # C: the mean over tensors of cos(g, -update)

From coarse to fine [ours]: from noise on the full grid the search ends in one of many features with nearly the same
gradient. The attacker knows theta, and of each utterance its target y and its length.

Compiled loops and CTC have no second derivatives, so the gradient of C is a central difference (Dang, Thakkar,
Ramaswamy, Mathews, Chin, Beaufays. A Method to Reveal Speaker Identity in Distributed ASR Training, and How to Counter
It. ICASSP 2022). With v = dC / dg:

    grad_x C = (grad_x L(x, y; theta + e v) - grad_x L(x, y; theta - e v)) / 2 e
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fedray.core.privacy.likeness import Features, Reconstruction, in_order
from fedray.core.types import Received, Vector
from fedray.data.features.dataset import Batch, Utterances, collate
from fedray.models.norms import batch_norms, frozen_statistics
from fedray.training.task import Targets, Task

APART = 0.02  # |e v| / |theta|; with less, kinks of ReLU and pooling give rare but large differences
GRIDS = (8, 4, 2)  # frames and bins from one point to the next
FIRST = 0.3  # standard deviation of the features at the start
ROUNDING = 1e-5  # of the longest tensor's gradient; shorter ones are rounding errors
LAST = 0.1  # the rate of a grid's last step, relative to its first


@dataclass(frozen=True)
class Inverted:
    """Features, float32 [utterances, frames, bins], zeros behind each utterance's end; C at the end."""

    features: Tensor
    match: float


def reconstruct(
    task: Task, data: Utterances, update: Vector, received: Received, steps: int, rate: float
) -> list[Reconstruction]:
    """Reconstruct the utterances of a client that trained on nothing else; see `invert`."""
    batch, targets = collate(data, np.arange(len(data))), task.targets(data)
    found = invert(task, received.params, update, batch.lengths, targets, received.device, steps, rate)
    true, made = _cut(batch.features, batch.lengths), _cut(found.features, batch.lengths)
    words = [str(word) for word in data.column(task.column(task.settings))]
    return [
        Reconstruction(*one, match=found.match)
        for one in zip(data.ids, words, true, in_order(made, true, words), strict=True)
    ]


def _cut(features: Tensor, lengths: Tensor) -> list[Features]:
    return [row[:length].numpy() for row, length in zip(features, lengths.tolist(), strict=True)]


def invert(
    task: Task, params: Vector, update: Vector, lengths: Tensor, targets: Targets, device: str, steps: int, rate: float
) -> Inverted:
    """Reconstruct the features of the utterances from which a client's update came.

    `params`: theta, [size]. `update`: the client's difference, whose first numbers are those of the trained parameters.
    `lengths`: frames of each utterance. `steps`: on all grids together. `rate`: Adam's. The start is drawn from torch's
    global generator. RuntimeError: no frame has an influence on the update.
    """
    match = Match(task, params, update, lengths, targets, device)
    shape = int(lengths.max()), task.features.bins
    x, value = FIRST * torch.randn(len(lengths), *shape).to(device), 0.0
    for apart in GRIDS:
        grid = [max(2, -(-size // apart)) for size in shape]
        z = interpolate(x[:, None], grid, mode="area").requires_grad_()
        adam, count = torch.optim.Adam([z], rate), -(-steps // len(GRIDS))
        falls = torch.optim.lr_scheduler.CosineAnnealingLR(adam, count, LAST * rate)
        for _ in range(count):
            x = interpolate(z, shape, mode="bilinear", align_corners=True)[:, 0]
            value, gradient = match.value_and_gradient(x.detach())
            (z.grad,) = torch.autograd.grad(x, z, -gradient)
            adam.step()
            falls.step()
        x = interpolate(z.detach(), shape, mode="bilinear", align_corners=True)[:, 0]
    return Inverted(match.inside(x).cpu(), value)


class Match:
    """How similar the gradient of features is to an update: the mean of the tensors' cosines, of what was sent."""

    def __init__(
        self, task: Task, params: Vector, update: Vector, lengths: Tensor, targets: Targets, device: str
    ) -> None:
        self.task, self.targets, self.lengths = task, targets, lengths.to(device)
        self.flat = task.lend(device, holder=self)
        self.flat.load(params)
        self.flat.model.eval()  # dropout's masks are unknown
        for norm in batch_norms(self.flat.model).values():
            norm.train()
        self.sizes = list(task.layout.tensors)
        self.wanted = -torch.from_numpy(update[: task.layout.trainable].copy()).to(device)  # each tensor of length 1
        parts = torch.split(self.wanted, self.sizes)
        lengths_of = [float(part.norm()) for part in parts]
        self.told = 0  # tensors of which something was sent
        for part, length in zip(parts, lengths_of, strict=True):
            if length > ROUNDING * max(lengths_of):
                part /= length
                self.told += 1
            else:  # such as the bias of attention's keys, which changes nothing
                part.zero_()
        self.sent = self.wanted != 0  # a sparse update says nothing of the others
        frames = torch.arange(int(lengths.max()), device=device)
        self.frames = (frames < self.lengths[:, None])[..., None]

    def inside(self, x: Tensor) -> Tensor:
        """The features with zeros behind each utterance's end."""
        return x * self.frames

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """The mean cosine, and its gradient by the features. RuntimeError: no update was sent, or nothing moves it."""
        weights = self.flat.weights
        self._gradient(x)
        # The numbers that travel come first among those that are trained.
        g = self.flat.gradient[: len(self.wanted)] * self.sent
        value, v = self._cosines(g)
        e = APART * float(weights.norm() / v.norm().clamp(min=1e-30))
        before, sides = weights.clone(), list[Tensor]()
        for sign in (1, -1):
            weights.copy_(before)
            weights[: len(v)] += sign * e * v
            sides.append(self._gradient(x))
        weights.copy_(before)
        return value, (sides[0] - sides[1]) / (2 * e)

    def _cosines(self, g: Tensor) -> tuple[float, Tensor]:
        """The mean cosine of gradient and update over the tensors, and its derivative by the gradient."""
        total, v = 0.0, torch.zeros_like(g)
        for own, wanted, slope in zip(*(torch.split(one, self.sizes) for one in (g, self.wanted, v)), strict=True):
            if (length := float(own.norm())) > 0:  # 0 where nothing was sent, too
                cosine = float(torch.dot(own, wanted)) / length
                slope.copy_((wanted - cosine * own / length) / length)
                total += cosine
        if not self.told or not v.any():
            raise RuntimeError("no update was sent, or no frame has an influence on it")
        return total / self.told, v / self.told

    def _gradient(self, x: Tensor) -> Tensor:
        """The loss's gradient by the features; that by the parameters is in `flat.gradient`."""
        x = self.inside(x).requires_grad_()
        batch = Batch(x, self.lengths, np.arange(len(x)))
        with frozen_statistics(self.flat.model):
            self.flat.backward(self.task.loss(self.flat.model, batch, self.targets))
        assert x.grad is not None
        return x.grad * self.frames
