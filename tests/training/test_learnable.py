"""What a model cannot learn: counted against a search over alignments, kept out of the mean loss, told and refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedray import experiment
from fedray.core.strategies import ByExamples, ByLoss, ByWer, Uniform
from fedray.data.features.dataset import Utterances
from fedray.data.federation.audited import AuditedSpeech
from fedray.experiment.learnable import check_learnable, read, survey
from fedray.models.conformer import LONGEST, Conformer, ConformerSettings
from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.training.learnable import Capacity, Demand, frames_needed
from fedray.training.means import MeanLoss
from fedray.training.speech_to_text import aligned_loss
from tests import speech
from tests.algorithms import by_hand

UNTRAINED = {"kind": "fedavg", "client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}}

pytestmark = pytest.mark.usefixtures("no_ray")


def collapsed(path: tuple[int, ...]) -> list[int]:
    """The tokens of an alignment: equal neighbours are one, blanks (0) are none."""
    return [token for token, _ in itertools.groupby(path) if token]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 1], [1, 1, 1], [1, 2, 2, 1], [2, 2, 1, 1]])
def test_the_frames_needed_are_those_of_the_shortest_alignment(tokens: list[int]) -> None:
    shortest = next(
        frames
        for frames in range(8)
        if any(collapsed(path) == tokens for path in itertools.product(range(3), repeat=frames))
    )
    assert frames_needed(tokens) == shortest
    log_probs = torch.full((1, 8, 3), math.log(1 / 3))
    for frames in range(1, 9):  # the loss itself is 0 exactly where there is no alignment
        sizes = torch.tensor([len(tokens)])
        loss = aligned_loss(log_probs, torch.tensor(tokens, dtype=torch.int64), torch.tensor([frames]), sizes)
        assert (float(loss) == 0) == (frames < shortest), frames


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Conformer, ConformerSettings(d_model=8, layers=1, heads=1, ffn=8, kernel=3)),
        (Conformer, ConformerSettings(d_model=8, layers=1, heads=1, ffn=8, kernel=3, front="conv2d")),
        *((CRDNN, CRDNNSettings(channels=(2, 2), rnn_neurons=4, dnn_neurons=4, time_pooling=by)) for by in (1, 3, 4)),
    ],
)
def test_a_model_says_how_many_frames_it_leaves(kind: Any, settings: Any) -> None:
    lengths = torch.arange(4, 40)
    _, left = kind(settings, 20, 5).eval().encode(torch.zeros(len(lengths), 39, 20), lengths)
    assert torch.equal(kind.output_lengths(settings, lengths), left)


@dataclass(frozen=True)
class OwnSettings:
    by: int = 3


class Own(nn.Module):
    """A user's model, which does not say how many frames it leaves: it pads by one and keeps every third."""

    Settings = OwnSettings
    asked: list[int] = []

    def __init__(self, settings: OwnSettings, bins: int, vocabulary: int) -> None:
        super().__init__()
        self.by, self.head = settings.by, nn.Linear(bins, vocabulary)

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        self.asked.append(features.shape[1])
        return features[:, :: self.by], (lengths + self.by - 1) // self.by

    def ctc(self, hidden: Tensor) -> Tensor:
        return self.head(hidden).log_softmax(-1)


def test_a_users_model_is_asked_few_times() -> None:
    generator = np.random.default_rng(0)
    frames, needed = generator.integers(100, 2000, 5000), generator.integers(1, 400, 5000)
    capacity, demand = Capacity(Own, OwnSettings()), Demand(frames, needed, np.zeros(5000, np.int64))
    Own.asked.clear()
    before = torch.get_rng_state()
    capacity.ask(lambda: Own(OwnSettings(), 4, 3), 4, demand)
    assert torch.equal(before, torch.get_rng_state())
    truth = needed > -(-frames // 3)
    assert 0 < truth.sum() < 5000 and np.array_equal(capacity.unlearnable(demand), truth)
    assert len(Own.asked) == len(set(Own.asked)) < len(set(frames.tolist()))
    slow = Demand(frames, frames // 20, needed)  # speech as slow as most: every length is far from its limit
    other = Capacity(Own, OwnSettings())
    Own.asked.clear()
    other.ask(lambda: Own(OwnSettings(), 4, 3), 4, slow)
    assert len(Own.asked) < 10 and not other.unlearnable(slow).any()


def test_windows_and_decoders_have_limits() -> None:
    frames, written = np.array([4 * LONGEST, 4 * LONGEST + 1, 5]), np.array([LONGEST + 1, 5, LONGEST])
    demand = Demand(frames, np.zeros(3, np.int64), written)
    for settings, expected in (
        (ConformerSettings(), [False, False, False]),
        (ConformerSettings(attention="regularMHA"), [False, True, False]),
        (ConformerSettings(decoder_layers=1), [True, False, False]),
    ):
        assert Capacity(Conformer, settings).unlearnable(demand).tolist() == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech.write_corpus(tmp_path_factory.mktemp("tones")).parent


def built(folder: Path, pooling: int, **changes: Any) -> Any:
    """A CRDNN that pools so many frames. Five letters of 0.12 s give 58 frames (of 25 ms, every 10 ms)."""
    model = {"kind": "crdnn", "channels": [2, 2], "rnn_neurons": 4, "dnn_neurons": 4, "time_pooling": pooling}
    given = {"algorithm": UNTRAINED, "model": model, "task": {"decode": {"search": "greedy"}}}
    wanted = speech.settings(folder, **given | changes)
    return experiment.load(wanted)[0], *by_hand.build(wanted)


def repeated(text: str) -> bool:
    return any(one == other for one, other in itertools.pairwise(text))


def test_a_decoder_learns_what_ctc_cannot_align() -> None:
    frames, aligned = np.array([40, 40]), np.array([1000, 2])
    for written, expected in ((np.zeros(2, np.int64), [True, False]), (np.array([5, 5]), [False, False])):
        capacity = Capacity(Conformer, ConformerSettings())
        assert capacity.unlearnable(Demand(frames, aligned, written)).tolist() == expected
        assert capacity.excess(Demand(frames, aligned, written))["alignment"][0] > 0


def test_utterances_that_cannot_be_learnt_do_not_count_in_the_mean_loss(folder: Path) -> None:
    config, algorithm, data, state = built(folder, 11)  # 58 // 11 = 5 frames: enough for 5 tokens without repeats
    for position, name in enumerate(data.client_ids()):
        mine = data.load(name)
        lost = [repeated(text) for text in mine.texts]
        update = algorithm.client_update(by_hand.client(data, position), by_hand.arrived(algorithm, state))
        assert update.report["examples"] == len(mine) - sum(lost)
        assert update.metrics.total("unlearnable") == (sum(lost), len(mine))
        assert update.metrics.total("loss")[1] == len(mine) - sum(lost)
    # One step on all of a client, without masks: the reported loss is the mean over what can be learnt.
    losses = np.array(algorithm.task.losses(state.params, mine, "cpu"))
    assert (losses == 0).tolist() == lost and any(lost) and not all(lost)
    total = MeanLoss(np.array(lost))
    total.add_batch(losses.mean(), np.arange(len(mine)))
    assert total.value() == pytest.approx(losses[~np.array(lost)].mean())


def test_a_client_that_can_learn_nothing_has_no_weight(folder: Path) -> None:
    _, algorithm, data, state = built(folder, 16)
    report = algorithm.client_update(by_hand.client(data), by_hand.arrived(algorithm, state)).report
    assert report["examples"] == 0 and math.isnan(report["loss"])
    for strategy in (ByLoss(), Uniform(), ByExamples()):
        assert strategy.log_weight(report) == -math.inf
    assert ByWer().log_weight(report | {"wer": 0.0}) == -math.inf


def test_what_cannot_be_learnt_is_counted_told_and_refused(folder: Path) -> None:
    config, algorithm, data, _ = built(folder, 11)
    found = survey(config, algorithm.task, data)
    assert found is not None
    everything = {"server": data.server(), "clients": data.training()[-1]}
    everything |= {split: data.evaluation(split) for split in data.splits()}
    for name, part in found.parts.items():
        assert part.lost.tolist() == [repeated(text) for text in everything[name].texts], name
    for name, (lost, of) in found.counts().items():
        assert lost == sum(map(repeated, data.load(name).texts)) and of == len(data.load(name))
    lost = sum(int(part.lost.sum()) for part in found.parts.values())
    assert 0 < lost < 16
    told, _ = found.problem() or ("", False)
    assert told.startswith(f"{lost} of 32 utterances cannot be learnt") and "model.time_pooling (it is 11)" in told
    config, algorithm, data, _ = built(folder, 2)
    assert check_learnable(config, algorithm, data) is None
    config, algorithm, data, _ = built(folder, 16)
    with pytest.raises(ValueError, match=r"^32 of 32 utterances cannot be learnt: .*task.unlearnable=warn"):
        check_learnable(config, algorithm, data)
    config, algorithm, data, _ = built(folder, 16, task={"unlearnable": "warn", "decode": {"search": "greedy"}})
    assert (check_learnable(config, algorithm, data) or "").startswith("32 of 32")


def test_speech_of_those_outside_an_audit_does_not_count(folder: Path) -> None:
    config, algorithm, data, _ = built(folder, 11)
    ids = data.client_ids()
    found = survey(config, algorithm.task, AuditedSpeech(data, {ids[0]: False, ids[-1]: True}, 1))
    assert found is not None
    assert {name: len(rows) for name, rows in found.clients.items()} == {name: data.cost(name) for name in ids[1:]}
    for name, (lost, _) in found.counts().items():
        assert lost == sum(map(repeated, data.load(name).texts))


@pytest.mark.parametrize("clients", [99, 101])
def test_one_client_in_more_than_a_hundred_does_not_stop_a_run(folder: Path, clients: int) -> None:
    config, algorithm, data, _ = built(folder, 11)
    found = survey(config, algorithm.task, data)
    assert found is not None
    lost = found.parts["clients"].lost
    unlucky, fine = np.flatnonzero(lost)[:1], np.flatnonzero(~lost)[:1]
    held = {f"c{number}": fine for number in range(1, clients)} | {"c0": unlucky}
    told, stops = replace(found, parts={"clients": found.parts["clients"]}, clients=held).problem() or ("", None)
    assert "more than two thirds of the utterances of c0" in told and stops is (clients < 100)
    assert ("task.unlearnable=warn" in told) is stops


def test_true_texts_that_nobody_trains_on_do_not_count(folder: Path) -> None:
    fednst = {"kind": "fednst", "pretrain": {"steps": 0}}
    config, algorithm, data, _ = built(folder, 11, algorithm=fednst)
    found = survey(config, algorithm.task, data)
    assert found is not None and found.counts() == {}
    everyone = data.training()[-1]
    half = Utterances(everyone.manifest, everyone.features, everyone.rows, np.arange(len(everyone)) % 2 == 0)
    kept = read(config, half, {"a": np.arange(4)})
    assert kept["a"].tolist() == [0, 2]
