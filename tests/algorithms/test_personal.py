"""What stays with a client, by name, without Ray: FedAvg on keywords, with a personal part in the middle of a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, Client, ServerState
from fedray.data.federation.speech_data import SpeechData
from fedray.models import MODELS
from fedray.models.crnn import CRNNSettings
from fedray.training.personal import PART
from tests import keywords, speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client, personal

NORMED = {"kind": "normed"}
PATTERNS = ["first.*", "norm.running_*"]  # a linear layer, and running statistics without scale and shift


class Normed(nn.Module):
    """A classifier whose vector has parts of all kinds."""

    Settings = type("NormedSettings", (CRNNSettings,), {})

    def __init__(self, settings: Any, bins: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm, self.out = nn.Linear(bins, 6), nn.BatchNorm1d(6), nn.Linear(6, classes)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.first(features.sum(1) / lengths[:, None])))


@pytest.fixture(autouse=True)
def normed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "normed", Normed)


@pytest.fixture
def folder(words: Path) -> Path:
    return words


def build(folder: Path, patterns: list[str], **changes: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    algorithm = {"kind": "fedavg", "client": {"lr": 0.1, "batch": 3}, "pretrain": {"steps": 0}, "personal": patterns}
    model, final = changes.pop("model", NORMED), {"shards": 2, "personal_final": True}
    return by_hand.build(keywords.settings(folder, model=model, algorithm=algorithm | changes, evaluation=final))


def by_name(algorithm: Algorithm, params: Any) -> dict[str, torch.Tensor]:
    return algorithm.task.layout.cut(np.asarray(params))


def test_the_seed_model_is_the_same_whatever_is_personal(folder: Path) -> None:
    (mine, _, state), (plain, _, theta_0) = build(folder, PATTERNS), build(folder, [])
    one, other = by_name(mine, state.params), by_name(plain, theta_0.params)
    assert set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_only_the_shared_part_travels(folder: Path) -> None:
    algorithm, data, state = build(folder, PATTERNS)
    layout, broadcast = algorithm.task.layout, algorithm.broadcast(state, 0)
    scale, out = 6 + 6, 6 * 4 + 4
    assert layout.trainable == layout.moving == scale + out
    assert broadcast.constant == 20 * 6 + 6 + 2 * 6 and algorithm.sends(broadcast) == (scale + out,)
    assert algorithm.tensors() == (6, 6, 24, 4)
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    assert update.delta.size == scale + out and update.state is not None
    assert update.state[PART].size == broadcast.constant


def test_a_client_trains_what_it_receives_with_its_own_part(folder: Path) -> None:
    """Two rounds of a client with personal parts are those of a client alone that keeps everything."""
    (mine, data, state), (plain, _, theta_0) = build(folder, PATTERNS), build(folder, [])
    kept, first = None, state.params.copy()
    for round in range(2):
        update = mine.client_update(client(data, 0, kept), arrived(mine, state, round))
        state, kept = mine.server_update(state, Change(update.delta), round), update.state
        alone = plain.client_update(client(data), arrived(plain, theta_0, round))
        theta_0 = plain.server_update(theta_0, Change(alone.delta), round)
        assert update.report == alone.report
    assert kept is not None and PART in kept and set(kept) == {PART}
    layout = mine.task.layout
    np.testing.assert_array_equal(state.params[layout.personal], first[layout.personal])  # the server's stays theta_0's
    whole = state.params.copy()
    whole[layout.personal] = kept[PART]
    one, other = by_name(mine, whole), by_name(plain, theta_0.params)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-6, atol=1e-7)


def test_a_personal_model_is_the_shared_part_with_the_own_one(folder: Path) -> None:
    algorithm, data, state = build(folder, PATTERNS)
    received, dev, layout = arrived(algorithm, state), data.evaluation("dev"), algorithm.task.layout
    update = algorithm.client_update(client(data), received)
    assert update.state is not None
    whole = state.params.copy()
    for kept, part in ((None, whole[layout.personal]), (update.state, update.state[PART])):
        whole[layout.personal] = part
        found = personal(algorithm, Client("s00", client(data).data, 1, kept), received, {"dev": dev})
        assert found["dev"] == dict(algorithm.task.evaluate(whole, dev, {}, "cpu", False).metrics)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("ditto", {}),
        ("scaffold", {}),
        ("fedprox", {"mu": 0.5}),
        ("fedavg", {"client": {"lr": 0.01, "batch": 3, "optimizer": "adam"}}),
        ("fedavg", {"buffers": "frozen"}),
    ],
)
def test_a_federation_of_one_is_the_same_whatever_is_personal(folder: Path, kind: str, changes: dict[str, Any]) -> None:
    """With one client, what stays and what travels make the same steps."""
    losses, kept = [], []
    for patterns in ([], PATTERNS):
        algorithm, data, state = build(folder, patterns, kind=kind, **changes)
        own, found = None, []
        for round in range(3):
            update = algorithm.client_update(client(data, 0, own), arrived(algorithm, state, round))
            change = Change(update.delta, vectors=update.vectors, answered=1, population=1)
            state, own = algorithm.server_update(state, change, round), update.state
            found.append(update.metrics["loss"])
        losses.append(found)
        kept.append(set(own or {}))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][2] < losses[0][0]
    assert kept[1] == kept[0] | {PART}


def test_head_and_norms_are_names_for_layers_of_any_model(folder: Path, tones: Path) -> None:
    for alias, pattern in (("head", "out.*"), ("norms", "norm.*")):
        assert build(folder, [alias])[0].task.layout == build(folder, [pattern])[0].task.layout
    algorithm = {"kind": "fedavg", "personal": ["head", "norms"], "pretrain": {"steps": 1}}
    settings = speech.settings(tones, algorithm=algorithm, evaluation={"shards": 2, "personal_final": True})
    conformer = by_hand.build(settings)[0].task
    layout, norms = conformer.layout, conformer.norms()
    stay = [e.name for e in layout.entries if layout.personal.start <= e.start < layout.personal.stop]
    assert {name.rpartition(".")[0] for name in stay} == {"ctc_head.w", *norms}
    assert any("norm" not in name for name in norms)  # so that no pattern of names finds them all


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["frist.*"], r"'frist\.\*' matches no trained parameter or running .* of the model; near it: first\.\*"),
        (["head.*"], r"'head\.\*' matches .*; near it: head \(`fedray model` lists all\)"),
        (["nothing"], r"'nothing' matches .*; near it: head, norms, first\.\*, norm\.\*, out\.\*"),
        (["out.*", "OUT.bias"], r"'OUT\.bias' matches .*; near it: out\.bias"),
        (["*"], r"'\*' matches every trained parameter, .*: leave out one of first\.\*, norm\.\*, out\.\*"),
        (["[fno]*", "out.*"], r"'\[fno\]\*', 'out\.\*' match every trained parameter"),
    ],
)
def test_patterns_that_match_nothing_or_everything(folder: Path, patterns: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build(folder, patterns)


def test_adapters_may_be_personal(tones: Path) -> None:
    """FedLoRA averages A and keeps B with each client."""
    algorithm = {"kind": "fedlora", "lora": {"rank": 2}, "personal": ["*.b"], "pretrain": {"steps": 1}}
    settings = speech.settings(tones, algorithm=algorithm, evaluation={"shards": 2, "personal_final": True})
    lora, data, state = by_hand.build(settings)
    layout = lora.task.layout
    assert all(entry.name.endswith(".a") for entry in layout.entries if entry.start < layout.trainable)
    update = lora.client_update(client(data), arrived(lora, state, 0, data))
    assert update.delta.size == layout.trainable and update.state is not None
    assert set(update.state) == {"moments", PART} and update.state[PART].any()
    again = lora.client_update(replace(client(data), state=update.state), arrived(lora, state, 1, data))
    assert again.metrics["loss"] < update.metrics["loss"]
