"""The peak memory of a step: of operations with a known size, and predicted for batches that are then tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray.training.local import LocalModel
from fedray.training.optimizers import ClientSettings
from fedray.training.step_memory import peak_bytes, score_bytes, step_bytes
from tests.algorithms import by_hand
from tests.algorithms.test_encoder_algorithms import folder as folder
from tests.algorithms.test_encoder_algorithms import settings

MB = 1_000_000


def test_what_is_made_and_freed_is_counted() -> None:
    square = torch.zeros(500, 500)  # 1 MB, from before

    def work() -> None:
        first = square + 1  # 1 MB
        second = first * 2  # 1 MB
        del first
        (second + 1).sum()  # 1 MB
        second.add_(1)

    assert peak_bytes(work) in range(2 * MB, 2 * MB + 100)


def test_a_backward_pass_is_counted() -> None:
    weight = torch.zeros(500, 500, requires_grad=True)

    def work() -> None:
        hidden = (torch.zeros(500, 500) @ weight).relu()  # three matrices, of which the ReLU keeps its output
        hidden.sum().backward()

    assert 3 * MB <= peak_bytes(work) <= 6 * MB


@pytest.mark.parametrize(
    ("task", "how"),
    [
        ("recognition", {}),
        ("classification", {}),
        ("recognition", {"micro_batch": 2}),
        ("recognition", {"recompute": True}),
        ("recognition", {"precision": "bf16"}),
        ("recognition", {"micro_batch": 2, "recompute": True, "precision": "bf16"}),
    ],
)
def test_a_batch_is_predicted_from_shorter_ones(task: str, how: dict[str, Any], folder: Path, no_ray: None) -> None:
    algorithm, data, _ = by_hand.build(settings(folder, task={"kind": task}))
    mine, local = data.training()[-1], ClientSettings(lr=1e-3, batch=6, clip=None, **how)
    predicted = step_bytes(algorithm.task, mine, 6, local)
    batch = mine.take(np.array([int(mine.lengths.argmax())] * 6))
    model = LocalModel(algorithm.task, algorithm.task.initial(), "cpu")
    found = peak_bytes(lambda: model.fit(batch, algorithm.task.targets(batch), local, seed=0))
    assert 0.85 * found < predicted < 1.15 * found


@pytest.mark.parametrize("task", ["recognition", "classification"])
def test_scoring_is_predicted_from_shorter_utterances(task: str, folder: Path, no_ray: None) -> None:
    algorithm, data, _ = by_hand.build(settings(folder, task={"kind": task}))
    mine = data.training()[-1]
    batch = mine.take(np.array([int(mine.lengths.argmax())] * algorithm.task.scored_together))
    predicted, params = score_bytes(algorithm.task, batch), algorithm.task.initial()
    algorithm.task.losses(params, mine, "cpu")  # builds the model, which the prediction leaves out
    found = peak_bytes(lambda: algorithm.task.evaluate(params, batch, {}, "cpu", False))
    assert 0.85 * found < predicted < 1.15 * found
