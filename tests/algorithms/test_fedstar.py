"""FedSTAR and its supervised baseline on keywords, without Ray: golden losses, steps by hand, missing labels."""

from __future__ import annotations

import itertools
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, softmax

from fedray.algorithms.fedstar import ThresholdSettings, paired_batches, pseudo_labels, pseudo_loss
from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, Client, ServerState
from fedray.data.features.dataset import Utterances, batches, collate
from fedray.data.federation.speech_data import SpeechData
from fedray.training.optimizers import ClientSettings
from tests import keywords, speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client

LOCAL = {"lr": 0.01, "batch": 3, "epochs": 2, "clip": None, "optimizer": "adam", "l2": 0.02}
SUPERVISED = {"kind": "fedavg", "labelled_only": True, "client": LOCAL, "pretrain": {"steps": 0}}


@pytest.fixture
def folder(words: Path) -> Path:
    return words


def build(
    folder: Path, algorithm: dict[str, Any] | None = None, labelled: Any = None, model: Any = None, **changes: Any
) -> tuple[Algorithm, SpeechData, ServerState]:
    """FedSTAR with six clients of eight clips, of which three are labelled unless `labelled` says otherwise."""
    settings = keywords.settings(folder, model=model or {"kind": "crnn", "size": "tiny", "dropout": 0.0}, **changes)
    settings["data"]["labelled"] = {"utterances": 0.375} if labelled is None else labelled
    settings["algorithm"] = {"kind": "fedstar", "client": LOCAL, **(algorithm or {})}
    return by_hand.build(settings)


# Golden losses, recorded when the test was written. A refactor must not change them; other CPUs round differently.
def test_golden_losses(folder: Path) -> None:
    algorithm, data, state = build(folder, {"threshold": {"first": 0.26}}, model={"kind": "audio_cnn"})
    received = arrived(algorithm, state)
    updates = [algorithm.client_update(client(data, position), received) for position in range(2)]
    assert [update.report["loss"] for update in updates] == pytest.approx([1.907790, 1.968916], rel=1e-3)
    again = algorithm.client_update(client(data), received)
    assert (again.delta == updates[0].delta).all() and dict(again.metrics) == dict(updates[0].metrics)


@pytest.mark.parametrize(("labelled_batch", "weights"), [(None, "paper"), (2, "paper"), (None, "authors")])
def test_one_backward_pass_of_both_losses(folder: Path, labelled_batch: int | None, weights: str) -> None:
    """A step takes the gradient of both losses: two passes over five unlabelled clips; three labelled clips repeat."""
    settings = {
        "beta": 0.7,
        "temperature": 0.5,
        "threshold": {"first": 0.3, "last": 0.8},
        "labelled_batch": labelled_batch,
        "weights": weights,
    }
    algorithm, data, state = build(folder, settings)
    received = arrived(algorithm, state, 1)
    tau = 0.8 - 0.25 * (1 + math.cos(math.pi / 3))
    assert received.settings == {"lr/client": 0.01, "threshold": pytest.approx(tau)}
    update = algorithm.client_update(client(data), received)

    model = algorithm.task.model()
    model.load_state_dict(algorithm.task.flat("cpu").layout.cut(state.params))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    who = client(data)
    assert who.data.labelled is not None
    truth = np.array([keywords.WORDS.index(label) for label in who.data.labels])
    labelled, unlabelled = np.flatnonzero(who.data.labelled), np.flatnonzero(~who.data.labelled)
    assert (len(labelled), len(unlabelled)) == (3, 5)
    generator = np.random.default_rng(who.seed)
    repeated = (position for _ in itertools.count() for position in generator.permutation(labelled))
    total, clips, kept, right = 0.0, 0, 0, 0
    for _ in range(2):
        order = generator.permutation(unlabelled)
        for u in (order[:3], order[3:]):
            mine = np.array(list(itertools.islice(repeated, labelled_batch or len(u))))
            both = collate(who.data, np.concatenate([mine, u]))
            z = model(both.features, both.lengths)
            z_l, z_u = z[: len(mine)], z[len(mine) :]
            probabilities = softmax(z_u.detach() / 0.5, 1).numpy()
            answers, sure = probabilities.argmax(1), probabilities.max(1) > tau
            loss = (1.0 if weights == "paper" else 0.3) * cross_entropy(z_l, torch.tensor(truth[mine]))
            for place in np.flatnonzero(sure):
                loss = loss + 0.7 / len(u) * -torch.log_softmax(z_u[place], 0)[answers[place]]
            total, clips = total + float(loss.detach()) * len(z), clips + len(z)
            kept, right = kept + sure.sum(), right + (sure & (answers == truth[u])).sum()
            optimizer.zero_grad()
            (loss + 0.02 * model.conv[0].weight.square().sum()).backward()
            optimizer.step()
    assert 0 < kept < 10, "the threshold matters here"
    after = algorithm.task.flat("cpu").layout.join(model.state_dict())
    np.testing.assert_allclose(state.params + update.delta, after, rtol=1e-4, atol=1e-5)
    assert update.report == {"examples": 8, "loss": pytest.approx(total / clips, rel=1e-5)}
    assert update.metrics["labels_kept"] == pytest.approx(100 * kept / 10)
    assert update.metrics["steps"] == 4
    assert update.metrics["label_accuracy"] == pytest.approx(100 * right / kept)


def test_labelled_clips_are_not_repeated_within_a_step(folder: Path) -> None:
    _, data, _ = build(folder, labelled={"utterances": 0.25})
    clips, settings = data.load(data.client_ids()[0]), ClientSettings(batch=4)
    steps = list(paired_batches(clips, settings, None, 5))
    assert [(len(one), len(other)) for one, other in steps] == [(2, 4), (2, 2)]
    assert all(len(set(one)) == 2 for one, _ in steps)
    assert [len(one) for one, _ in paired_batches(clips, settings, 3, 5)] == [3, 3], "what is asked for is taken"


def test_pseudo_labels() -> None:
    """At T = 2, if the middle of three logits leads by 4, 2 and 0, its p is e^2 / (e^2 + 2), e / (e + 2) and 1/3."""
    logits = torch.tensor([[0.0, 4.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]], requires_grad=True)
    sure, less = math.e**2 / (math.e**2 + 2), math.e / (math.e + 2)
    assert pseudo_labels(logits, 2.0, less - 1e-4)[1].tolist() == [True, True, False]
    labels, kept = pseudo_labels(logits, 2.0, sure - 1e-4)
    assert labels.tolist()[:2] == [1, 1] and kept.tolist() == [True, False, False]
    assert not pseudo_labels(torch.zeros(1, 4), 1.0, 0.25)[1].any(), "a threshold is to be exceeded"
    loss = pseudo_loss(logits, labels, kept)
    assert float(loss.detach()) == pytest.approx(-math.log(math.e**4 / (math.e**4 + 2)) / 3, rel=1e-4)
    loss.backward()
    assert logits.grad is not None and (logits.grad[1:] == 0).all() and (logits.grad[0] != 0).all()


def test_the_threshold_rises_on_half_a_cosine() -> None:
    paper = [0.9 - 0.2 * (1 + math.cos(math.pi * r / 100)) for r in range(101)]
    assert [ThresholdSettings().at(r, 100) for r in range(101)] == pytest.approx(paper)
    assert paper[0] == pytest.approx(0.5) and paper[50] == pytest.approx(0.7) and paper[100] == pytest.approx(0.9)
    assert {ThresholdSettings(0.9, 0.9).at(r, 7) for r in range(7)} == {0.9}


def test_without_unlabelled_clips_it_is_fedavg(folder: Path) -> None:
    algorithm, data, state = build(folder, labelled={"utterances": 1.0})
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    assert math.isnan(update.metrics["labels_kept"]) and math.isnan(update.metrics["label_accuracy"])
    model = algorithm.task.model()
    model.load_state_dict(algorithm.task.flat("cpu").layout.cut(state.params))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    who = client(data)
    targets, generator = (
        torch.tensor([keywords.WORDS.index(label) for label in who.data.labels]),
        np.random.default_rng(who.seed),
    )
    for _ in range(2):
        order = generator.permutation(8)
        for part in (order[:3], order[3:6], order[6:]):
            batch = collate(who.data, part)
            optimizer.zero_grad()
            (
                cross_entropy(model(batch.features, batch.lengths), targets[part])
                + 0.02 * model.conv[0].weight.square().sum()
            ).backward()
            optimizer.step()
    np.testing.assert_allclose(
        state.params + update.delta, algorithm.task.flat("cpu").layout.join(model.state_dict()), rtol=1e-4, atol=1e-5
    )


def test_without_labelled_clips_pseudo_labels_are_all(folder: Path) -> None:
    """Without labels, and with no pseudo-label above the threshold, only the L2 term changes a client's weights."""
    algorithm, data, state = build(folder, {"threshold": {"first": 1.0, "last": 1.0}}, labelled={"clients": 0.5})
    received = arrived(algorithm, state)
    none = next(position for position, name in enumerate(data.client_ids()) if not data.load(name).labelled.any())
    update = algorithm.client_update(client(data, none), received)
    flat = algorithm.task.flat("cpu").layout
    changed = {entry.name for entry in flat.entries if update.delta[entry.start : entry.stop].any()}
    assert (
        changed == {"conv.0.weight"}
        and update.report == {"examples": 8, "loss": 0.0}
        and update.metrics["labels_kept"] == 0.0
    )
    algorithm, data, state = build(folder, {"threshold": {"first": 0.0, "last": 0.0}}, labelled={"clients": 0.5})
    update = algorithm.client_update(client(data, none), arrived(algorithm, state))
    assert update.metrics["labels_kept"] == 100.0 and update.delta[-1] != 0


def test_the_accuracy_is_of_those_whose_truth_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, data, state = build(folder, {"threshold": {"first": 0.0, "last": 0.0}})
    received, who = arrived(algorithm, state), client(data)
    whole = algorithm.client_update(who, received)
    truth = algorithm.task.known(who.data)
    monkeypatch.setattr(algorithm.task, "known", lambda data: np.full(len(data), -1))
    unknown = algorithm.client_update(client(data), received)
    assert math.isnan(unknown.metrics["label_accuracy"]) and unknown.metrics["labels_kept"] == 100.0
    assert (unknown.delta == whole.delta).all(), "nothing learns from the truth"
    one = np.where(np.arange(8) == who.data.unlabelled[0], truth, -1)
    monkeypatch.setattr(algorithm.task, "known", lambda data: one)
    assert algorithm.client_update(client(data), received).metrics.total("label_accuracy")[1] == 2, (
        "one clip, in two passes"
    )


def test_the_saved_model_says_the_same_without_fedray(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """example.py answers as fedray does for windows shorter or longer than clips; its features have 32 bits, not 16."""
    algorithm, data, state = build(folder, model={"kind": "audio_cnn"}, task={"kind": "classification", "window": 0.26})
    algorithm.export(state, tmp_path)
    test = data.evaluation("test")
    assert test.lengths.min() < algorithm.task.features.frames(0.26) < test.lengths.max()
    logits = algorithm.task.logits(state.params, test, "cpu")
    for utterance, expected in zip(test.ids, logits, strict=True):
        monkeypatch.setattr("sys.argv", ["example.py", str(folder / utterance)])
        values = runpy.run_path(str(tmp_path / "example.py"))
        with torch.no_grad():
            np.testing.assert_allclose(values["model"](values["windows"]).mean(0), expected, rtol=0.02, atol=0.005)
        assert capsys.readouterr().out.strip() == keywords.WORDS[expected.argmax()]


def test_a_random_window_of_each_clip(folder: Path) -> None:
    """Windows have ten frames, at places drawn from torch's generator, which is seeded by names."""
    task = {"kind": "classification", "window": 0.12}
    algorithm, data, state = build(folder, task=task)
    seen: list[Any] = []
    algorithm.task.flat("cpu").model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape))
    first = algorithm.client_update(client(data), arrived(algorithm, state))
    second = algorithm.client_update(client(data), arrived(algorithm, state))
    assert set(seen) == {(6, 10, 20), (4, 10, 20)} and (first.delta == second.delta).all()
    torch.manual_seed(3)
    who = data.load(data.client_ids()[0])
    third = algorithm.client_update(Client("s00", who, 5), arrived(algorithm, state))
    assert (first.delta != third.delta).any()


def test_the_supervised_federation_learns_from_the_labelled_part_alone(folder: Path) -> None:
    algorithm, data, state = build(folder, SUPERVISED)
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    model = algorithm.task.model()
    model.load_state_dict(algorithm.task.flat("cpu").layout.cut(state.params))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    who = client(data)
    mine: Utterances = who.data.take(np.flatnonzero(who.data.labelled))
    targets, generator = (
        torch.tensor([keywords.WORDS.index(label) for label in mine.labels]),
        np.random.default_rng(who.seed),
    )
    for _ in range(2):
        for batch in batches(mine, 3, generator):
            optimizer.zero_grad()
            loss = cross_entropy(model(batch.features, batch.lengths), targets[batch.positions])
            (loss + 0.02 * model.conv[0].weight.square().sum()).backward()
            optimizer.step()
    np.testing.assert_allclose(
        state.params + update.delta, algorithm.task.flat("cpu").layout.join(model.state_dict()), rtol=1e-4, atol=1e-5
    )
    assert update.report["examples"] == 3
    _, data, _ = build(folder, SUPERVISED, labelled={"clients": 0.5})
    none = next(position for position, name in enumerate(data.client_ids()) if not data.load(name).labelled.any())
    nothing = algorithm.client_update(client(data, none), arrived(algorithm, state))
    assert not nothing.delta.any() and nothing.report["examples"] == 0


def test_it_learns_from_what_nobody_labelled(folder: Path) -> None:
    """Ten rounds of all six clients, a quarter of the clips labelled, reach 75 % accuracy and better pseudo-labels."""
    settings = {
        "threshold": {"first": 0.4, "last": 0.6},
        "temperature": 1.0,
        "labelled_batch": 3,
        "client": {**LOCAL, "epochs": 1, "l2": 0.0},
    }
    algorithm, data, state = build(folder, settings, labelled={"utterances": 0.25})
    dev, accuracies = data.evaluation("dev"), []
    for round in range(10):
        received = arrived(algorithm, state, round)
        updates = [algorithm.client_update(client(data, position), received) for position in range(6)]
        accuracies.append(np.nanmean([update.metrics["label_accuracy"] for update in updates]))
        state = algorithm.server_update(state, Change(np.mean([update.delta for update in updates], axis=0)), round)
    assert algorithm.evaluate(dev, arrived(algorithm, state), False).metrics["accuracy"] >= 75.0
    assert np.mean(accuracies[-3:]) > np.mean(accuracies[:3])


def test_what_does_not_fit(folder: Path, tmp_path: Path) -> None:
    for algorithm, words in (({}, "algorithm.kind fedstar needs"), (SUPERVISED, "algorithm.labelled_only needs")):
        with pytest.raises(ValueError, match=f"{words} clients with some labelled utterances: set data.labelled.share"):
            build(folder, algorithm, labelled={})
    with pytest.raises(ValueError, match=r"threshold.last must be at least 0 and at most 1, not 1.5"):
        build(folder, {"threshold": {"last": 1.5}})
    with pytest.raises(ValueError, match="algorithm.beta must be at least 0, not -1"):
        build(folder, {"beta": -1})
    with pytest.raises(ValueError, match="weights must be paper or authors, not 'equal'"):
        build(folder, {"weights": "equal"})
    with pytest.raises(ValueError, match="beta is at most 1, not 2"):
        build(folder, {"weights": "authors", "beta": 2})
    with pytest.raises(ValueError, match="optimizer must be sgd or adam, not 'adamw'"):
        build(folder, {"client": {"optimizer": "adamw"}})
    with pytest.raises(ValueError, match="algorithm.client.l2 must be at least 0, not -1"):
        build(folder, {"client": {"l2": -1}})
    speech.write_corpus(tmp_path)
    with pytest.raises(ValueError, match="algorithm.kind fedstar trains classifiers: set task.kind=classification"):
        by_hand.build(speech.settings(tmp_path, algorithm={"kind": "fedstar"}))
