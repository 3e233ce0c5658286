"""Pseudo-labels: a model's hypotheses for untranscribed speech, and which of them to train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedray.core.algorithm import Setup
from fedray.core.metrics import Metrics
from fedray.core.ranges import Ranged, SomeShare
from fedray.core.types import Received, State
from fedray.data.features.dataset import Utterances
from fedray.training.speech_to_text import SpeechToText
from fedray.training.translation import Translation


@dataclass(frozen=True)
class ConfidenceSettings(Ranged):
    """The share of a client's labels to train on: those with the highest log-probability per frame.

    The share changes linearly from `keep` in the first round to `keep_last` in the last one.
    """

    keep: SomeShare = 1.0  # share in the first round; 1: all labels
    keep_last: SomeShare = 1.0  # share in the last round

    def share(self, round: int, rounds: int) -> float:
        """The share of labels to keep in round `round` of `rounds`."""
        return self.keep + (self.keep_last - self.keep) * (round / max(1, rounds - 1))


def check_labels(setup: Setup, kind: str) -> None:
    """Raise ValueError when the task cannot make the labels that training needs."""
    if not issubclass(setup.task_class, SpeechToText):
        raise ValueError(
            f"algorithm.kind {kind} labels speech with its text, so it needs task.kind recognition or translation"
        )
    if issubclass(setup.task_class, Translation) and setup.task.ctc_weight:
        raise ValueError(
            f"algorithm.kind {kind} labels speech with translations, and CTC needs transcripts: set task.ctc_weight=0"
        )


def label(task: SpeechToText, data: Utterances, received: Received) -> dict[str, Any]:
    """PSEUDOLABEL (FedNST, algorithm 2): y = f(x; theta, phi), by the search of `task.decode`. Returns a client state.

    Labelled utterances keep their true texts, with infinite confidence. ValueError names a labelled utterance that
    training cannot use.
    """
    unlabelled = data.unlabelled
    task.targets(data.take(data.labelled_positions))  # for its errors only
    search = task.search(received.assets)
    (hypotheses,) = task.transcribe(received.params, data.take(unlabelled), [search], received.device)
    texts, confidence = task.texts(data), np.full(len(data), np.inf)
    for position, hypothesis in zip(unlabelled, hypotheses, strict=True):
        texts[position], confidence[position] = hypothesis.text, hypothesis.confidence
    return {"texts": texts, "confidence": confidence, "round": received.round}


def most_confident(labels: State, share: float) -> npt.NDArray[np.int64]:
    """The positions of the share of labels with the highest confidence, ascending.

    These include at least one position, and those of all transcripts.
    """
    confidence: npt.NDArray[np.float64] = labels["confidence"]
    count = max(1, np.isposinf(confidence).sum(), round(share * len(confidence)))
    return np.sort(np.argsort(-confidence, kind="stable")[:count])


def quality(task: SpeechToText, labels: Mapping[str, Any], data: Utterances) -> Metrics:
    """The scores of the pseudo-labels, NaN without any: `label_wer`, the word error rate in percent, or `label_bleu`.

    They serve the report only: they need the true texts, which a simulation may know.
    """
    truths = task.texts(data)
    pairs = [(truth, labels["texts"][position]) for position in data.unlabelled if (truth := truths[position])]
    return task.scores([truth for truth, _ in pairs], {task.score: [text for _, text in pairs]}).renamed("label_")
