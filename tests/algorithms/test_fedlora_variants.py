"""FedLoRA's options on tones: parameters tuned whole, a separate rate for B, a rate that falls over the rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray.core.types import Change
from fedray.models.adapters import LoRASettings, adapt, pairs, rate_factors
from fedray.models.weights import load_weights
from tests.algorithms.by_hand import arrived, client
from tests.algorithms.test_fedlora import FEDLORA, build
from tests.models.test_adapters import conformer

WHOLE = {"rank": 2, "alpha": 8.0, "whole": ["bias$", "[Nn]orm"]}


def test_biases_and_norms_travel_whole(folder: Path, tmp_path: Path) -> None:
    algorithm, data, state = build(folder, lora=WHOLE)
    plain, _, _ = build(folder)
    layout = algorithm.task.layout
    trained = [entry.name for entry in layout.entries if entry.stop <= layout.trainable]
    others = {name.rpartition(".")[2] for name in trained} - {"a", "b"}
    assert others >= {"bias"} and algorithm.tuned > plain.tuned
    norms = [
        f"{place}.{name}"
        for place, module in algorithm.task.flat("cpu").model.named_modules()
        if "Norm" in type(module).__name__
        for name, _ in module.named_parameters(recurse=False)
    ]
    assert set(norms) <= set(trained) and any("ffn_module1.0.weight" in name for name in norms)
    assert all(name.endswith((".a", ".b", "bias")) or name in norms for name in trained)
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    bias = next(entry for entry in layout.entries if entry.name.endswith("bias"))
    assert update.delta.shape == (layout.trainable,) and update.delta[bias.start : bias.stop].any()
    after = algorithm.server_update(state, Change(update.delta), 0)
    algorithm.export(after, tmp_path)
    model = algorithm.backbone.model()
    load_weights(model, next(iter(tmp_path.glob("*.pt"))))
    found = model.state_dict()[bias.name]
    assert np.allclose(found.numpy().reshape(-1), after.params[bias.start : bias.stop]), "merged with the rest"


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="lora.whole: 'gamma' matches no parameter without an adapter; there are "):
        adapt(conformer(), LoRASettings(whole=["gamma"]))
    with pytest.raises(ValueError, match=r"lora.whole: '\*bias' is not a regular expression"):
        LoRASettings(whole=["*bias"])


def test_b_has_a_rate_of_its_own(folder: Path) -> None:
    """In its first step Adam moves each weight with a gradient by its rate; a factor of 8 moves B 8 times as far."""
    settings = {**FEDLORA["client"], "epochs": 1, "batch": 4, "warmup": 1, "clip": None}
    moved = {}
    for factor in (1.0, 8.0):
        algorithm, data, state = build(folder, client={**settings, "b_factor": factor})
        moved[factor] = algorithm.client_update(client(data), arrived(algorithm, state)).delta
    layout = algorithm.task.layout
    for pair in pairs(layout):
        assert np.allclose(moved[8.0][pair.b], 8 * moved[1.0][pair.b], rtol=1e-3, atol=1e-6)
        assert np.array_equal(moved[8.0][pair.a], moved[1.0][pair.a])
    factors = rate_factors(layout, 8.0)
    assert sorted(torch.unique(factors).tolist()) == [1.0, 8.0]


def test_the_cosine_ends_with_the_last_round(folder: Path) -> None:
    algorithm, data, state = build(folder, client={**FEDLORA["client"], "decay": "cosine", "warmup": 1})
    assert algorithm.paced_by() == "the decay of the learning rate"
    sizes, kept = [], None
    for round in range(3):
        update = algorithm.client_update(client(data, state=kept), arrived(algorithm, state, round))
        kept = update.state
        sizes.append(float(np.abs(update.delta).mean()))
    assert sizes[2] < sizes[1] / 2 < sizes[0]
    # For personal scores a client trains once more, at the rates of the last round.
    again = algorithm.client_update(client(data, state=kept), arrived(algorithm, state, 2))
    assert sizes[2] / 4 < float(np.abs(again.delta).mean()) < 4 * sizes[2]
    assert build(folder)[0].paced_by() is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"averaging": "product", "lora": WHOLE}, "averaging=product averages adapters alone"),
        ({"lora": {"rank": 0}, "client": {"b_factor": 2.0}}, "client.b_factor applies to adapters"),
    ],
)
def test_options_that_exclude_each_other(folder: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(folder, **changes)
