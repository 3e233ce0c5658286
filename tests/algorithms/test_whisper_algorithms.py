"""FedLoRA and FedMem with a random Whisper, without Ray: adapters, memories, the exported folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray import experiment
from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, ServerState
from fedray.data.federation.speech_data import SpeechData
from fedray.experiment.learnable import check_learnable
from fedray.training.knn.decoding import ModelWithMemory
from tests import speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client, personal

transformers = pytest.importorskip("transformers")
from tests.whisper import GENERATION, write_checkpoint  # noqa: E402 - it needs transformers

ADAPTERS = {"rank": 4, "alpha": 16, "targets": ["self_attn.*_proj", "fc[12]"]}
TASK = {
    "tokens": "pretrained",
    "ctc_weight": 0.0,
    "augment": {"time_masks": 0, "frequency_masks": 0},
    # as many tokens as the decoder has positions for, as `generate` writes them
    "decode": {"search": "attention", "beam": 1, "ctc_weight": 0.0, "max_tokens_per_frame": 9.0},
}


def settings(folder: Path, **algorithm: Any) -> dict[str, Any]:
    wanted = speech.settings(folder, algorithm=algorithm, rounds=1) | {
        "cohort": {"fraction": 1.0},
        "evaluation": {"personal_final": True},
    }
    features = {"kind": "whisper", "bins": 80, "normalise": "none"}
    return wanted | {
        "features": features,
        "task": TASK,
        "model": {"kind": "whisper", "folder": str(folder / "whisper"), "seconds": 1.5},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = speech.write_corpus(tmp_path_factory.mktemp("tones")).parent
    checkpoint = write_checkpoint(folder / "whisper")
    (checkpoint / "generation_config.json").write_text(json.dumps(GENERATION), encoding="utf-8")
    return folder


def build(folder: Path, **algorithm: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    return by_hand.build(settings(folder, **algorithm))


def test_adapters_learn_and_are_merged_into_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    algorithm, data, state = build(
        folder, kind="fedlora", lora=ADAPTERS, client={"lr": 0.01, "warmup": 1, "epochs": 12}, pretrain={"steps": 0}
    )
    layout = algorithm.task.flat("cpu").layout
    assert 0.02 < layout.trainable / layout.size < 0.5
    losses = []
    for round in range(3):
        update = algorithm.client_update(client(data), arrived(algorithm, state, round))
        losses.append(update.metrics["loss"])
        state = algorithm.server_update(state, Change(update.delta), round)
    assert losses[2] < losses[0] - 0.03
    algorithm.export(state, tmp_path / "model")
    again = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "model")
    merged = algorithm.backbone.flat("cpu").layout.cut(algorithm.merged(state.params))
    for name, value in again.state_dict().items():
        if (ours := merged.get(f"whisper.{name}")) is not None:
            assert np.array_equal(value, ours), name
    assert (tmp_path / "model" / "tokenizer.json").is_file()
    name = "generation_config.json"
    assert (tmp_path / "model" / name).read_bytes() == (folder / "whisper" / name).read_bytes(), "as generate wants it"
    heard: list[torch.Tensor] = []
    model = algorithm.backbone.flat("cpu").model
    handle = model.whisper.model.encoder.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    mine = data.load(data.client_ids()[0])
    (ours,) = algorithm.backbone.transcribe(algorithm.merged(state.params), mine, [algorithm.backbone.greedy()], "cpu")
    handle.remove()
    theirs = again.generate(heard[0], language="en", task="transcribe")
    assert len(ours) == len(theirs) > 1 and [list(each.tokens) for each in ours] == theirs.tolist(), (
        "transformers hear the same"
    )


def test_a_memory_of_states_speaks(folder: Path) -> None:
    algorithm, data, state = build(
        folder, kind="fedmem", k=[1], share=[0.99], temperature=[0.01], memory={"keys": "states"}
    )
    received = arrived(algorithm, state)
    mine = data.load(data.client_ids()[0])
    update = algorithm.client_update(client(data), received)
    scores = personal(algorithm, client(data, state=update.state), received, {"mine": mine})["mine"]
    assert scores["wer_alone"] >= 100 and scores["wer"] == 0, "what it has heard it knows by heart"


def test_frames_have_no_labels(folder: Path) -> None:
    with pytest.raises(ValueError, match="set algorithm.memory.keys=states"):
        build(folder, kind="fedmem")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"task": {**TASK, "ctc_weight": 1.0}}, "set task.ctc_weight=0"),
        ({"task": {**TASK, "tokens": "characters"}}, "set task.tokens=pretrained"),
        ({"model": {"kind": "conformer"}, "features": {}}, "set model.kind=whisper, or model.init=RUN/model/model.pt"),
        ({"model": {"kind": "whisper", "folder": "/nowhere"}}, "there is no folder /nowhere"),
    ],
)
def test_what_does_not_fit_is_named(folder: Path, section: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        by_hand.build(settings(folder, kind="fedmem", memory={"keys": "states"}) | section)


def test_what_it_cannot_hear_or_say_is_named(folder: Path) -> None:
    wanted = settings(folder, kind="fedlora", lora=ADAPTERS, pretrain={"steps": 0})
    algorithm, data, state = by_hand.build(wanted | {"model": {**wanted["model"], "seconds": 0.4}})
    with pytest.raises(
        ValueError, match=r"utterance .* is 0.\d+ s long, and 4 utterances exceed Whisper's window of 0.4 s"
    ):
        algorithm.client_update(client(data), arrived(algorithm, state))
    algorithm.task.limits = (300, 5)
    with pytest.raises(ValueError, match=r"utterance .* has 6 tokens, but Whisper writes at most 4"):
        algorithm.client_update(client(data), arrived(algorithm, state))


def test_what_it_cannot_hear_or_say_is_counted_before_a_run(folder: Path) -> None:
    wanted = settings(folder, kind="fedlora", lora=ADAPTERS, pretrain={"steps": 0})
    fitting, _ = experiment.load(wanted)
    algorithm, data, _ = by_hand.build(wanted)
    assert check_learnable(fitting, algorithm, data) is None
    short = wanted | {"model": {**wanted["model"], "seconds": 0.4}, "task": {**TASK, "unlearnable": "warn"}}
    algorithm, data, _ = by_hand.build(short)
    with pytest.raises(ValueError, match=r"^32 of 32 utterances cannot be learnt: .*window of 0.40 s.*test: 4 of 4 ut"):
        check_learnable(experiment.load(short)[0], algorithm, data)  # no score would come of the run: no warning
    algorithm, data, _ = by_hand.build(wanted)
    algorithm.task.capacity.most_tokens = 5
    with pytest.raises(
        ValueError, match=r"32 of them have more tokens than the decoder writes, 4; the most, 6, are in "
    ):
        check_learnable(fitting, algorithm, data)


def test_features_and_model_belong_together(folder: Path) -> None:
    wanted = settings(folder, kind="fedlora", lora=ADAPTERS, pretrain={"steps": 0})
    with pytest.raises(ValueError, match="model.kind whisper needs features.kind=whisper, not logmel"):
        by_hand.build(wanted | {"features": {"kind": "logmel", "bins": 80}})
    with pytest.raises(ValueError, match="model.kind conformer needs features.kind=logmel, not whisper"):
        by_hand.build(speech.settings(folder, features={"kind": "whisper", "bins": 80, "normalise": "none"}))


def test_a_memory_leaves_its_tokens_alone(folder: Path) -> None:
    """With and without a memory, Whisper has no CTC head: its token 0 is a character, not a blank."""
    algorithm, data, state = build(
        folder, kind="fedmem", k=[1], share=[0.5], temperature=[1.0], memory={"keys": "states"}
    )
    model = algorithm.task.flat("cpu").model
    assert not hasattr(model, "ctc_head") and not hasattr(ModelWithMemory(model, None, None, None), "ctc_head")
