"""Weights from a client's own report: by examples, by loss, by word error rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedray.core.config import positive
from fedray.core.strategies.base import OnePass


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
        return finite(-report["loss"] / self.temperature)


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
        return finite((1.0 - report["wer"]) / self.temperature)


def finite(log_weight: float) -> float:
    """NaN, which the engine takes for a failure of the client, in place of an infinity, which would leave it out without a word."""
    return log_weight if math.isfinite(log_weight) else math.nan
