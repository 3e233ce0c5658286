"""FedMem's variants on tones: pruned memories, lambda and k by distance, skipped look-ups, choice by search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray.algorithms import fedmem
from fedray.models.memory import MemorySettings
from fedray.training.knn.building import build_memory
from fedray.training.knn.decoding import Retrieval, SearchWithMemory, search_scores
from fedray.training.knn.selection import best_by_search, best_tokens, setting_costs
from tests.algorithms.by_hand import arrived
from tests.algorithms.test_fedmem import build, memory_of, scored, with_decoder

GRID = [
    Retrieval(k, share, 1.0, radius, skip_above)
    for k in (1, 4)
    for share in (0.3, 1.0)
    for radius in (None, 2.0, 50.0)
    for skip_above in (1.0, 0.6)
]


@pytest.mark.parametrize("keys", ["frames", "states"])
def test_a_memory_leaves_out_what_the_model_is_sure_of(folder: Path, keys: str) -> None:
    algorithm, data, state = with_decoder(folder) if keys == "states" else build(folder)
    mine = data.load(data.client_ids()[0])
    full, some = (
        build_memory(algorithm.task, state.params, mine, MemorySettings(keys, prune_above=above), "cpu")
        for above in (1.0, 0.3)
    )
    assert full.pruned == 0 and 0 < len(some.memory) < len(full.memory)
    assert len(some.memory) + some.pruned == len(full.memory)
    model = algorithm.task.flat("cpu").model
    states = torch.from_numpy(full.memory.index.reconstruct_n(0, len(full.memory)))
    with torch.no_grad():
        log_probs = model.ctc(states[None])[0] if keys == "frames" else model.attention_head(states).log_softmax(-1)
    tokens = torch.from_numpy(full.memory.tokens)
    kept = log_probs.gather(1, tokens[:, None])[:, 0].exp() <= 0.3
    assert some.memory.tokens.tolist() == tokens[kept].tolist()


def test_a_memory_that_lost_every_pair_is_silent(folder: Path) -> None:
    algorithm, data, state = build(folder, memory={"prune_above": 0.0})
    mine = data.load(data.client_ids()[0])
    scores = scored(algorithm, data, arrived(algorithm, state), {"test": mine})["test"]
    assert scores["wer"] == scores["wer_alone"]


def test_lambda_and_k_follow_the_distances() -> None:
    one = Retrieval(3, 0.5, 1.0, radius=4.0)
    distances = torch.tensor([[0.0, 1.0, 5.0, 6.0], [2.0, 4.0, 4.5, 9.0], [4.5, 5.0, 6.0, 7.0], [torch.inf] * 4])
    near = one.near(distances)
    assert torch.isfinite(near).sum(1).tolist() == [2, 2, 0, 0]
    assert one.nearness(near).tolist() == [1.0, 0.5, 0.0, 0.0]
    assert replace(one, radius=None).nearness(distances).tolist() == [1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("keys", ["frames", "states"])
def test_the_widest_radius_changes_nothing_and_the_narrowest_silences(folder: Path, keys: str) -> None:
    algorithm, data, state = with_decoder(folder) if keys == "states" else build(folder)
    received, task = arrived(algorithm, state), algorithm.task
    memory, dev = memory_of(algorithm, data, state, keys=keys), data.evaluation("dev")
    search = list(algorithm.searches(received.assets).values())[-1]
    plain = Retrieval(4, 0.9, 1.0)
    searches = [search] + [SearchWithMemory(search, memory, replace(plain, radius=r)) for r in (1e-9, None, 1e12)]
    alone, narrow, without, wide = task.transcribe(state.params, dev, searches, "cpu")
    assert [one.tokens for one in narrow] == [one.tokens for one in alone] != [one.tokens for one in without]
    assert [one.tokens for one in wide] == [one.tokens for one in without]


def test_all_variants_from_one_retrieval_are_each_their_own(folder: Path) -> None:
    algorithm, data, state = build(folder)
    received, dev, search = arrived(algorithm, state), data.evaluation("dev"), algorithm.task.greedy()
    memory = memory_of(algorithm, data, state)
    together = setting_costs(algorithm.task, state.params, dev, memory, GRID, "cpu")
    for one, errors in zip(GRID, together, strict=True):
        found = search_scores(algorithm.task, received, dev, {"wer": SearchWithMemory(search, memory, one)}, False)
        assert found.metrics["wer"] == pytest.approx(errors, abs=1e-9), one
    assert len(set(together.tolist())) > 2


def test_a_variant_costs_what_its_fused_distribution_says(folder: Path) -> None:
    """A cost, with states, is the transcripts' negative log-likelihood a token under what the search adds up."""
    from fedray.training.knn.decoding import ModelWithMemory
    from fedray.training.recognisers import teacher_forced

    algorithm, data, state = with_decoder(folder)
    task, dev = algorithm.task, data.evaluation("dev")
    memory = memory_of(algorithm, data, state, keys="states")
    together = setting_costs(task, state.params, dev, memory, GRID, "cpu")
    targets = task.targets(dev)
    for one, cost in zip(GRID, together, strict=True):
        total, tokens = 0.0, 0
        for positions, hidden, lengths, model in task.encoded(state.params, dev, "cpu"):
            before, after, counted = teacher_forced([targets[at] for at in positions], model.bos, model.eos, "cpu")
            states = model.decode(hidden, lengths, before)[counted]
            fuse: Any = ModelWithMemory(model, memory, one, lengths).fuse
            fused, wanted = fuse(model.attention_head(states).log_softmax(-1), states), after[counted]
            total -= float(fused.gather(1, wanted[:, None]).double().sum())
            tokens += len(wanted)
        if np.isfinite(cost):  # at lambda 1 a token may have probability 0
            assert cost == pytest.approx(total / tokens, rel=1e-3), one
    assert np.isfinite(together).sum() > len(GRID) / 2


@pytest.mark.parametrize("keys", ["frames", "states"])
def test_no_look_up_where_the_model_is_sure(folder: Path, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, data, state = with_decoder(folder) if keys == "states" else build(folder)
    memory, dev = memory_of(algorithm, data, state, keys=keys), data.evaluation("dev")
    search = list(algorithm.searches(arrived(algorithm, state).assets).values())[-1]
    asked: list[int] = []
    inner = memory.search
    monkeypatch.setattr(memory, "search", lambda queries, k: (asked.append(len(queries)), inner(queries, k))[1])
    counts, texts = [], []
    for above in (1.0, 0.6, 0.0):
        asked.clear()
        one = Retrieval(4, 0.9, 1.0, skip_above=above)
        (found,) = algorithm.task.transcribe(state.params, dev, [SearchWithMemory(search, memory, one)], "cpu")
        counts.append(sum(asked))
        texts.append([hypothesis.tokens for hypothesis in found])
    (alone,) = algorithm.task.transcribe(state.params, dev, [search], "cpu")
    assert counts[0] > counts[1] > counts[2] == 0
    assert texts[0] != texts[2] == [hypothesis.tokens for hypothesis in alone]


def test_the_search_decides_between_the_best_few(folder: Path) -> None:
    algorithm, data, state = with_decoder(folder)
    received, task = arrived(algorithm, state), algorithm.task
    memory, dev = memory_of(algorithm, data, state, keys="states"), data.evaluation("dev")
    search = task.search(received.assets)
    settings = [Retrieval(k, share, 1.0) for k in (1, 4) for share in (0.0, 0.5, 0.95)]
    costs = np.array([1.0, 2.0, 3.0, 4.0, 1.5, 2.5])

    def wer(one: Retrieval) -> float:
        found = search_scores(task, received, dev, {"wer": SearchWithMemory(search, memory, one)}, False)
        return float(found.metrics["wer"])

    cheapest = [settings[0], settings[4], settings[5]]  # for each lambda
    assert len({wer(one) for one in cheapest}) > 1
    for count in (1, 2, 3):
        chosen = best_by_search(task, received, dev, memory, settings, costs, count, search)
        assert chosen == min(cheapest[:count], key=wer)


def test_each_client_reports_what_it_chose(folder: Path) -> None:
    algorithm, data, state = build(folder, share=[0.1, 1.0], radius=[1e9], skip_above=0.999, searched=2)
    mine = data.load(data.client_ids()[0])
    scores = scored(algorithm, data, arrived(algorithm, state), {"dev": mine, "test": mine})
    assert scores["test"]["radius"] == 1e9 and scores["test"]["share"] == 1.0 and scores["test"]["wer"] == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"radius": [0.0]}, "radius is above 0"),
        ({"memory": {"prune_above": 1.5}}, "prune_above"),
        ({"memory": {"fewest_probes": 0}}, "fewest_probes"),
        ({"skip_above": -0.1}, "skip_above"),
        ({"searched": -1}, "searched"),
    ],
)
def test_wrong_settings(folder: Path, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(folder, **wrong)


def test_the_search_tries_settings_of_different_lambdas(folder: Path) -> None:
    algorithm, data, state = with_decoder(folder)
    received, task = arrived(algorithm, state), algorithm.task
    memory, mine = memory_of(algorithm, data, state, keys="states"), data.load(data.client_ids()[0])
    settings = [Retrieval(1, 0.0, 1.0), Retrieval(4, 0.0, 1.0), Retrieval(1, 0.95, 1.0)]
    found = best_by_search(task, received, mine, memory, settings, np.arange(3.0), 2, task.search(received.assets))
    assert found == settings[2], "it knows its own speech by heart"


def test_the_last_search_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, data, state = build(folder, share=[0.1, 1.0], searched=2)
    received, used = arrived(algorithm, state), []
    monkeypatch.setattr(fedmem, "best_by_search", lambda *given: used.append(type(given[-1])) or given[4][0])
    scored(algorithm, data, received, {"dev": data.evaluation("dev")})
    first, *_, last = map(type, algorithm.searches(received.assets).values())
    assert used == [last] and last != first


def test_best_tokens_without_a_look_up_are_the_models() -> None:
    """Of two frames whose best tokens have probabilities 0.7 and 0.5, `skip_above` of 0.6 looks up only the second."""
    probabilities = torch.tensor([[[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]]])
    settings = [Retrieval(1, 1.0, 1.0, skip_above=0.6), Retrieval(1, 1.0, 1.0)]
    answers = [(kind, torch.tensor([[0.0, 1.0, 0.0]] * 2), torch.ones(2)) for kind in settings]
    assert best_tokens(probabilities, iter(answers), settings).tolist() == [[[0, 1]], [[1, 1]]]
