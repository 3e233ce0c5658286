"""Weights from a client's report alone: by examples, by loss, by word error rate, or uniform."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedray.core.ranges import Positive
from fedray.core.strategies.base import OnePass


@dataclass(frozen=True)
class ByExamples(OnePass):
    """w_i = n_i / n (McMahan et al., 2017)."""

    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def log_weight(self, report: Mapping[str, float]) -> float:
        return math.log(report["examples"]) if report["examples"] > 0 else -math.inf


@dataclass(frozen=True)
class Uniform(OnePass):
    """w_i = 1 / |S|: every client with examples has the same weight (SCAFFOLD; Karimireddy et al., ICML 2020)."""

    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def log_weight(self, report: Mapping[str, float]) -> float:
        return -math.inf if report.get("examples") == 0 else 0.0


@dataclass(frozen=True)
class ByLoss(OnePass):
    """w = softmax(-loss_i / temperature), loss_i the mean loss of local training (Gao et al., ICASSP 2022)."""

    temperature: Positive = 1.0  # temperature of the softmax; larger values make weights more equal
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def log_weight(self, report: Mapping[str, float]) -> float:
        if report.get("examples") == 0:  # without examples its loss is a mean of nothing
            return -math.inf
        return finite(-report["loss"] / self.temperature)


@dataclass(frozen=True)
class ByWer(OnePass):
    """w = softmax((1 - wer_i) / temperature), wer_i a fraction, on one central set (Gao et al., ICASSP 2022, eq. 6).

    The authors' code takes WER in percent, which is the same as temperature 0.01 here: a client whose WER is 5
    points lower then weighs 148 times as much. Their code counts a WER above 100 % as 100.
    """

    temperature: Positive = 1.0  # temperature of the softmax; larger values make weights more equal
    clip_norm: Positive | None = None  # largest Euclidean norm of an update; null: no clipping

    def log_weight(self, report: Mapping[str, float]) -> float:
        if report.get("examples") == 0:
            return -math.inf
        return finite((1.0 - report["wer"]) / self.temperature)


def finite(log_weight: float) -> float:
    """The log-weight, or NaN in place of an infinity: NaN fails the client, -inf would drop it without a record."""
    return log_weight if math.isfinite(log_weight) else math.nan
