"""Strategies: how much each client's update weighs. A strategy weighs, the engine sums."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedray.core.config import positive
from fedray.core.types import Vector


class Strategy(ABC):  # noqa: B024 - its kinds differ in what they are asked
    """The root of all strategies. `clip_norm` bounds each update's Euclidean norm before anything else sees it."""

    clip_norm: float | None = None

    def clip(self, delta: Vector) -> Vector:
        if self.clip_norm is None:
            return delta
        norm = math.sqrt(float(np.square(delta, dtype=np.float64).sum()))  # not by BLAS, whose bits depend on its threads
        return delta if norm <= self.clip_norm else delta * np.float32(self.clip_norm / norm)


class OnePass(Strategy):
    """Weights that follow from a client's own report: updates are folded at once and forgotten."""

    @abstractmethod
    def log_weight(self, report: Mapping[str, float]) -> float:
        """The natural logarithm of the client's weight; only ratios within a cohort matter. -inf leaves the client out."""


@dataclass(frozen=True)
class ByExamples(OnePass):
    """w_i = n_i / n (McMahan et al., 2017)."""

    clip_norm: float | None = None

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm)

    def log_weight(self, report: Mapping[str, float]) -> float:
        return math.log(report["examples"]) if report["examples"] > 0 else -math.inf


@dataclass(frozen=True)
class ByLoss(OnePass):
    """w = softmax(-loss_i / temperature), loss_i the mean loss of local training (Gao et al., ICASSP 2022)."""

    temperature: float = 1.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        positive(temperature=self.temperature, clip_norm=self.clip_norm)

    def log_weight(self, report: Mapping[str, float]) -> float:
        return -report["loss"] / self.temperature


@dataclass(frozen=True)
class ByWer(OnePass):
    """w = softmax((1 - wer_i) / temperature), wer_i a fraction on one central set (Gao et al., ICASSP 2022, equation 6).

    Their code takes percent, which is temperature 0.01 here: 5 points of WER then weigh 148 times, and the best client nearly takes all.
    """

    temperature: float = 1.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        positive(temperature=self.temperature, clip_norm=self.clip_norm)

    def log_weight(self, report: Mapping[str, float]) -> float:
        return (1.0 - report["wer"]) / self.temperature


STRATEGIES: dict[str, type[Strategy]] = {"by_examples": ByExamples, "by_loss": ByLoss, "by_wer": ByWer}
