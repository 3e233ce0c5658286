"""FedAvg on keywords, without Ray: golden losses, plain SGD, layers, accuracy after eight rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, Layer, ServerState
from fedray.data.features.dataset import batches
from fedray.data.federation.speech_data import SpeechData
from fedray.models import MODELS
from fedray.models.crnn import CRNNSettings
from tests import keywords
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client


@pytest.fixture
def folder(words: Path) -> Path:
    return words


def build(folder: Path, **changes: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    return by_hand.build(keywords.settings(folder, **changes))


# Golden losses, recorded when the test was written. A refactor must not change them; other CPUs round differently.
def test_golden_losses(folder: Path) -> None:
    algorithm, data, state = build(folder)
    received = arrived(algorithm, state)
    losses = [algorithm.client_update(client(data, position), received).report["loss"] for position in range(2)]
    assert losses == pytest.approx([1.285393, 1.354294], rel=1e-3)


def test_an_update_is_plain_sgd_on_the_same_batches(folder: Path) -> None:
    settings = {
        "kind": "fedavg",
        "client": {"lr": 0.1, "batch": 3, "epochs": 2, "clip": None},
        "pretrain": {"steps": 0},
    }
    algorithm, data, state = build(folder, algorithm=settings)
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    model = algorithm.task.model()
    model.load_state_dict(algorithm.task.flat("cpu").layout.cut(state.params))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    who = client(data)  # seeds dropout anew
    targets, generator = (
        torch.tensor([keywords.WORDS.index(label) for label in who.data.labels]),
        np.random.default_rng(who.seed),
    )
    total = 0.0
    for _ in range(2):
        for batch in batches(who.data, 3, generator):
            optimizer.zero_grad()
            loss = cross_entropy(model(batch.features, batch.lengths), targets[batch.positions])
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(batch)
    after = algorithm.task.flat("cpu").layout.join(model.state_dict())
    np.testing.assert_allclose(state.params + update.delta, after, rtol=1e-5, atol=1e-6)
    assert update.report == {"examples": 8, "loss": pytest.approx(total / 16, rel=1e-5)}


@pytest.mark.parametrize(("work", "steps"), [(1.0, 6), (0.5, 3), (0.4, 3), (0.01, 1)])
def test_a_client_takes_the_share_of_its_steps_that_it_has_time_for(folder: Path, work: float, steps: int) -> None:
    """Two epochs over eight clips in batches of three are 6 steps; the share of them is rounded up."""
    settings = {"kind": "fedavg", "client": {"batch": 3, "epochs": 2}, "pretrain": {"steps": 0}}
    algorithm, data, state = build(folder, algorithm=settings)
    update = algorithm.client_update(replace(client(data), work=work), arrived(algorithm, state))
    assert update.metrics["steps"] == steps


def test_the_best_round_is_the_most_accurate(folder: Path) -> None:
    algorithm, data, state = build(folder)
    assert algorithm.best == ("dev/accuracy", "max") and algorithm.assets(data) == {}
    assert "task.classes" in algorithm.init_depends


def test_it_learns(folder: Path) -> None:
    """Eight rounds of all six clients: accuracy on an unseen speaker rises from chance, 25 %, to at least 75 %."""
    algorithm, data, state = build(
        folder, algorithm={"kind": "fedavg", "client": {"lr": 0.2, "batch": 2}, "pretrain": {"steps": 0}}
    )
    dev = data.evaluation("dev")
    for round in range(8):
        received = arrived(algorithm, state, round)
        updates = [
            algorithm.client_update(client(data, position), received) for position in range(len(data.client_ids()))
        ]
        state = algorithm.server_update(state, Change(np.mean([update.delta for update in updates], axis=0)), round)
    assert algorithm.evaluate(dev, arrived(algorithm, state), False).metrics["accuracy"] >= 75.0


def test_a_layer_is_a_module(folder: Path) -> None:
    algorithm, _, state = build(folder)
    convolution, gru, out = 3 * 20 * 16 + 16, 3 * (32 * (16 + 32) + 2 * 32), 32 * 4 + 4
    ends = np.cumsum([0, convolution, gru, out]).tolist()
    assert algorithm.layers() == (
        Layer("conv.0", ends[0], ends[1]),
        Layer("rnn", ends[1], ends[2]),
        Layer("out", ends[2], ends[3]),
    )
    assert state.params.size == ends[3]


class Normed(nn.Module):
    """A classifier that ends in batch norm, whose buffers follow its parameters in the vector."""

    Settings = type("NormedSettings", (CRNNSettings,), {})

    def __init__(self, settings: Any, bins: int, classes: int) -> None:
        super().__init__()
        self.out, self.norm = nn.Linear(bins, classes), nn.BatchNorm1d(classes)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.norm(self.out(features.sum(1) / lengths[:, None]))


def test_a_layers_buffers_are_another_stretch_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "normed", Normed)
    algorithm, data, state = build(folder, model={"kind": "normed"})
    assert algorithm.layers() == (Layer("out", 0, 84), Layer("norm", 84, 92), Layer("norm", 92, 100))
    assert algorithm.client_update(client(data), arrived(algorithm, state)).delta.size == 100
