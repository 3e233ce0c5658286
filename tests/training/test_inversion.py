"""Gradient inversion: differences are second derivatives, and a sentence comes back from its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from fedray.core.privacy.likeness import correlation
from fedray.data.features.dataset import Batch, collate
from fedray.experiment import build_algorithm, build_data, load
from fedray.models import kernels
from fedray.training import inversion
from fedray.training.inversion import Match, invert
from fedray.training.local import LocalModel
from fedray.training.optimizers import ClientSettings
from fedray.training.task import Task
from tests import keywords, speech

Start = tuple[Task, np.ndarray, Any]


def started(settings: dict[str, Any]) -> Start:
    """A task, random parameters and the data of a client."""
    config, source = load(settings)
    data, _ = build_data(config, source)
    task: Task = build_algorithm(config, data).task  # type: ignore[attr-defined]
    torch.manual_seed(0)
    return task, task.initial(), data.load(data.client_ids()[0])


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    folder = tmp_path_factory.mktemp("keywords")
    keywords.write_corpus(folder, speakers=6, clips=4)
    features = {"sample_rate": 8000, "bins": 20, "normalise": "mean_variance"}
    model = {"kind": "crnn", "size": "tiny", "dropout": 0.0}
    return started(keywords.settings(folder, features=features, model=model))


def update(start: Start, positions: list[int]) -> tuple[np.ndarray, Batch, Any]:
    """What a client sends after a step on some utterances, these as a batch, and their targets."""
    task, params, data = start
    some = data.take(np.array(positions))
    model = LocalModel(task, params, "cpu")
    torch.manual_seed(1)
    model.fit(some, task.targets(some), ClientSettings(lr=0.01, batch=len(some)), 0)
    return model.delta(), collate(some, np.arange(len(some))), task.targets(some)


def test_the_gradient_of_the_match_is_that_of_second_derivatives(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "APART", 1e-4)  # so near that no kink lies between
    task, params, _ = start
    delta, batch, targets = update(start, [0, 1])
    match = Match(task, params, delta, batch.lengths, targets, "cpu")
    x = 0.1 * torch.randn(batch.features.shape, generator=torch.Generator().manual_seed(0))
    value, gradient = match.value_and_gradient(x)
    kernels.switch(False)
    try:
        inside = match.inside(x).requires_grad_()
        loss = task.loss(match.flat.model, Batch(inside, batch.lengths, batch.positions), targets)
        weights = [weight for weight in match.flat.model.parameters() if weight.requires_grad]
        parts = [part.flatten() for part in torch.autograd.grad(loss, weights, create_graph=True)]
        wanted = match.wanted.split(list(task.layout.tensors))
        expected = torch.stack([cosine_similarity(*pair, dim=0) for pair in zip(parts, wanted, strict=True)]).mean()
        (second,) = torch.autograd.grad(expected, inside)
    finally:
        kernels.switch(True)
    assert value == pytest.approx(float(expected.detach()), abs=1e-5)
    assert float((gradient - second).norm() / second.norm()) < 0.02
    assert np.array_equal(match.flat.read(), params)  # the weights are as they were


@pytest.mark.nightly
def test_a_sentence_comes_back_from_its_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "GRIDS", (2, 1))  # tones are in one bin, unlike voices
    speech.write_corpus(tmp_path)
    model = {"d_model": 64, "ffn": 128, "layers": 1, "kernel": 7, "dropout": 0.0}
    spoken = started(speech.settings(tmp_path, model=model))
    task, params, data = spoken
    delta, batch, targets = update(spoken, [1])
    torch.manual_seed(0)
    found = invert(task, params, delta, batch.lengths, targets, "cpu", 300, 0.3)
    made = found.features[0].numpy()
    likeness = [correlation(made, collate(data, np.array([place])).features[0].numpy()) for place in range(len(data))]
    assert found.match > 0.95 and int(np.argmax(likeness)) == 1 and likeness[1] > 0.3


def test_numbers_that_a_sparse_update_leaves_out_say_nothing(start: Start) -> None:
    task, params, _ = start
    delta, batch, targets = update(start, [0])
    sparse = np.where(np.abs(delta) >= np.quantile(np.abs(delta), 0.9), delta, 0).astype(np.float32)
    match = Match(task, params, sparse, batch.lengths, targets, "cpu")
    value, _ = match.value_and_gradient(batch.features)
    assert value == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(RuntimeError, match="no frame has an influence"):
        Match(task, params, np.zeros_like(delta), batch.lengths, targets, "cpu").value_and_gradient(batch.features)


def test_padding_stays_silent(start: Start) -> None:
    task, params, _ = start
    delta, batch, targets = update(start, [0, 1, 2])
    found = invert(task, params, delta, batch.lengths, targets, "cpu", 2, 0.1)
    for row, length in zip(found.features, batch.lengths.tolist(), strict=True):
        assert not row[length:].any()
