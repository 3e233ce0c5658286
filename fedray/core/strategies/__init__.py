"""Strategies: how much each client's update weighs. A strategy weighs, the engine sums."""

from __future__ import annotations

from fedray.core.strategies.base import (
    Coordinatewise,
    Grouped,
    OnePass,
    Pairwise,
    Strategy,
    TwoPhase,
    Weights,
    squared_distances,
)
from fedray.core.strategies.fair import Agnostic, QFair
from fedray.core.strategies.layerwise import LayerwisePruning
from fedray.core.strategies.one_pass import ByExamples, ByLoss, ByWer, Uniform
from fedray.core.strategies.robust import CentredClipping, FLTrust, GeometricMedian, Krum, Median, TrimmedMean

STRATEGIES: dict[str, type[Strategy]] = {
    "by_examples": ByExamples,
    "by_loss": ByLoss,
    "by_wer": ByWer,
    "uniform": Uniform,
    "layerwise_pruning": LayerwisePruning,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "krum": Krum,
    "geometric_median": GeometricMedian,
    "centred_clipping": CentredClipping,
    "fltrust": FLTrust,
    "q_fair": QFair,
    "agnostic": Agnostic,
}

__all__ = [
    "STRATEGIES",
    "Agnostic",
    "ByExamples",
    "ByLoss",
    "ByWer",
    "CentredClipping",
    "Coordinatewise",
    "FLTrust",
    "GeometricMedian",
    "Grouped",
    "Krum",
    "LayerwisePruning",
    "Median",
    "OnePass",
    "Pairwise",
    "QFair",
    "Strategy",
    "TrimmedMean",
    "TwoPhase",
    "Uniform",
    "Weights",
    "squared_distances",
]
