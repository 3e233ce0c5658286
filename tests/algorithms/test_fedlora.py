"""FedLoRA on tones, without Ray: traffic, client states, and the merged recogniser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray import experiment
from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, ServerState
from fedray.data.federation.speech_data import SpeechData
from fedray.models.weights import load_weights
from fedray.runs.folder import RunFolder
from fedray.training.local import LocalModel
from tests import speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client

FEDLORA = {
    "kind": "fedlora",
    "lora": {"rank": 2, "alpha": 8.0},
    "client": {"lr": 0.01, "warmup": 4, "batch": 2, "epochs": 2},
    "pretrain": {"steps": 30, "warmup": 5, "batch": 4},
}


def build(folder: Path, **changes: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    return by_hand.build(speech.settings(folder, algorithm={**FEDLORA, **changes}))


def test_it_starts_as_the_seed_model(folder: Path) -> None:
    algorithm, data, state = build(folder)
    plain, _, seed = by_hand.build(
        speech.settings(folder, algorithm={"kind": "fedavg", "pretrain": FEDLORA["pretrain"]})
    )
    assert np.array_equal(algorithm.merged(state.params), seed.params)
    dev, assets = data.evaluation("dev"), algorithm.assets(data)
    adapted = algorithm.task.evaluate(state.params, dev, assets, "cpu", False).metrics
    assert adapted == plain.task.evaluate(seed.params, dev, assets, "cpu", False).metrics


def test_all_ranks_and_other_algorithms_share_a_seed_model(folder: Path, tmp_path: Path) -> None:
    def cache(**algorithm: Any) -> Path | None:
        config, source = experiment.load(speech.settings(folder, algorithm=algorithm))
        data, _ = experiment.build_data(config, source)
        return experiment.build_program(config, data, RunFolder(tmp_path).states, 0).init_cache

    plain = cache(kind="fedavg", pretrain=FEDLORA["pretrain"])
    assert plain is not None
    assert all(cache(**FEDLORA | {"lora": {"rank": rank}}) == plain for rank in (0, 2, 4))
    assert cache(**FEDLORA | {"pretrain": {"steps": 31}}) != plain


def test_adapters_alone_travel_and_the_model_once(folder: Path) -> None:
    algorithm, data, state = build(folder)
    layout = algorithm.task.flat("cpu").layout
    broadcast = algorithm.broadcast(state, 0)
    assert broadcast.constant == algorithm.backbone.flat("cpu").layout.size
    assert broadcast.params.size - broadcast.constant == layout.trainable
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    assert update.delta.shape == (layout.trainable,) and update.delta.any()
    after = algorithm.server_update(state, Change(update.delta), 0)
    assert np.array_equal(after.params[layout.trainable :], state.params[layout.trainable :]), "the model is frozen"
    assert np.allclose(after.params[: layout.trainable], state.params[: layout.trainable] + update.delta)


def test_the_client_keeps_its_optimiser_if_it_is_to(folder: Path) -> None:
    algorithm, data, state = build(folder)
    first = algorithm.client_update(client(data), arrived(algorithm, state))
    assert first.state["moments"]["step"] == 4, "two epochs of four utterances by two"
    second = algorithm.client_update(client(data, state=first.state), arrived(algorithm, state))
    assert second.state["moments"]["step"] == 8 and not np.array_equal(first.delta, second.delta)
    assert first.state["moments"]["step"] == 4, "what came in stays as it is"
    fresh, _, _ = build(folder, client={**FEDLORA["client"], "keep": False})
    assert fresh.client_update(client(data), arrived(fresh, state)).state is None


def test_each_epoch_has_an_order_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, data, state = build(folder)
    seeds, fit = [], LocalModel.fit_epoch
    monkeypatch.setattr(LocalModel, "fit_epoch", lambda *args: seeds.append(args[5]) or fit(*args))
    algorithm.client_update(client(data), arrived(algorithm, state))
    assert len(seeds) == len(set(seeds)) == 2


def test_the_same_bits_again(folder: Path) -> None:
    one, data, state = build(folder)
    by_hand.SEED_MODELS.clear()
    other, _, again = build(folder)
    assert np.array_equal(state.params, again.params)
    updates = [algorithm.client_update(client(data), arrived(algorithm, state)).delta for algorithm in (one, other)]
    assert np.array_equal(*updates)


def test_what_is_exported_is_the_merged_model(folder: Path, tmp_path: Path) -> None:
    algorithm, data, state = build(folder)
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    after = algorithm.server_update(state, Change(10 * update.delta), 0)
    algorithm.export(after, tmp_path)
    (weights,) = tmp_path.glob("*.pt")
    model = algorithm.backbone.model()
    load_weights(model, weights)
    batch = next(iter(speech_batches(data)))
    algorithm.task.flat("cpu").load(after.params)
    with torch.no_grad():
        expected, _ = algorithm.task.flat("cpu").model.eval()(batch.features, batch.lengths)
        found, _ = model.eval()(batch.features, batch.lengths)
    assert torch.allclose(found, expected, atol=1e-5)


def speech_batches(data: SpeechData) -> Any:
    from fedray.data.features.dataset import batches

    return batches(data.evaluation("dev"), 4, None)


def test_a_model_for_each_device(folder: Path) -> None:
    """The layout comes from a model on the CPU, and an actor on a GPU trains with the same layout."""
    algorithm, _, _ = build(folder)
    layout = algorithm.task.layout
    assert (
        algorithm.task.flat("cpu").values.device.type == "cpu"
        and algorithm.task.flat("meta").values.device.type == "meta"
    )
    assert algorithm.task.flat("cpu") is algorithm.task.flat("cpu") and algorithm.task.layout == layout
