"""Pseudo-labels: what a model says of speech that nobody has transcribed, and which of it to believe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedray.core.metrics import Metrics
from fedray.core.types import Received, State
from fedray.data.dataset import Utterances
from fedray.data.scoring import edit_counts
from fedray.training.recognition import Recognition


@dataclass(frozen=True)
class ConfidenceSettings:
    """Keep the share of a client's labels with the highest log-probability a frame: `keep` in the first round, evenly to `keep_last`."""

    keep: float = 1.0
    keep_last: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.keep <= 1 and 0 < self.keep_last <= 1):
            raise ValueError("keep and keep_last are shares above 0 and up to 1")

    def share(self, round: int, rounds: int) -> float:
        return self.keep + (self.keep_last - self.keep) * (round / max(1, rounds - 1))


def label(task: Recognition, data: Utterances, received: Received) -> dict[str, Any]:
    """PSEUDOLABEL (FedNST, algorithm 2): y = f(x; theta, phi) for every utterance, by the search of `task.decode`. A client state."""
    (hypotheses,) = task.transcribe(received.params, data, [task.search(received.assets)], received.device)
    return {
        "texts": [hypothesis.text for hypothesis in hypotheses],
        "confidence": np.array([hypothesis.confidence for hypothesis in hypotheses]),
        "round": received.round,
    }


def most_confident(labels: State, share: float) -> np.ndarray:
    """Positions, ascending, of the share of labels with the highest confidence; at least one."""
    confidence = labels["confidence"]
    count = max(1, round(share * len(confidence)))
    return np.sort(np.argsort(-confidence, kind="stable")[:count])


def quality(labels: Mapping[str, Any], data: Utterances) -> Metrics:
    """label_wer in percent, where a simulation knows the truth; algorithms do not use it."""
    pairs = [(truth, text) for truth, text in zip(data.texts, labels["texts"], strict=True) if truth]
    counts = edit_counts([truth for truth, _ in pairs], [text for _, text in pairs])
    return Metrics(label_wer=(100.0 * sum(c.errors for c in counts), sum(c.length for c in counts)))
