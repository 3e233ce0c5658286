"""The optimisers of local training: SGD, Adam and AdamW steps of a flat model, and their settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from fedray.core.parameters import FlatModel
from fedray.core.ranges import Amount, Count, Natural, Positive, Ranged, one_of
from fedray.core.types import State
from fedray.training.large import StepSettings

Adjust = Callable[[Tensor, Tensor], object]  # changes the gradient in place: (gradient, weights), both [trainable]


@dataclass(frozen=True)
class ClientSettings(StepSettings):
    """Local training. The optimiser starts anew in each round: a cross-device client keeps no optimiser state."""

    lr: Positive = 0.1  # eta, the learning rate in the first round; `schedule` changes it
    batch: Count = 6  # utterances in a step
    epochs: Count = 1  # passes over the client's data in a round
    clip: Positive | None = 5.0  # largest Euclidean norm of a step's gradient; null: no clipping
    optimizer: str = one_of(("sgd", "adam"))  # sgd, without momentum | adam
    l2: Amount = 0.0  # adds l2 x the sum of the squared weights of convolutions to the loss (Keras' regulariser)


@dataclass(frozen=True)
class AdamWSettings(Ranged):
    """AdamW with a linear warm-up, then half a cosine down to zero."""

    lr: Positive = 3e-3  # the highest learning rate, reached after the warm-up
    warmup: Natural = 100  # steps of the linear rise from near 0
    batch: Count = 8  # utterances in a step
    weight_decay: Amount = 0.01  # decoupled from the gradient, as in AdamW
    clip: Positive | None = 5.0  # largest Euclidean norm of a step's gradient; null: no clipping

    def rate(self, done: int, steps: int) -> float:
        """The learning rate of the next step, after `done` of `steps` steps."""
        warm = min(1.0, (done + 1) / max(1, self.warmup))
        decay = max(0, done - self.warmup) / max(1, steps - self.warmup)
        return self.lr * warm * 0.5 * (1 + math.cos(math.pi * decay))


@dataclass(frozen=True)
class PretrainSettings(AdamWSettings):
    """Training of the seed model."""

    steps: Natural = 0  # on what the server has labelled; 0: no training, the initial weights are the seed model
    # Parts of a batch, of at least two utterances each, that different client actors compute. Worthwhile above a
    # million parameters.
    shards: Count = 1


class Optimizer(Protocol):
    """Changes the weights of a flat model in place."""

    def step(self) -> None:
        """Take one step with the gradient in `flat.gradient`, where `loss.backward()` leaves it."""


class ClientOptimizer:
    """SGD or a new Adam. A step adds the gradient of the L2 term, clips, calls `adjust`, and applies the result."""

    def __init__(self, flat: FlatModel, settings: ClientSettings, adjust: Adjust | None = None) -> None:
        self._flat, self._settings, self._adjust, self._lr = flat, settings, adjust, settings.lr
        self._adam = None
        if settings.optimizer == "adam":
            self._adam = torch.optim.Adam([_parameter(flat)], lr=settings.lr, fused=_fused(flat))
        self._l2 = _l2_slope(flat, settings.l2) if settings.l2 else None

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the following steps."""
        self._lr = lr
        if self._adam is not None:
            self._adam.param_groups[0]["lr"] = lr

    def step(self) -> None:
        """Take one step down the gradient; the rate is constant except for `set_rate`. ValueError: it is not finite."""
        weights, gradient = self._flat.weights, self._flat.gradient
        if self._l2 is not None:
            gradient.addcmul_(weights, self._l2)
        norm = clip_gradient(self._flat, self._settings.clip)
        if self._adjust is not None:
            new = self._adjust(gradient, weights)
            if isinstance(new, Tensor) and new.untyped_storage().data_ptr() != gradient.untyped_storage().data_ptr():
                raise TypeError("adjust returned a new tensor: change the gradient in place, as in gradient.add_(...)")
            norm = None
        check_gradient(gradient, norm)
        if self._adam is not None:
            self._adam.step()
        else:
            weights.add_(gradient, alpha=-self._lr)


class AdamW:
    """AdamW that can continue from an earlier pass."""

    def __init__(self, flat: FlatModel, settings: AdamWSettings, steps: int, moments: State) -> None:
        """`steps`: of all passes together. `moments`: from `moments()` of the earlier pass, {} in the first one."""
        self._flat, self._settings, self._steps, self._done = flat, settings, steps, int(moments.get("step", 0))
        weights, decay = [_parameter(flat)], settings.weight_decay
        self._adamw = torch.optim.AdamW(weights, lr=settings.lr, weight_decay=decay, fused=_fused(flat))
        if moments:
            # Copies, since torch changes its state in place.
            copies = {name: torch.as_tensor(value).clone() for name, value in moments.items()}
            groups = self._adamw.state_dict()["param_groups"]
            self._adamw.load_state_dict({"state": {0: copies}, "param_groups": groups})

    def step(self) -> None:
        """Take one step down the gradient, at the rate for the step's number. ValueError: it is not finite."""
        check_gradient(self._flat.gradient, clip_gradient(self._flat, self._settings.clip))
        self._adamw.param_groups[0]["lr"] = self._settings.rate(self._done, self._steps)
        self._adamw.step()
        self._done += 1

    def moments(self) -> dict[str, Tensor]:
        """Both moments and the number of steps, as a client's state."""
        state: dict[str, Tensor] = self._adamw.state_dict()["state"][0]
        return state


def clip_gradient(flat: FlatModel, largest: float | None) -> float | None:
    """Scale `flat.gradient` down to the Euclidean norm `largest` if its norm, which is returned, is larger."""
    if largest is None:
        return None
    norm = float(torch.linalg.vector_norm(flat.gradient))
    if norm > largest:
        flat.gradient.mul_(largest / norm)
    return norm


def check_gradient(gradient: Tensor, norm: float | None = None) -> None:
    """ValueError: a gradient holds NaN or infinite values, although its loss is finite. `norm`: its own, if known."""
    # A norm may be infinite because squares overflow: only then does each number have to be looked at.
    norm = float(torch.linalg.vector_norm(gradient)) if norm is None else norm
    if not math.isfinite(norm) and not bool(torch.isfinite(gradient).all()):
        raise ValueError(
            "the training loss is finite, but its gradient holds NaN or infinite values: lower the learning rate (lr), "
            "or look in the loss for a root, a norm or a division at zero"
        )


def _parameter(flat: FlatModel) -> torch.nn.Parameter:
    """All trainable weights as one parameter, for torch's optimisers."""
    parameter = torch.nn.Parameter(flat.weights)
    parameter.grad = flat.gradient
    return parameter


def _fused(flat: FlatModel) -> bool:
    """Whether torch has steps that take one pass over memory, without temporary vectors, on the model's device."""
    return flat.weights.device.type in ("cpu", "cuda")


def _l2_slope(flat: FlatModel, l2: float) -> Tensor:
    """The factor of each weight in the gradient of the L2 term, [trainable]: 2 l2 in convolutions, else 0."""
    slope = torch.zeros_like(flat.gradient)
    convolutions = {f"{name}.weight" for name, module in flat.model.named_modules() if isinstance(module, _ConvNd)}
    for entry in flat.layout.training.entries:
        if entry.name in convolutions:
            slope[entry.start : entry.stop] = 2 * l2
    return slope
