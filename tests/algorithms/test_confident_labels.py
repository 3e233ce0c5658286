"""FedNST with `confidence`: which labels a client trains on, and how many of them in which round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedray.training.pseudo_labels import ConfidenceSettings
from tests.algorithms.by_hand import arrived, client
from tests.algorithms.test_recognition_algorithms import ALIKE, build, labelled


def test_each_kept_utterance_has_its_own_label(folder: Path) -> None:
    """If only the labelled half is sure enough, FedNST's update is FedAvg's on that half, bit for bit."""
    for place in range(4):
        deltas = []
        for settings in ALIKE:
            algorithm, data, state = build(folder, data=labelled(folder, utterances=0.5), algorithm=settings)
            who, kept = client(data, place), None
            if settings["kind"] == "fednst":
                algorithm.settings = replace(algorithm.settings, confidence=ConfidenceSettings(0.01, 0.01))
                kept = algorithm.client_prepare(who, arrived(algorithm, state))
            deltas.append(algorithm.client_update(client(data, place, kept), arrived(algorithm, state)).delta)
        np.testing.assert_array_equal(deltas[0], deltas[1])


def test_the_share_of_labels_is_that_of_the_round(folder: Path) -> None:
    algorithm, data, state = build(folder)
    algorithm.settings = replace(algorithm.settings, confidence=ConfidenceSettings(0.25, 0.75))
    kept = algorithm.client_prepare(client(data), arrived(algorithm, state))
    counts = [
        algorithm.client_update(client(data, state=kept), arrived(algorithm, state, t)).report["examples"]
        for t in range(algorithm.rounds)
    ]
    assert counts == [1, 2, 3], "of four utterances"
