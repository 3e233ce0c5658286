"""FedMem on tones, without Ray: the memory's pairs, decoding with it, and no effect at lambda = 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, Received, ServerState
from fedray.data.features.dataset import Utterances, batches
from fedray.data.federation.speech_data import SpeechData
from fedray.models.memory import Memory, MemorySettings
from fedray.training.decoding.search import greedy
from fedray.training.knn.building import build_memory, fingerprint
from fedray.training.knn.decoding import ModelWithMemory, Retrieval, SearchWithMemory, search_scores
from fedray.training.knn.selection import setting_costs
from tests import speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client, personal

FEDMEM = {
    "kind": "fedmem",
    "k": [1],
    "share": [1.0],
    "temperature": [1.0],
    "pretrain": {"steps": 30, "warmup": 5, "batch": 4},
}


EVERYBODY = {"cohort": {"fraction": 1.0}, "evaluation": {"personal_final": True}}


def build(folder: Path, **changes: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    return by_hand.build(speech.settings(folder, algorithm={**FEDMEM, **changes}, rounds=1) | EVERYBODY)


def scored(algorithm: Algorithm, data: SpeechData, received: Received, parts: dict[str, Utterances]) -> dict[str, Any]:
    update = algorithm.client_update(client(data), received)
    return personal(algorithm, client(data, state=update.state), received, parts)


def memory_of(algorithm: Algorithm, data: SpeechData, state: ServerState, **settings: Any) -> Memory:
    """The memory of the first client."""
    mine = data.load(data.client_ids()[0])
    return build_memory(algorithm.task, state.params, mine, MemorySettings(**settings), "cpu").memory


def test_what_it_has_heard_it_knows_by_heart(folder: Path) -> None:
    """The nearest neighbour of a stored frame is the frame itself, so the stored labels spell the transcript."""
    algorithm, data, state = build(folder)
    received = arrived(algorithm, state)
    mine = data.load(data.client_ids()[0])
    scores = scored(algorithm, data, received, {"mine": mine})["mine"]
    assert scores["wer_alone"] > 20 and scores["wer"] == 0


def test_nothing_leaves_the_client_and_nothing_changes(folder: Path) -> None:
    algorithm, data, state = build(folder)
    broadcast = algorithm.broadcast(state, 0)
    assert broadcast.constant == state.params.size
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    assert update.delta.size == 0 and not update.vectors
    assert algorithm.server_update(state, Change(update.delta), 0) is state
    frames = update.metrics.total("pairs")[0]
    assert frames == len(update.state["tokens"]) > 0 and update.metrics.total("left_out")[0] == 0


def test_without_a_share_it_is_the_model_alone(folder: Path) -> None:
    algorithm, data, state = build(folder, share=[0.0])
    received, dev = arrived(algorithm, state), data.evaluation("dev")
    memory = memory_of(algorithm, data, state)
    alone = algorithm.task.greedy()
    both = [SearchWithMemory(alone, memory, Retrieval(8, 0.0, 1.0)), alone]
    one, other = algorithm.task.transcribe(state.params, dev, both, "cpu")
    assert one == other, "bit for bit, scores too"
    scores = scored(algorithm, data, received, {"dev": dev})["dev"]
    assert scores["wer"] == scores["wer_alone"]


def test_all_settings_from_one_retrieval_are_each_their_own(folder: Path) -> None:
    algorithm, data, state = build(folder)
    received, dev = arrived(algorithm, state), data.evaluation("dev")
    memory = memory_of(algorithm, data, state)
    settings = [
        Retrieval(k, share, temperature) for k in (1, 4, 8) for share in (0.0, 0.3, 1.0) for temperature in (0.1, 10.0)
    ]
    together = setting_costs(algorithm.task, state.params, dev, memory, settings, "cpu")
    search = algorithm.task.greedy()
    for one, errors in zip(settings, together, strict=True):
        found = search_scores(algorithm.task, received, dev, {"wer": SearchWithMemory(search, memory, one)}, False)
        assert found.metrics["wer"] == pytest.approx(errors, abs=1e-9)
    assert len(set(together.tolist())) > 1


@pytest.mark.parametrize("share", [0.1, 0.3, 0.45, 0.5, 0.9, 1.0])
def test_frames_beyond_doubt_and_behind_the_end_are_not_looked_up(
    folder: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy decoding gives the same tokens as if every frame were looked up."""
    algorithm, data, state = build(folder, pretrain={**FEDMEM["pretrain"], "steps": 60})
    task, dev = algorithm.task, data.evaluation("dev")
    memory = memory_of(algorithm, data, state)
    asked: list[int] = []
    search = memory.search
    monkeypatch.setattr(memory, "search", lambda queries, k: (asked.append(len(queries)), search(queries, k))[1])
    one = Retrieval(4, share, 1.0)
    (found,) = task.transcribe(state.params, dev, [SearchWithMemory(task.greedy(), memory, one)], "cpu")
    asked_for, total = sum(asked), 0
    for _, hidden, lengths, model in task.encoded(state.params, dev, "cpu"):
        both = ModelWithMemory(model, memory, one, torch.full_like(lengths, hidden.shape[1])).ctc(hidden)
        total += int(lengths.sum())
        assert greedy(both, lengths) == [list(hypothesis.tokens) for hypothesis in found]
    assert asked_for < 0.9 * total if share < 0.4 else asked_for == total or share < 0.5


def test_each_client_chooses_on_dev(folder: Path) -> None:
    algorithm, data, state = build(folder, share=[0.0, 1.0], k=[1, 4])
    received = arrived(algorithm, state)
    mine = data.load(data.client_ids()[0])
    scores = scored(algorithm, data, received, {"dev": mine, "test": data.evaluation("test")})
    assert scores["test"]["share"] == 1.0 and scores["test"]["k"] == 1, "its own speech is best answered from memory"
    assert scored(algorithm, data, received, {"test": mine})["test"]["share"] == 0.0, "without dev the first setting"


def test_the_memory_of_another_model_is_refused(folder: Path) -> None:
    algorithm, data, state = build(folder)
    received = arrived(algorithm, state)
    update = algorithm.client_update(client(data), received)
    other = Received(received.params + np.float32(1e-3), {}, 0, received.assets)
    with pytest.raises(ValueError, match=f"is of the model {fingerprint(state.params)}, not of"):
        personal(algorithm, client(data, state=update.state), other, {"dev": data.evaluation("dev")})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"k": []}, "a value each"),
        ({"k": [0]}, "at least 1"),
        ({"share": [1.5]}, "from 0 to 1"),
        ({"temperature": [0.0]}, "above 0"),
    ],
)
def test_wrong_settings(folder: Path, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(folder, **wrong)


def test_it_plays_one_round(folder: Path) -> None:
    with pytest.raises(ValueError, match="set rounds=1, not 3"):
        by_hand.build(speech.settings(folder, algorithm=FEDMEM, rounds=3) | EVERYBODY)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"evaluation": {}}, "fedmem is judged by personal scores alone: set evaluation.personal_final=true"),
        ({"cohort": {"size": 2}}, "fedmem needs every client in its round"),
    ],
)
def test_nobody_waits_for_scores_that_do_not_come(folder: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        by_hand.build(speech.settings(folder, algorithm=FEDMEM, rounds=1) | EVERYBODY | changes)


def test_scores_are_called_as_those_of_the_model_that_all_share(folder: Path) -> None:
    wanted = speech.settings(folder, algorithm=FEDMEM, rounds=1) | EVERYBODY
    for search, names in (("greedy", {"wer"}), ("ctc", {"wer", "wer_lm"}), ("attention", {"wer"})):
        task = {**wanted["task"], "decode": {"search": search, "beam": 2}, "ctc_weight": 0.5}
        algorithm, data, state = by_hand.build(wanted | {"task": task, "model": DECODER})
        received, dev = arrived(algorithm, state), data.evaluation("dev")
        own, shared = (
            scored(algorithm, data, received, {"dev": dev})["dev"],
            algorithm.evaluate(dev, received, True).metrics,
        )
        assert {name for name in own if name.startswith("wer")} == names | {f"{name}_alone" for name in names}
        assert all(own[f"{name}_alone"] == shared[name] for name in names)


STATES = {"keys": "states"}
DECODER = {"d_model": 32, "ffn": 64, "layers": 1, "kernel": 7, "decoder_layers": 1}


def with_decoder(
    folder: Path, search: dict[str, Any] | None = None, **changes: Any
) -> tuple[Algorithm, SpeechData, ServerState]:
    wanted = speech.settings(folder, algorithm={**FEDMEM, "memory": STATES, **changes}, rounds=1, model=DECODER)
    wanted["task"] = wanted["task"] | {
        "ctc_weight": 0.5,
        "decode": {"search": "attention", "beam": 3, **(search or {})},
    }
    return by_hand.build(wanted | EVERYBODY)


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 3, "ctc_weight": 0.0, "lm_weight": 0.0}])
def test_the_decoder_remembers_what_followed(folder: Path, search: dict[str, Any]) -> None:
    algorithm, data, state = with_decoder(
        folder, search, share=[0.99]
    )  # at 1 the other hypotheses of a beam have probability 0, and the search ends
    received = arrived(algorithm, state)
    mine = data.load(data.client_ids()[0])
    update = algorithm.client_update(client(data), received)
    assert len(update.state["tokens"]) == sum(len(target) + 1 for target in algorithm.task.targets(mine)), (
        "every token and every end"
    )
    scores = personal(algorithm, client(data, state=update.state), received, {"mine": mine})["mine"]
    assert scores["wer_lm_alone"] > 20 and scores["wer_lm"] == 0 and "wer" not in scores, (
        "which is CTC's, that asks no decoder"
    )


def test_the_decoder_alone_without_a_share(folder: Path) -> None:
    algorithm, data, state = with_decoder(folder, share=[0.0])
    received, dev = arrived(algorithm, state), data.evaluation("dev")
    memory = memory_of(algorithm, data, state, keys="states")
    alone = algorithm.task.search(received.assets)
    one, other = algorithm.task.transcribe(
        state.params, dev, [SearchWithMemory(alone, memory, Retrieval(8, 0.0, 1.0)), alone], "cpu"
    )
    assert one == other, "bit for bit, scores too"


def test_a_setting_costs_what_the_decoder_says_of_the_transcripts(folder: Path) -> None:
    """Each setting's cost is the definition's, computed for that setting alone in float64."""
    algorithm, data, state = with_decoder(folder)
    task, dev = algorithm.task, data.evaluation("dev")
    memory = memory_of(algorithm, data, state, keys="states")
    settings = [Retrieval(k, share, temperature) for k in (1, 4) for share in (0.0, 0.3) for temperature in (1.0, 10.0)]
    together = setting_costs(task, state.params, dev, memory, settings, "cpu")
    model = task.flat("cpu").model
    for one, cost in zip(settings, together, strict=True):
        expected = 0.0
        for position, target in enumerate(task.targets(dev)):
            batch = next(iter(batches(dev.take(np.array([position])), 1, None)))
            with torch.no_grad():
                hidden, lengths = model.encode(batch.features, batch.lengths)
                states = model.decode(hidden, lengths, torch.tensor([[model.bos, *target]]))[0]
                probabilities = model.attention_head(states).double().softmax(-1).numpy()
            distances, tokens = memory.search(states.numpy(), one.k)
            for step, token in enumerate([*target, model.eos]):
                weights = np.exp(-(distances[step].astype(np.float64) - distances[step].min()) / one.temperature)
                said = weights[tokens[step] == token].sum() / weights.sum()
                expected -= np.log(one.share * said + (1 - one.share) * probabilities[step, token])
        assert cost == pytest.approx(expected / sum(len(target) + 1 for target in task.targets(dev)), rel=1e-4)
    assert len({round(cost, 3) for cost in together.tolist()}) > 3


def test_what_each_setting_costs_goes_along_if_wanted(folder: Path) -> None:
    algorithm, data, state = build(folder, share=[0.0, 1.0], costs=True)
    mine = data.load(data.client_ids()[0])
    scores = scored(algorithm, data, arrived(algorithm, state), {"dev": mine, "test": data.evaluation("test")})
    assert scores["dev"]["k=1 lambda=1 T=1"] == 0 < scores["dev"]["k=1 lambda=0 T=1"]


def test_states_need_a_decoder(folder: Path) -> None:
    with pytest.raises(ValueError, match="set model.decoder_layers and task.decode.search=attention"):
        build(folder, memory=STATES)
    with pytest.raises(ValueError, match="keys must be frames or states, not 'words'"):
        build(folder, memory={"keys": "words"})


def test_a_client_without_dev_costs_nobody_the_results(folder: Path) -> None:
    """Costs come from dev only, and a client without dev reports none."""
    algorithm, data, state = build(folder, share=[0.0, 1.0], costs=True)
    mine = data.load(data.client_ids()[0])
    scores = scored(algorithm, data, arrived(algorithm, state), {"dev": mine.take(np.zeros(0, np.int64)), "test": mine})
    assert not any(name.startswith("k=") for part in scores.values() for name in part)
    scores = scored(algorithm, data, arrived(algorithm, state), {"dev": mine, "test": mine})
    assert any(name.startswith("k=1 ") for name in scores["dev"]) and not any(
        name.startswith("k=1 ") for name in scores["test"]
    )
