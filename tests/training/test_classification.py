"""Classification as a task, on synthetic features: classes, errors, scores by hand, exported files, pickled size."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedray.algorithms.fednst import FedNST, FedNSTSettings
from fedray.core.algorithm import Setup
from fedray.core.metrics import Metrics
from fedray.core.server_optimizers import SGD
from fedray.core.settings import Choice
from fedray.core.strategies import ByExamples
from fedray.data.features.augment import SpecAugmentSettings
from fedray.data.features.dataset import Utterances, collate, shard
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.store import FeatureStore
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Manifest
from fedray.models import MODELS
from fedray.models.conformer import ConformerSettings
from fedray.models.crnn import CRNNSettings
from fedray.training.classification import Classification, ClassificationSettings
from fedray.training.recognition import Recognition, RecognitionSettings
from fedray.training.task import SHOWN

BINS = 3
Labels = Sequence[str | None]


def clips(folder: Path, name: str, labels: Labels, first_frames: Any = None) -> Utterances:
    """Clips of 4 frames; those of clip i hold `first_frames[i]` (default: random). Texts are labels in upper case."""
    folder = folder / name
    folder.mkdir(parents=True)
    values = np.random.default_rng(0).standard_normal((len(labels), BINS)) if first_frames is None else first_frames
    np.repeat(np.asarray(values, np.float16), 4, axis=0).tofile(folder / "frames.f16")
    np.save(folder / "offsets.npy", 4 * np.arange(len(labels) + 1))
    (folder / "store.json").write_text(f'{{"bins": {BINS}, "broken": {{}}}}')
    rows = [
        {
            "utterance": f"{name}{i}",
            "path": "/x.wav",
            "seconds": 1.0,
            "speaker": name,
            "label": label,
            "text": label and label.upper(),
        }
        for i, label in enumerate(labels)
    ]
    return Utterances(Manifest.from_rows(rows, source="test"), FeatureStore(folder), np.arange(len(labels)))


def federation(
    folder: Path, clients: Labels = ("no", "yes", "no"), server: Labels | None = None, dev: Labels | None = None
) -> SpeechData:
    """A federation of one client, `only`, which has all of the clients' clips but the last."""
    everyone = clips(folder, "client", [*clients, "nobody's"])
    splits = {} if dev is None else {"dev": clips(folder, "dev", dev)}
    return SpeechData(
        everyone, {"only": np.arange(len(clients))}, splits, None if server is None else clips(folder, "server", server)
    )


def task(data: SpeechData, model: Choice | None = None, **settings: Any) -> Classification:
    model = model or Choice("crnn", CRNNSettings("tiny"))
    return Classification(ClassificationSettings(**settings), model, LogMelSettings(bins=BINS), data)


def test_classes_are_what_server_and_clients_have(tmp_path: Path) -> None:
    built = task(federation(tmp_path, ["no", None, "yes"], server=["up", "no"], dev=["up"]))
    assert built.classes == ["no", "up", "yes"] and built.outputs == 3, "what no client has is no class"


def test_classes_may_be_given_in_an_order(tmp_path: Path) -> None:
    data = federation(tmp_path)
    built = task(data, classes=["yes", "maybe", "no"])
    assert built.targets(data.load("only")).tolist() == [2, 0, 2]
    assert task(data, label="text").classes == ["NO", "YES"]


def test_targets_follow_the_positions(tmp_path: Path) -> None:
    data = federation(tmp_path, ["no", "yes", "up", "no"])
    built, mine = task(data), data.load("only")
    assert built.targets(mine).tolist() == [0, 2, 1, 0]
    assert built.targets(mine.take(np.array([2, 0]))).tolist() == [1, 0]


def test_a_label_that_is_no_class_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="utterance dev1: its label 'down' is none of the classes no, yes"):
        task(federation(tmp_path / "a", dev=["no", "down"]))
    with pytest.raises(ValueError, match="utterance client1: its label 'yes' is none of the classes no, up"):
        task(federation(tmp_path / "b"), classes=["no", "up"])


def test_a_clip_without_a_label_is_named_where_its_class_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="utterance dev1 has no label"):
        task(federation(tmp_path / "a", dev=["no", None]))
    data = federation(tmp_path / "b", ["no", "yes", None])
    built = task(data)
    with pytest.raises(ValueError, match="utterance client2 has no label"):
        built.targets(data.load("only"))


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs two classes, but the labels of the training data are \['no'\]"):
        task(federation(tmp_path / "a", ["no", "no"]))
    with pytest.raises(ValueError, match=r"set task.label=text"):
        task(federation(tmp_path / "b", [None]))
    with pytest.raises(ValueError, match="two or more different labels"):
        ClassificationSettings(classes=["a", "a"])
    with pytest.raises(ValueError, match="label must be label or text, not 'speaker'"):
        ClassificationSettings(label="speaker")


def test_task_model_and_algorithm_must_fit(tmp_path: Path) -> None:
    data = federation(tmp_path)
    with pytest.raises(ValueError, match="task.kind classification cannot train Conformer.*set model.kind=crnn"):
        task(data, Choice("conformer", ConformerSettings()))
    with pytest.raises(ValueError, match="task.kind recognition cannot train CRNN.*set model.kind=conformer or crdnn"):
        Recognition(RecognitionSettings(), Choice("crnn", CRNNSettings()), LogMelSettings(bins=BINS), data)
    with pytest.raises(ValueError, match="fednst labels speech with its text, so it needs task.kind recognition"):
        crnn = MODELS["crnn"]
        FedNST.check_setup(
            FedNSTSettings(), Setup(Classification, None, crnn, None, ByExamples(), SGD(), 1, False, False)
        )


def test_what_travels_is_small_and_knows_the_same(tmp_path: Path) -> None:
    data = federation(tmp_path, ["no", "yes"] * 5000)
    built = task(data)
    targets = built.targets(data.load("only"))
    built.flat("cpu")
    packed = pickle.dumps(built)
    assert len(packed) < 4000
    arrived_data, arrived = pickle.loads(pickle.dumps(data)), pickle.loads(packed)
    np.testing.assert_array_equal(arrived.targets(arrived_data.load("only")), targets)


@dataclass(frozen=True)
class EchoSettings:
    init: str | None = None


class Echo(nn.Module):
    """A model whose logits are the first frame of the clip."""

    Settings = EchoSettings

    def __init__(self, settings: Any, bins: int, classes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.classes = classes

    def forward(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.scale * features[:, 0, : self.classes]


def echo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Classification, Utterances, np.ndarray]:
    monkeypatch.setitem(MODELS, "echo", Echo)
    data = clips(folder, "scored", ["a", "b", "c", "a"], [[2.0, 0, 0], [0, 1, 0], [1, 0, 0.5], [0.25, 0, 0.5]])
    federated = SpeechData(data, {"only": np.arange(4)}, {"dev": data}, None)
    built = task(federated, Choice("echo", EchoSettings()))
    return built, data, built.flat("cpu").read()


def test_accuracy_and_loss_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built, data, params = echo(tmp_path, monkeypatch)
    # The model answers a for the third clip and c for the fourth: 2 of 4 are correct.
    losses = [
        math.log(sum(map(math.exp, logits))) - logits[target]
        for logits, target in (((2, 0, 0), 0), ((0, 1, 0), 1), ((1, 0, 0.5), 2), ((0.25, 0, 0.5), 0))
    ]
    scored = built.evaluate(params, data, {}, "cpu", final=True)
    assert scored.metrics["accuracy"] == 50.0 and scored.metrics["loss"] == pytest.approx(sum(losses) / 4, rel=1e-6)
    assert scored.predictions[2] == {
        "utterance": "scored2",
        "speaker": "scored",
        "reference": "c",
        "hypothesis": "a",
        "errors": 1,
    }
    assert [row["errors"] for row in scored.predictions] == [0, 0, 1, 1]
    batch = collate(data, np.array([3, 1]))
    loss = built.loss(built.flat("cpu").model, batch, built.targets(data)[batch.positions]).detach()
    assert float(loss) == pytest.approx((losses[3] + losses[1]) / 2, rel=1e-6)


def test_shards_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built, data, params = echo(tmp_path, monkeypatch)
    whole = built.evaluate(params, data, {}, "cpu", final=False)
    parts = [built.evaluate(params, shard(data, index, 5), {}, "cpu", final=False) for index in range(5)]
    total = sum((part.metrics for part in parts), Metrics())
    assert dict(total) == pytest.approx(dict(whole.metrics))
    assert len(whole.predictions) == len(data) == SHOWN and not parts[-1].predictions
    assert not parts[-1].metrics, "the fifth shard of four clips is empty"


def test_masks_are_off_unless_asked_for(tmp_path: Path) -> None:
    data = federation(tmp_path)
    batch = collate(data.load("only"), np.arange(3))
    assert task(data).augment(batch) is batch
    masked = task(data, augment=SpecAugmentSettings(time_masks=0, frequency_masks=8, frequency_width=2)).augment(batch)
    assert (masked.features == 0).any() and not (batch.features == 0).any()
    warping = SpecAugmentSettings(time_masks=0, frequency_masks=0, time_warp=5)
    assert task(data, augment=warping).augment(batch) is not batch


def test_the_exported_model_is_a_state_dict_and_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built, _, params = echo(tmp_path, monkeypatch)
    built.export(2 * params, tmp_path / "model")
    state = torch.load(tmp_path / "model" / "model.pt", weights_only=True)
    assert {name: value.tolist() for name, value in state.items()} == {"scale": [2.0]}
    assert json.loads((tmp_path / "model" / "classes.json").read_text()) == ["a", "b", "c"]
    assert not (tmp_path / "model" / "example.py").exists(), "of a model of the user's nothing more is known"


def test_macro_f1_is_pooled_by_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With targets a a a b b c and answers a a b b a a, F1 of a is 2*2/(3+4), of b 2*1/(2+2), of c 0."""
    monkeypatch.setitem(MODELS, "echo", Echo)
    answers = np.eye(3)[[0, 0, 1, 1, 0, 0]]
    data = federation(tmp_path, list("abc"))
    built, dev = task(data, Choice("echo", EchoSettings())), clips(tmp_path, "scored", list("aaabbc"), answers)
    params = built.initial()
    expected = 100 * (4 / 7 + 2 / 4 + 0) / 3
    assert built.evaluate(params, dev, {}, "cpu", False).metrics["macro_f1"] == pytest.approx(expected)
    parts = [built.evaluate(params, shard(dev, index, 4), {}, "cpu", False).metrics for index in range(4)]
    assert sum(parts, Metrics())["macro_f1"] == pytest.approx(expected)


def test_a_clip_is_the_mean_of_its_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All four frames of a clip are equal, so each window of two frames has the clip's logits."""
    monkeypatch.setitem(MODELS, "echo", Echo)
    data = federation(tmp_path, list("abc"))
    whole, cut = task(data, Choice("echo", EchoSettings())), task(data, Choice("echo", EchoSettings()), window=0.035)
    dev = clips(tmp_path, "scored", list("abc"), np.eye(3))
    params = whole.initial()
    np.testing.assert_array_equal(cut.logits(params, dev, "cpu"), whole.logits(params, dev, "cpu"))
    assert cut.augment(collate(dev, np.arange(3))).features.shape == (3, 2, 3)


def test_short_clips_are_centred_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without mean subtraction, a clip of four frames has silence on both sides in a window of six, also in scoring."""
    monkeypatch.setitem(MODELS, "echo", Echo)
    data, features = federation(tmp_path), LogMelSettings(bins=BINS, normalise="none")
    built = Classification(ClassificationSettings(window=0.075), Choice("echo", EchoSettings()), features, data)
    windows = built.augment(collate(data.load("only"), np.arange(3)))
    assert windows.features.shape == (3, 6, BINS)
    assert windows.features[:, [0, 5]].unique().tolist() == pytest.approx([features.silence])
    logits = built.logits(built.initial(), data.load("only"), "cpu")
    assert logits == pytest.approx(np.full((3, 2), features.silence))


def test_no_more_windows_are_scored_together_than_clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation(tmp_path, ["no", "yes", "no", "yes", "no"], dev=["no", "yes"])
    built = task(data, window=0.04, hop=0.02)
    every = data.evaluation("dev")
    params, sizes = built.initial(), list[int]()
    wanted = built.logits(params, every, "cpu")
    monkeypatch.setattr(type(built), "scored_together", 2)
    model = built.flat("cpu").model
    handle = model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    found = built.logits(params, every, "cpu")
    handle.remove()
    assert sizes == [2, 2] and found == pytest.approx(wanted, abs=1e-5), "two windows of each of two clips"
