"""Adam on a client that keeps its moments between rounds: a warm-up, then a constant or a falling rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedray.core.parameters import FlatModel
from fedray.core.ranges import Amount, Count, Natural, Positive, one_of
from fedray.core.types import State
from fedray.training.large import StepSettings
from fedray.training.optimizers import AdamW, AdamWSettings


@dataclass(frozen=True)
class WarmUpSettings(StepSettings, AdamWSettings):
    """Adam on a client, with its moments kept between rounds: a linear warm-up, then a constant or a falling rate."""

    lr: Positive = 1e-3  # the learning rate after the warm-up
    warmup: Natural = 50  # steps of the linear rise from near 0
    weight_decay: Amount = 0.0  # decoupled from the gradient, as in AdamW
    epochs: Count = 1  # passes over the client's data in a round
    keep: bool = True  # keep moments and step count between rounds; false: each round starts with a warm-up
    # After the warm-up: none | inverse_sqrt (lr sqrt(warmup / step); Vaswani et al., 2017) | cosine (half a cosine,
    # down to 0 at the last step of a client that takes part in every round).
    decay: str = one_of(("none", "inverse_sqrt", "cosine"))
    b_factor: Positive = 1.0  # ratio of the learning rate of the adapters' B to that of A (LoRA+)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay != "none" and not self.keep:
            raise ValueError(
                f"decay={self.decay} counts the steps of all rounds, which keep=false forgets: set keep=true"
            )

    def rate(self, done: int, steps: int) -> float:
        """The learning rate of the next step, after `done` of `steps` steps."""
        if self.decay == "cosine":
            return super().rate(min(done, steps), steps)
        rising = self.lr * min(1.0, (done + 1) / max(1, self.warmup))
        if self.decay == "inverse_sqrt":
            rising *= math.sqrt(min(1.0, max(1, self.warmup) / (done + 1)))
        return rising


class ScaledAdamW(AdamW):
    """AdamW with a learning-rate factor for each weight."""

    def __init__(
        self, flat: FlatModel, settings: AdamWSettings, steps: int, moments: State, factors: Tensor | None = None
    ) -> None:
        """`factors`: [trainable]; None: 1 for all."""
        super().__init__(flat, settings, steps, moments)
        self._factors = None if factors is None else factors.to(flat.weights.device) - 1

    def step(self) -> None:
        if self._factors is None:
            super().step()
            return
        before = self._flat.weights.clone()
        super().step()
        # The step of each weight is proportional to its rate, weight decay included.
        self._flat.weights.addcmul_(self._flat.weights - before, self._factors)


def no_later(moments: State, first: int) -> State:
    """Limit the step count of the moments to `first`, the count that the last round starts from.

    Personal scores train once more after the last round. That training repeats the last round's learning rates, since a
    cosine is at 0 by then.
    """
    late = bool(moments) and int(moments["step"]) > first
    return {**moments, "step": torch.full_like(torch.as_tensor(moments["step"]), first)} if late else moments
