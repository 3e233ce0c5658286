"""The algorithms on a tiny pre-trained encoder: what travels, what is learnt, and that transformers load it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from fedray.core.algorithm import Algorithm
from fedray.core.types import Change, ServerState
from fedray.data.federation.speech_data import SpeechData
from fedray.models.memory import Memory
from fedray.training import stack, together
from tests import speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client, personal

transformers = pytest.importorskip("transformers")
from tests.encoders import KINDS, write_encoder, write_vocabulary  # noqa: E402 - it needs transformers

pytestmark = pytest.mark.usefixtures("no_ray")
CLIENT = {"lr": 0.01, "batch": 2, "optimizer": "adam", "clip": 1.0}
SILENT = {
    name: 0.0
    for name in (
        "hidden_dropout",
        "attention_dropout",
        "activation_dropout",
        "feat_proj_dropout",
        "final_dropout",
        "layerdrop",
        "feat_quantizer_dropout",
        "conformer_conv_dropout",
    )
}


def write_corpus(folder: Path) -> Path:
    """The tones of `tests.speech`, with a label for each clip: its first letter."""
    manifest = speech.write_corpus(folder)
    head, *rows = manifest.read_text(encoding="utf-8").splitlines()
    labelled = [f"{head}\tlabel", *(f"{row}\t{row.split(chr(9))[2][0]}" for row in rows)]
    manifest.write_text("\n".join(labelled) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, beside it the checkpoints `wav2vec2` (with the letters' vocabulary) and `whisper`."""
    made = write_corpus(tmp_path_factory.mktemp("tones"))
    write_vocabulary(write_encoder(made / "wav2vec2", "wav2vec2", "ctc", layerdrop=0.0), "ABCD")
    write_encoder(made / "whisper", "whisper")
    return made


def settings(folder: Path, kind: str = "wav2vec2", server: bool = False, **sections: Any) -> dict[str, Any]:
    model = {"kind": "encoder", "folder": str(folder / kind), **sections.pop("model", {})}
    divided = sections.pop("data", {})
    base = {"features": {}, "task": {"decode": {"search": "greedy"}}, "model": model, "rounds": 1}
    found = speech.settings(folder, **{**base, "algorithm": {"kind": "fedavg", "client": CLIENT}, **sections})
    data = dict(found["data"])
    if not server:
        data.pop("server")
    data["options"] = {**data["options"], "label_column": "label"}
    return {**found, "data": data | divided}


def build(folder: Path, kind: str = "wav2vec2", **sections: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    return by_hand.build(settings(folder, kind, **sections))


def names_of(algorithm: Algorithm) -> list[str]:
    """The names of what is trained, and so travels."""
    layout = algorithm.task.layout
    return [entry.name for entry in layout.entries if entry.start < layout.trainable]


def waves(data: SpeechData) -> list[np.ndarray]:
    mine = data.load(data.client_ids()[0])
    found = [soundfile.read(path, dtype="float32")[0] for path in mine.column("path")]
    return [np.interp(np.arange(0, len(wave), 0.5), np.arange(len(wave)), wave).astype(np.float32) for wave in found]


def test_fedavg_learns_and_its_model_is_one_of_transformers(folder: Path, tmp_path: Path) -> None:
    algorithm, data, state = build(folder)
    task = algorithm.task
    assert task.tokeniser.fold == "lower" and task.outputs == 8
    losses, state = by_hand.play(algorithm, data, state, 6)
    assert losses[-1] < 0.5 * losses[0]
    algorithm.export(state, tmp_path / "model")
    processor = transformers.AutoProcessor.from_pretrained(tmp_path / "model")
    theirs = transformers.AutoModelForCTC.from_pretrained(tmp_path / "model").eval()
    mine = data.load(data.client_ids()[0])
    (ours,) = task.transcribe(state.params, mine, [task.greedy()], "cpu")
    for position, one in enumerate(ours):
        wave = mine.features[int(mine.rows[position])][:, 0].astype(np.float32) / 32768
        with torch.no_grad():
            logits = theirs(processor(wave, sampling_rate=16000, return_tensors="pt").input_values).logits
        assert processor.batch_decode(logits.argmax(-1), skip_special_tokens=True)[0].lower() == one.text.strip()
    again = settings(folder, model={"folder": str(tmp_path / "model")})
    algorithm, _, started = by_hand.build(again)
    assert np.array_equal(started.params, state.params), "the next run starts from this folder, with its head"


def test_own_tokens_come_with_a_tokeniser_of_transformers(folder: Path, tmp_path: Path) -> None:
    algorithm, data, state = build(folder, task={"tokens": "characters", "decode": {"search": "greedy"}})
    algorithm.export(state, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    tokens = algorithm.task.tokeniser.encode("ab cd")
    assert tokenizer("ab cd").input_ids == tokens and tokenizer.decode(tokens) == "ab cd"
    config = transformers.AutoModelForCTC.from_pretrained(tmp_path / "model").config
    assert (config.vocab_size, config.pad_token_id) == (6, 0)
    pieces = build(folder, task={"tokens": "bpe", "vocabulary": 9, "decode": {"search": "greedy"}})
    pieces[0].export(pieces[2], tmp_path / "pieces")
    assert (tmp_path / "pieces" / "tokeniser.model").exists() and not (tmp_path / "pieces" / "vocab.json").exists()


def test_whispers_encoder_with_ctc_is_written_as_a_state_dict(folder: Path, tmp_path: Path) -> None:
    algorithm, data, state = build(folder, "whisper", model={"seconds": 1.0})
    losses, state = by_hand.play(algorithm, data, state, 2)
    assert losses[1] < losses[0]
    algorithm.export(state, tmp_path / "model")
    saved = torch.load(tmp_path / "model" / "model.pt", weights_only=True)
    assert saved["encoder.embed_positions.weight"].shape == (50, 32) and saved["ctc_head.weight"].shape == (6, 32)
    started = build(folder, "whisper", model={"seconds": 1.0, "init": str(tmp_path / "model" / "model.pt")})[2]
    assert np.array_equal(started.params, state.params)


@pytest.mark.parametrize("kind", ["wav2vec2", "whisper"])
@pytest.mark.parametrize("model", ["encoder", "whisper"])
def test_a_classifier_learns_and_is_one_of_transformers(kind: str, model: str, folder: Path, tmp_path: Path) -> None:
    if (kind, model) == ("wav2vec2", "whisper"):
        pytest.skip("model.kind whisper reads Whisper's checkpoints alone")
    if model == "whisper" and not (folder / "whisper" / "tokenizer.json").exists():
        (folder / "whisper" / "tokenizer.json").write_text('{"added_tokens": []}', encoding="utf-8")
    wanted = settings(folder, kind, task={"kind": "classification"}) | {
        "model": {"kind": model, "folder": str(folder / kind)}
    }
    algorithm, data, state = by_hand.build(wanted)
    losses, state = by_hand.play(algorithm, data, state, 6)
    assert losses[-1] < losses[0]
    algorithm.export(state, tmp_path / "model")
    theirs = transformers.AutoModelForAudioClassification.from_pretrained(tmp_path / "model").eval()
    assert list(theirs.config.id2label.values()) == algorithm.task.classes
    extractor = transformers.AutoFeatureExtractor.from_pretrained(tmp_path / "model")
    mine = data.load(data.client_ids()[0])
    ours = algorithm.task.logits(state.params, mine, "cpu")
    for position, wave in enumerate(waves(data)):
        if kind == "wav2vec2":
            wave = mine.features[int(mine.rows[position])][:, 0].astype(np.float32) / 32768
        made = extractor(wave, sampling_rate=16000, return_tensors="pt")
        with torch.no_grad():
            logits = theirs(next(iter(made.values()))).logits[0].numpy()
        np.testing.assert_allclose(logits, ours[position], atol=2e-3 if kind == "wav2vec2" else 0.05)
    again = build(folder, kind, task={"kind": "classification"}, model={"folder": str(tmp_path / "model")})[2]
    assert np.array_equal(again.params, state.params), "the same classes: the last layer is loaded too"


def test_only_what_trains_travels(folder: Path) -> None:
    whole, frozen = build(folder), build(folder, model={"frozen": ["^encoder"]})
    assert not any("feature_extractor" in name for name in names_of(whole[0]))
    assert names_of(frozen[0]) == ["ctc_head.weight", "ctc_head.bias"]
    layout = frozen[0].task.layout
    assert frozen[0].constant == layout.size - layout.trainable
    update = frozen[0].client_update(client(frozen[1]), arrived(frozen[0], frozen[2]))
    assert len(update.delta) == 8 * 33 and np.abs(update.delta).max() > 0


def test_adapters_learn_and_are_merged(folder: Path, tmp_path: Path) -> None:
    algorithm, data, state = build(
        folder,
        algorithm={"kind": "fedlora", "lora": {"rank": 2, "alpha": 4}, "client": {"lr": 0.02, "warmup": 1, "batch": 2}},
    )
    names = names_of(algorithm)
    # in each of two layers: query, key, value, output, and two feed-forward matrices
    assert len([name for name in names if name.endswith(".a")]) == 2 * 6
    assert [name for name in names if "parametrizations" not in name] == ["ctc_head.weight", "ctc_head.bias"]
    losses, state = by_hand.play(algorithm, data, state, 6)
    assert losses[-1] < losses[0]
    mine = data.load(data.client_ids()[0])
    adapted = algorithm.task.losses(state.params, mine, "cpu")
    merged = algorithm.backbone.losses(algorithm.merged(state.params), mine, "cpu")
    np.testing.assert_allclose(merged, adapted, rtol=1e-3)
    algorithm.export(state, tmp_path / "model")
    theirs = transformers.AutoModelForCTC.from_pretrained(tmp_path / "model").state_dict()
    start = transformers.AutoModelForCTC.from_pretrained(folder / "wav2vec2").state_dict()
    moved = {name for name, value in theirs.items() if not torch.equal(value, start[name])}
    assert moved and all("attention." in name or "dense.weight" in name or "lm_head" in name for name in moved)


@pytest.mark.parametrize("keys", [None, 1])
def test_a_memory_of_frames_speaks(keys: int | None, folder: Path) -> None:
    algorithm, data, state = build(
        folder,
        model={} if keys is None else {"keys": keys},
        algorithm={"kind": "fedmem", "k": [1], "share": [0.99], "temperature": [0.01]},
        evaluation={"personal_final": True},
        cohort={"fraction": 1.0},
    )
    received = arrived(algorithm, state)
    update = algorithm.client_update(client(data), received)
    memory = Memory.of(update.state, update.state["model"])
    assert memory.index.d == 32, "of the output, or of the first layer"
    scores = personal(algorithm, client(data, state=update.state), received, {"mine": data.load(data.client_ids()[0])})
    assert scores["mine"]["wer_alone"] >= 100 and scores["mine"]["wer"] == 0, "what it has heard it knows by heart"


def test_fednst_labels_and_trains(folder: Path) -> None:
    pretrain = {"steps": 3, "warmup": 1, "batch": 4, "lr": 0.01}
    algorithm, data, state = build(
        folder, server=True, algorithm={"kind": "fednst", "alpha": 0.5, "client": CLIENT, "pretrain": pretrain}
    )
    received = arrived(algorithm, state)
    labels = algorithm.client_prepare(client(data), received)
    update = algorithm.client_update(client(data, state=labels), received)
    assert np.isfinite(update.delta).all() and algorithm.task.capacity.most_frames is None


@pytest.mark.parametrize(
    ("section", "data"),
    [
        ({"kind": "fedstar", "client": {**CLIENT, "l2": 0.0}}, {"labelled": {"utterances": 0.5}}),
        ({"kind": "fedmlac", "sizes": ["1", "2"], "client": CLIENT}, {}),
        ({"kind": "fedprox", "client": CLIENT}, {}),
    ],
)
def test_classifying_algorithms(section: dict[str, Any], data: dict[str, Any], folder: Path) -> None:
    algorithm, found, state = build(
        folder,
        task={"kind": "classification"},
        model={"layers": "1"} if section["kind"] == "fedmlac" else {},
        algorithm=section,
        data=data,
    )
    received = arrived(algorithm, state)
    own = algorithm.client_prepare(client(found), received) if section["kind"] == "fedmlac" else None
    update = algorithm.client_update(client(found, state=own), received)
    assert np.isfinite(update.delta).all() and np.abs(update.delta).max() > 0
    if section["kind"] == "fedmlac":
        sizes = {size: task.layout.size for size, task in algorithm.personal.items()}
        assert sizes["1"] < sizes["2"] and update.state["params"].size == sizes[update.state["size"]]


def test_gao_weighs_by_word_error_rates(folder: Path) -> None:
    gao = {"kind": "gao", "client": {**CLIENT, "epochs": 1}, "server_finetune": False, "pretrain": {"steps": 0}}
    algorithm, data, state = build(folder, algorithm=gao, strategy="by_wer")
    received = arrived(algorithm, state, data=data)
    assert algorithm.client_update(client(data), received).report["wer"] > 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "adapter" not in kind])
def test_clients_side_by_side_learn_what_they_learn_alone(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All clips have one length, so the clients' models run as one."""
    silent = {} if kind == "whisper" else SILENT
    write_encoder(tmp_path / "model", kind, **silent)
    algorithm, data, state = build(folder, model={"folder": str(tmp_path / "model"), "time_mask": 0.0})
    calls: list[int] = []
    compute = stack.Stack._compute

    def counted(self: stack.Stack, function: Callable[..., Any], named: Any, tensors: Any) -> Any:
        calls.append(len(tensors[1]))
        return compute(self, function, named, tensors)

    monkeypatch.setattr(stack.Stack, "_compute", counted)
    received, clients = arrived(algorithm, state), [client(data, place) for place in range(3)]
    alone = [algorithm.client_update(one, received) for one in clients]
    beside = list(together.train(iter(clients), 3, lambda one: algorithm.client_update(one, received)))
    assert calls == [3] * len(calls) and calls
    for one, other in zip(alone, beside, strict=True):
        assert not isinstance(other, Exception)
        np.testing.assert_allclose(other.delta, one.delta, atol=2e-2 * np.abs(one.delta).max())


def test_aggregated_updates_are_applied(folder: Path) -> None:
    algorithm, data, state = build(folder)
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    after = algorithm.server_update(state, Change(update.delta), 0)
    layout = algorithm.task.layout
    np.testing.assert_allclose(
        after.params[: layout.trainable], state.params[: layout.trainable] + update.delta[: layout.trainable], rtol=1e-6
    )
    assert np.array_equal(after.params[layout.trainable :], state.params[layout.trainable :])


def test_a_sub_word_vocabulary_is_refused_with_words(folder: Path, tmp_path: Path) -> None:
    write_encoder(tmp_path / "plain", "wav2vec2")
    with pytest.raises(ValueError, match=r"has no tokens of CTC \(vocab.json\): set task.tokens=characters"):
        build(folder, model={"folder": str(tmp_path / "plain")}, task={"tokens": "pretrained"})
    write_vocabulary(write_encoder(tmp_path / "letters", "wav2vec2"), "AB")
    assert json.loads((tmp_path / "letters" / "vocab.json").read_text(encoding="utf-8"))["A"] == 3
