"""Ditto on keywords, without Ray: golden losses, FedAvg's update, the personal model's steps by hand with SGD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedray.core.algorithm import Algorithm
from fedray.core.seeds import derive
from fedray.core.types import Client, ServerState
from fedray.data.features.dataset import batches
from fedray.data.federation.speech_data import SpeechData
from tests import keywords
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client, personal

LOCAL = {"lr": 0.1, "batch": 3, "epochs": 2, "clip": None}
MODEL = {"kind": "crnn", "size": "tiny", "dropout": 0.0}


@pytest.fixture
def folder(words: Path) -> Path:
    return words


def build(folder: Path, kind: str = "ditto", **changes: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    algorithm = {"kind": kind, "client": LOCAL, "pretrain": {"steps": 0}, **changes}
    return by_hand.build(keywords.settings(folder, model=MODEL, algorithm=algorithm))


# Golden losses, recorded when the test was written. A refactor must not change them; other CPUs round differently.
def test_golden_losses(folder: Path) -> None:
    algorithm, data, state = build(folder)
    updates = [algorithm.client_update(client(data, place), arrived(algorithm, state)) for place in range(2)]
    assert [update.report["loss"] for update in updates] == pytest.approx([0.998808, 1.146634], rel=1e-3)
    assert [update.metrics["personal_loss"] for update in updates] == pytest.approx([1.427419, 1.351942], rel=1e-3)


def test_what_travels_is_fedavgs_update(folder: Path) -> None:
    algorithm, data, state = build(folder)
    fedavg, _, other = build(folder, "fedavg")
    one = algorithm.client_update(client(data), arrived(algorithm, state))
    np.testing.assert_array_equal(one.delta, fedavg.client_update(client(data), arrived(fedavg, other)).delta)


@pytest.mark.parametrize("kept", [False, True])
def test_the_personal_model_is_pulled_towards_the_global_one(folder: Path, kept: bool) -> None:
    """Steps are v <- v - eta (grad F_i(v) + lambda (v - theta_t)), from the client's v or, at first, from theta_t."""
    algorithm, data, state = build(folder, pull=0.5, personal_epochs=1)
    start = state.params + np.float32(0.01) if kept else state.params
    who, layout = client(data, 0, {"v": start} if kept else None), algorithm.task.layout
    update = algorithm.client_update(who, arrived(algorithm, state))
    assert update.state is not None

    model = algorithm.task.model()
    model.load_state_dict(layout.cut(start))
    theta_t = layout.cut(state.params)
    targets = torch.tensor([keywords.WORDS.index(label) for label in who.data.labels])
    for batch in batches(who.data, 3, np.random.default_rng(derive(who.seed, "personal"))):
        model.zero_grad()
        cross_entropy(model(batch.features, batch.lengths), targets[batch.positions]).backward()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                assert weight.grad is not None
                weight -= 0.1 * (weight.grad + 0.5 * (weight - theta_t[name]))
    np.testing.assert_allclose(update.state["v"], layout.join(model.state_dict()), rtol=1e-4, atol=1e-5)


def test_personal_scores_are_the_personal_models(folder: Path) -> None:
    algorithm, data, state = build(folder)
    received, dev = arrived(algorithm, state), data.evaluation("dev")
    update = algorithm.client_update(client(data), received)
    assert update.state is not None
    found = personal(algorithm, Client("s00", client(data).data, 1, update.state), received, {"dev": dev})
    expected = algorithm.task.evaluate(update.state["v"], dev, {}, "cpu", False).metrics
    assert found["dev"] == dict(expected)


def test_what_does_not_fit(folder: Path) -> None:
    with pytest.raises(ValueError, match="algorithm.pull must be at least 0, not -1"):
        build(folder, pull=-1.0)
    with pytest.raises(ValueError, match="personal_epochs must be at least 1"):
        build(folder, personal_epochs=0)
