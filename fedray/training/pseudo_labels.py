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
    """PSEUDOLABEL (FedNST, algorithm 2): y = f(x; theta, phi), by the search of `task.decode`. A client state.

    Utterances that are labelled keep their transcripts, which are surer than any hypothesis; ValueError names one that has none.
    """
    unlabelled = data.unlabelled
    task.targets(data.take(np.setdiff1d(np.arange(len(data)), unlabelled)))  # only to refuse what cannot be trained on
    (hypotheses,) = task.transcribe(received.params, data.take(unlabelled), [task.search(received.assets)], received.device)
    texts, confidence = list(data.texts), np.full(len(data), np.inf)
    for position, hypothesis in zip(unlabelled, hypotheses, strict=True):
        texts[position], confidence[position] = hypothesis.text, hypothesis.confidence
    return {"texts": texts, "confidence": confidence, "round": received.round}


def most_confident(labels: State, share: float) -> np.ndarray:
    """Positions, ascending, of the share of labels with the highest confidence; at least one, and all transcripts."""
    confidence = labels["confidence"]
    count = max(1, np.isposinf(confidence).sum(), round(share * len(confidence)))
    return np.sort(np.argsort(-confidence, kind="stable")[:count])


def quality(labels: Mapping[str, Any], data: Utterances) -> Metrics:
    """label_wer of the pseudo-labels in percent, where a simulation knows the truth; algorithms do not use it. Of none: NaN."""
    pairs = [(data.texts[position], labels["texts"][position]) for position in data.unlabelled if data.texts[position]]
    counts = edit_counts([truth for truth, _ in pairs], [text for _, text in pairs])
    return Metrics(label_wer=(100.0 * sum(c.errors for c in counts), sum(c.length for c in counts)))
