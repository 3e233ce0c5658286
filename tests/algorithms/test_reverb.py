"""REVERB-FL on keywords, without Ray: the loss of moved features by hand, and the pass after the aggregation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedray.algorithms.reverb import Reverb
from fedray.core.seeds import seed_all
from fedray.core.types import Received, Server
from fedray.data.features.dataset import collate
from fedray.training.local import LocalModel
from fedray.training.server_pass import server_pass
from tests import keywords
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client

MODEL = {"kind": "crnn", "size": "tiny", "dropout": 0.0}


def build(folder: Path, **changes: Any) -> Any:
    own = {"kind": "reverb", "client": {"lr": 0.1, "batch": 3}, "pretrain": {"steps": 0}, **changes}
    settings = keywords.settings(folder, model=MODEL, algorithm=own)
    settings["data"]["server"] = {"share": 0.3}
    return by_hand.build(settings)


@pytest.fixture
def folder(words: Path) -> Path:
    return words


def test_the_loss_of_moved_features_by_hand(folder: Path) -> None:
    algorithm, data, state = build(folder, radius=0.3)
    assert isinstance(algorithm, Reverb)
    local = LocalModel(algorithm.task, state.params, "cpu", frozen=True)
    batch = collate(data.server(), np.arange(4))
    targets = algorithm.task.targets(data.server())[:4]
    found = algorithm.moved_loss(local, batch, targets)

    def loss(features: torch.Tensor) -> torch.Tensor:
        return cross_entropy(local.flat.model(features, batch.lengths), torch.from_numpy(targets))

    features = batch.features.clone().requires_grad_()
    loss(features).backward()
    assert features.grad is not None
    moved = batch.features + 0.3 * features.grad.sign()
    clean, adverse = float(loss(batch.features).detach()), float(loss(moved).detach())
    assert adverse > clean and float(found.detach()) == pytest.approx((clean + adverse) / 2, rel=1e-5)


def test_the_server_trains_after_the_aggregation(folder: Path) -> None:
    states = []
    for radius in (0.0, 0.3):
        algorithm, data, state = build(folder, radius=radius)
        update = algorithm.client_update(client(data), arrived(algorithm, state, data=data))
        assert np.any(update.delta) and data.server() is not None
        seed_all(5)
        states.append(algorithm.server_finish(Server(data.server(), None, 5), state).params)
        if not radius:
            seed_all(5)
            received, settings = Received(state.params, {}, 0), algorithm.settings.server
            plain = server_pass(algorithm.task, Server(data.server(), None, 5), received, settings, False, 1.0)
            assert np.array_equal(states[0], state.params + plain.delta)
    assert not np.array_equal(*states)


def test_a_reserve_set_is_needed(folder: Path) -> None:
    algorithm, data, _ = build(folder)
    with pytest.raises(ValueError, match=r"a reserve set of the server: set data\.server"):
        algorithm.check(replace_server(data))


def replace_server(data: Any) -> Any:
    data._server = None
    return data
