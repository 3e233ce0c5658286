"""What of a model does not travel in its vector: buffers, and settings of the process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from fedray.core.metrics import Metrics
from fedray.core.types import Client, Update
from fedray.data.features.dataset import collate
from fedray.models import MODELS, kernels
from fedray.training import together
from fedray.training.local import LocalModel
from fedray.training.optimizers import ClientOptimizer, ClientSettings
from tests.gpu.federation import sections, task_of
from tests.gpu.toys import Size, federation

DATA = federation(Size(clients=2, utterances=4, equal=True))


@dataclass(frozen=True)
class Settings:
    init: str | None = None


class Buffered(nn.Module):
    """A classifier with a corpus' mean, and random features."""

    Settings = Settings

    def __init__(self, settings: Settings, bins: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(bins))
        self.register_buffer("random", torch.randn(bins))
        self.out = nn.Linear(bins, classes)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.out(((x - self.mean) * self.random).mean(1))


@pytest.fixture
def buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "buffered", Buffered)


def task(**model: Any) -> Any:
    model = {"kind": "crnn", "size": "tiny", "dropout": 0.0} | model
    return task_of(sections({"features": {"bins": 40}, "model": model, "task": {"kind": "classification"}}), DATA)


def of_buffers(**model: Any) -> Any:
    given = {"features": {"bins": 40}, "model": {"kind": "buffered", **model}, "task": {"kind": "classification"}}
    return task_of(sections(given), DATA)


def test_a_buffer_that_a_checkpoint_sets_is_refused(buffered: None, tmp_path: Path) -> None:
    """Actors build the model anew: they would compute with the constructor's value."""
    torch.manual_seed(0)
    trained = Buffered(Settings(), 40, of_buffers().outputs)
    trained.mean.fill_(3.0)
    torch.save(trained.state_dict(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"the checkpoint sets (mean|random) of Buffered, a buffer, .* nn.Parameter"):
        of_buffers(init=str(tmp_path / "model.pt")).initial()


def test_random_buffers_are_the_same_in_every_process(buffered: None) -> None:
    told = pickle.dumps(of_buffers())
    start, dev, found = of_buffers().initial(), DATA.evaluation("dev"), []
    for seed in (1, 2):
        torch.manual_seed(seed)  # whatever a process has drawn before it builds its first model
        found.append(pickle.loads(told).losses(start, dev, "cpu"))
    assert found[0] == found[1]


def test_actors_switch_kernels_as_the_run_says() -> None:
    given = {"features": {"bins": 40}, "model": {"kind": "crnn", "size": "tiny"}, "task": {"kind": "classification"}}
    made, before = task_of(sections(given), DATA), kernels.switched_on()
    try:
        made.kernels = not before
        pickle.loads(pickle.dumps(made))
        assert kernels.switched_on() is not before
    finally:
        kernels.switch(before)


@pytest.fixture
def models() -> Iterator[tuple[Any, Any, Any]]:
    made = task()
    torch.manual_seed(0)
    start = made.initial()
    torch.manual_seed(1)
    yield made, start, made.initial()


def test_a_loss_that_depends_on_another_model_leaves_no_gradient_there(models: tuple[Any, Any, Any]) -> None:
    made, start, other = models

    def update(client: Client) -> Update:
        one, two = LocalModel(made, start, "cpu"), LocalModel(made, other, "cpu")
        optimizers = [ClientOptimizer(model.flat, ClientSettings(lr=0.1, clip=None)) for model in (one, two)]
        batch, classes = collate(client.data, np.arange(4)), torch.from_numpy(np.asarray(made.targets(client.data)))
        with one.training(), two.training():
            mine, others = one.logits(batch), two.logits(batch)
            far = kl_div(log_softmax(mine, 1), log_softmax(others, 1), reduction="batchmean", log_target=True)
            one.descend(cross_entropy(mine, classes) + far, optimizers[0])
            two.descend(cross_entropy(two.logits(batch), classes), optimizers[1])
        return Update(np.concatenate([one.delta(), two.delta()]), {"examples": 1}, Metrics())

    clients = [Client(name, DATA.load(name), 7, None) for name in DATA.client_ids()]
    alone = [update(client).delta for client in clients]
    for one, found in zip(alone, together.train(iter(clients), 2, update), strict=True):
        assert isinstance(found, Update)
        np.testing.assert_allclose(found.delta, one, atol=1e-6)
