"""Strategies: how much each client's update weighs. A strategy weighs, the engine sums."""

from __future__ import annotations

from fedray.core.strategies.base import (
    Coordinatewise,
    OnePass,
    Pairwise,
    Strategy,
    TwoPhase,
    Weights,
    squared_distances,
)
from fedray.core.strategies.layerwise import LayerwisePruning
from fedray.core.strategies.one_pass import ByExamples, ByLoss, ByWer, Uniform
from fedray.core.strategies.robust import Krum, Median, TrimmedMean

STRATEGIES: dict[str, type[Strategy]] = {
    "by_examples": ByExamples,
    "by_loss": ByLoss,
    "by_wer": ByWer,
    "uniform": Uniform,
    "layerwise_pruning": LayerwisePruning,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "krum": Krum,
}

__all__ = [
    "STRATEGIES",
    "ByExamples",
    "ByLoss",
    "ByWer",
    "Coordinatewise",
    "Krum",
    "LayerwisePruning",
    "Median",
    "OnePass",
    "Pairwise",
    "Strategy",
    "TrimmedMean",
    "TwoPhase",
    "Uniform",
    "Weights",
    "squared_distances",
]
