"""FedMem on tones, without Ray: what is remembered, that it speaks, and that without a share it is silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, Received, ServerState
from fedray.data.dataset import Utterances
from fedray.data.federated import SpeechData
from fedray.models.memory import MemorySettings
from fedray.training.decoding import GreedySearch
from fedray.training.memory import Retrieval, WithMemory, fingerprint, remember, rescored, word_errors
from tests import speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client

FEDMEM = {"kind": "fedmem", "k": [1], "share": [1.0], "temperature": [1.0], "pretrain": {"steps": 30, "warmup": 5, "batch": 4}}


def build(folder: Path, **changes: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    return by_hand.build(speech.settings(folder, algorithm={**FEDMEM, **changes}, rounds=1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech.write_corpus(tmp_path_factory.mktemp("tones")).parent


def scored(algorithm: Algorithm, data: SpeechData, received: Received, parts: dict[str, Utterances]) -> dict[str, Any]:
    update = algorithm.client_update(client(data), received)
    return dict(algorithm.client_evaluate(client(data, state=update.state), received, parts))


def test_what_it_has_heard_it_knows_by_heart(folder: Path) -> None:
    """The nearest frame is the frame itself, and the alignment of a transcript reads as the transcript."""
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
    assert update.sent == 0 and not update.delta.any()
    assert algorithm.server_update(state, Change(update.delta), 0) is state
    frames = update.metrics.total("pairs")[0]
    assert frames == len(update.state["tokens"]) > 0 and update.metrics.total("left_out")[0] == 0


def test_without_a_share_it_is_the_model_alone(folder: Path) -> None:
    algorithm, data, state = build(folder, share=[0.0])
    received, dev = arrived(algorithm, state), data.evaluation("dev")
    memory, _ = remember(algorithm.task, state.params, data.load(data.client_ids()[0]), MemorySettings(), "cpu")
    alone = GreedySearch(algorithm.task.settings.decode, algorithm.task.tokeniser.decode)
    both = [WithMemory(alone, memory, Retrieval(8, 0.0, 1.0)), alone]
    one, other = algorithm.task.transcribe(state.params, dev, both, "cpu")
    assert one == other, "bit for bit, scores too"
    scores = scored(algorithm, data, received, {"dev": dev})["dev"]
    assert scores["wer"] == scores["wer_alone"]


def test_all_settings_from_one_retrieval_are_each_their_own(folder: Path) -> None:
    algorithm, data, state = build(folder)
    received, dev = arrived(algorithm, state), data.evaluation("dev")
    memory, _ = remember(algorithm.task, state.params, data.load(data.client_ids()[0]), MemorySettings(), "cpu")
    settings = [Retrieval(k, share, temperature) for k in (1, 4, 8) for share in (0.0, 0.3, 1.0) for temperature in (0.1, 10.0)]
    together = rescored(algorithm.task, state.params, dev, memory, settings, "cpu")
    greedy = GreedySearch(algorithm.task.settings.decode, algorithm.task.tokeniser.decode)
    for one, errors in zip(settings, together, strict=True):
        found = word_errors(algorithm.task, received, dev, {"wer": WithMemory(greedy, memory, one)})
        assert found.total("wer")[0] == 100 * errors
    assert len(set(together.tolist())) > 1


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
    with pytest.raises(ValueError, match=f"made by the model {fingerprint(state.params)}, not by"):
        algorithm.client_evaluate(client(data, state=update.state), other, {"dev": data.evaluation("dev")})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"k": []}, "a value each"), ({"k": [0]}, "at least 1"), ({"share": [1.5]}, "from 0 to 1"), ({"temperature": [0.0]}, "above 0")],
)
def test_wrong_settings(folder: Path, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(folder, **wrong)


def test_it_plays_one_round(folder: Path) -> None:
    with pytest.raises(ValueError, match="set rounds=1, not 3"):
        by_hand.build(speech.settings(folder, algorithm=FEDMEM, rounds=3))
