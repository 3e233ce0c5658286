"""Translation by every encoder-decoder: targets, losses, searches, scores, rows and exports, without Ray."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from torch.nn.functional import cross_entropy

from fedray.core.algorithm import Algorithm
from fedray.core.metrics import Metrics
from fedray.core.types import ServerState
from fedray.data.features.dataset import collate
from fedray.data.federation.speech_data import SpeechData
from fedray.training.recognisers import decoder_losses
from fedray.training.task import targets_at
from fedray.training.translation import Labels, TranslationSettings
from tests import speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client

CONFORMER = {"d_model": 32, "ffn": 64, "layers": 1, "kernel": 7, "decoder_layers": 1, "dropout": 0.0}
SMALL = {"channels": [4], "rnn_neurons": 16, "dnn_neurons": 16, "decoder_neurons": 16, "attention": 8, "embedding": 8}
CRDNN = {"kind": "crdnn", **SMALL, "attention_kernel": 3, "attention_channels": 2, "decoder_layers": 1}
PLAIN = {"time_masks": 0, "frequency_masks": 0}


pytestmark = pytest.mark.usefixtures("no_ray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech.write_corpus(tmp_path_factory.mktemp("tones")).parent


def settings(folder: Path, algorithm: Any = None, task: Any = None, model: Any = None, **more: Any) -> dict[str, Any]:
    """A configuration that translates letters into hanzi."""
    chosen = {"client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}} if algorithm is None else algorithm
    wanted = speech.settings(
        folder,
        algorithm={"kind": "fedavg", **chosen},
        task={"kind": "translation", "bleu": "zh", "augment": PLAIN, "decode": {"beam": 3}, **(task or {})},
        model=model or CONFORMER,
        rounds=1,
    )
    wanted["data"]["options"]["translation_column"] = "translation"
    return wanted | more


def build(folder: Path, **sections: Any) -> tuple[Algorithm, SpeechData, ServerState]:
    return by_hand.build(settings(folder, **sections))


def test_targets_are_the_translations_in_tokens_of_their_own(folder: Path) -> None:
    algorithm, data, _ = build(folder)
    task, mine = algorithm.task, data.load(data.client_ids()[0])
    assert task.tokeniser.tokens == ["<blank>", *sorted("天地人和")]
    assert [task.tokeniser.decode(target) for target in task.targets(mine)] == mine.translations
    assert mine.translations == [text.translate(speech.HANZI) for text in mine.texts]
    assert task.best == ("dev/bleu", "max")


def test_ctc_learns_transcripts_beside_the_decoder(folder: Path) -> None:
    algorithm, data, state = build(folder, task={"ctc_weight": 0.4})
    task, mine = algorithm.task, data.load(data.client_ids()[0])
    targets = pickle.loads(pickle.dumps(targets_at(task.targets(mine), np.array([1, 0]))))
    assert all(isinstance(target, Labels) for target in targets)
    assert [task.transcripts.decode(target.transcript) for target in targets] == [mine.texts[1], mine.texts[0]]
    model = task.flat("cpu").model
    assert model.ctc_head.w.out_features == len(" abcd") + 1 and model.attention_head.w.out_features == 4 + 3
    before = algorithm.client_update(client(data), arrived(algorithm, state)).metrics["loss"]
    after = algorithm.client_update(client(data), arrived(algorithm, state, 0)).metrics["loss"]
    assert before == after > 0


def test_without_ctc_there_is_no_layer_for_it(folder: Path) -> None:
    for model in (CONFORMER, CRDNN):
        algorithm, _, _ = build(folder, model=model)
        assert not [entry.name for entry in algorithm.task.layout.entries if "ctc" in entry.name]


def test_smoothing_is_that_of_torch() -> None:
    torch.manual_seed(0)
    logits, after = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    for smoothing in (0.0, 0.1, 0.5):
        expected = cross_entropy(logits.transpose(1, 2), after, reduction="none", label_smoothing=smoothing)
        torch.testing.assert_close(decoder_losses(logits.log_softmax(-1), after, smoothing), expected)


def test_the_loss_is_the_decoders_with_smoothed_labels(folder: Path) -> None:
    """By default, a tenth of each label is spread over all tokens."""
    algorithm, data, state = build(folder)
    task, mine = algorithm.task, data.load(data.client_ids()[0])
    flat = task.flat("cpu")
    flat.load(state.params)
    model, batch, targets, losses = flat.model.eval(), collate(mine, np.arange(2)), task.targets(mine)[:2], []
    with torch.no_grad():
        found = float(task.loss(model, batch, targets))
        hidden, lengths = model.encode(batch.features, batch.lengths)
        for row, target in enumerate(targets):
            before = torch.tensor([[model.bos, *target]])
            decoded = model.attend(hidden[row : row + 1], lengths[row : row + 1], before)[0]
            losses.append(float(cross_entropy(decoded, torch.tensor([*target, model.eos]), label_smoothing=0.1)))
    assert found == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.parametrize("model", [CONFORMER, CRDNN], ids=["conformer", "crdnn"])
@pytest.mark.parametrize("ctc_weight", [0.0, 0.3])
def test_a_client_learns_and_the_scores_of_shards_add_up(folder: Path, model: Any, ctc_weight: float) -> None:
    chosen = {"client": {"lr": 0.005, "batch": 4, "epochs": 8, "optimizer": "adam"}, "pretrain": {"steps": 0}}
    algorithm, data, state = build(folder, algorithm=chosen, model=model, task={"ctc_weight": ctc_weight})
    losses, state = by_hand.play(algorithm, data, state, rounds=3)
    assert losses[2] < losses[0]
    received, mine = arrived(algorithm, state), data.load(data.client_ids()[0])
    whole = algorithm.evaluate(mine, received, final=True)
    assert list(whole.metrics) == ["bleu", "chrf", "bleu_beam", "chrf_beam"]
    rows = whole.predictions
    assert list(rows[0]) == [
        *("utterance", "speaker", "label", "source", "reference"),
        *("hypothesis", "bleu", "hypothesis_beam", "bleu_beam"),
    ]
    assert [row["source"] for row in rows] == mine.texts and [row["reference"] for row in rows] == mine.translations
    for suffix in ("", "_beam"):
        found, references = [row[f"hypothesis{suffix}"] for row in rows], [[row["reference"] for row in rows]]
        assert whole.metrics[f"bleu{suffix}"] == sacrebleu.corpus_bleu(found, references, tokenize="zh").score
    parts = [algorithm.evaluate(mine.take(np.array(at)), received, final=False).metrics for at in ([0, 2], [1], [3])]
    pooled = sum(parts, Metrics())
    assert (pooled["bleu"], pooled["chrf"]) == (whole.metrics["bleu"], whole.metrics["chrf"])


EXAMPLES = """
import contextlib, json, runpy, sys
sys.modules["fedray"] = None
for folder, wave in json.loads(sys.argv[1]):
    sys.argv = ["example.py", wave]
    with contextlib.chdir(folder):
        runpy.run_path("example.py")
"""


@pytest.mark.long
def test_the_exported_folders_translate_without_fedray(folder: Path, tmp_path: Path) -> None:
    chosen = {"pretrain": {"steps": 25, "warmup": 5, "batch": 8, "lr": 5e-3}}
    runs, expected = [], []
    for name, model, ctc_weight in (("conformer", CONFORMER, 0.0), ("crdnn", CRDNN, 0.2)):
        algorithm, data, state = build(folder, algorithm=chosen, model=model, task={"ctc_weight": ctc_weight})
        algorithm.export(state, tmp_path / name)
        assert (tmp_path / name / "transcripts" / "tokens.txt").is_file() == (ctc_weight > 0)
        dev = data.evaluation("dev").take(np.array([0]))
        expected += algorithm.task.found(state.params, dev, {"bleu": algorithm.task.greedy()}, "cpu")["bleu"]
        runs.append((str(tmp_path / name), str(folder / dev.ids[0])))
    command = [sys.executable, "-I", "-W", "ignore", "-c", EXAMPLES, json.dumps(runs)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == expected and all(expected)


def test_another_corpus_takes_the_tokens_of_a_trained_model(folder: Path, tmp_path: Path) -> None:
    algorithm, _, state = build(folder, task={"ctc_weight": 0.2})
    algorithm.export(state, tmp_path / "run" / "model")
    lines = (folder / "manifest.tsv").read_text(encoding="utf-8").replace("天", "云").replace(" a", " e")
    other = tmp_path / "other"
    other.mkdir()
    (other / "wav").symlink_to(folder / "wav")
    (other / "manifest.tsv").write_text(lines, encoding="utf-8")
    model = CONFORMER | {"init": str(tmp_path / "run" / "model" / "model.pt")}
    task = {"tokens": "pretrained", "transcript_tokens": "pretrained", "ctc_weight": 0.2, "unknown": "leave_out"}
    again, data, started = build(other, task=task, model=model)
    assert again.task.tokeniser.tokens == algorithm.task.tokeniser.tokens
    assert again.task.transcripts.tokens == algorithm.task.transcripts.tokens
    np.testing.assert_array_equal(started.params, state.params)
    with pytest.raises(ValueError, match=r"tokens.txt, .*there and '云' here\): set task.tokens=pretrained"):
        build(other, task={"ctc_weight": 0.2}, model=model)
    with pytest.raises(ValueError, match=r"transcripts/tokens.txt, .*: set task.transcript_tokens=pretrained"):
        build(other, task={"tokens": "pretrained", "ctc_weight": 0.2, "unknown": "leave_out"}, model=model)
    mine = data.load(data.client_ids()[0])
    spoken = [again.task.tokeniser.decode(target) for target in again.task.targets(mine)]
    assert spoken == [text.replace("云", "") for text in mine.translations], "云 has no token"
    (tmp_path / "run" / "model" / "tokens.txt").unlink()
    with pytest.raises(ValueError, match="model: has no tokeniser"):
        build(other, task=task, model=model)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no decoder": ({"model": {"d_model": 32}}, "needs a decoder: set model.decoder_layers"),
    "no recogniser": ({"model": {"kind": "crnn"}}, "needs a decoder, which CRNN lacks: set model.kind=conformer"),
    "no checkpoint": ({"task": {"tokens": "pretrained"}}, "tokens=pretrained needs a checkpoint"),
    "transcripts' tokens": (
        {"task": {"transcript_tokens": "pretrained"}},
        "transcript_tokens=pretrained needs task.tokens=pretrained: both are next to model.init",
    ),
    "tokens": (
        {"task": {"tokens": "words"}},
        "tokens must be one of characters, unigram, bpe, pretrained, not 'words'",
    ),
    "bleu": ({"task": {"bleu": "ja-mecab"}}, "bleu must be one of 13a, intl, zh, char, none, not 'ja-mecab'"),
    "all ctc": ({"task": {"ctc_weight": 1.0}}, "task.ctc_weight must be at least 0 and below 1"),
    "transcripts": (
        {"algorithm": {"kind": "fednst"}, "task": {"ctc_weight": 0.1}},
        "labels speech with translations, and CTC needs transcripts: set task.ctc_weight=0",
    ),
    "frames": (
        {"algorithm": {"kind": "fedmem"}, "cohort": {"fraction": 1.0}, "evaluation": {"personal_final": True}},
        "CTC, which writes no translations: set algorithm.memory.keys=states",
    ),
    "by_wer": (
        {"algorithm": {"kind": "gao"}, "strategy": "by_wer"},
        "by_wer measures word error rates, so it needs task.kind recognition",
    ),
    "fedstar": ({"algorithm": {"kind": "fedstar"}}, "fedstar trains classifiers: set task.kind=classification"),
    "fedmlac": ({"algorithm": {"kind": "fedmlac"}}, "fedmlac trains classifiers of several sizes"),
}


@pytest.mark.parametrize(("sections", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_before_data_is_read(tmp_path: Path, sections: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(tmp_path, **sections)


def test_data_without_translations_is_refused(folder: Path, tmp_path: Path) -> None:
    wanted = settings(folder)
    del wanted["data"]["options"]["translation_column"]
    with pytest.raises(ValueError, match="the training data have no translations: name their column in data.options"):
        by_hand.build(wanted)
    speech.write_corpus(tmp_path)
    table = tmp_path / "manifest.tsv"
    head, *lines = table.read_text(encoding="utf-8").splitlines()
    cut = [line.rpartition("\t")[0] + "\t" if "\tdev\t" in line or "s00-1" in line else line for line in lines]
    table.write_text("\n".join([head, *cut]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev: utterance wav/s06-0.wav has no translation to score by"):
        build(tmp_path)
    cut = [line.rpartition("\t")[0] + "\t" if "s00-1" in line else line for line in lines]
    table.write_text("\n".join([head, *cut]) + "\n", encoding="utf-8")
    algorithm, data, state = build(tmp_path)
    everyone = data.training()[-1]
    if "wav/s00-1.wav" not in everyone.ids:
        everyone = data.server()
    with pytest.raises(ValueError, match="utterance wav/s00-1.wav has no translation, which training needs"):
        algorithm.task.targets(everyone)


def test_defaults_are_those_of_the_field() -> None:
    chosen = TranslationSettings()
    assert (chosen.label_smoothing, chosen.ctc_weight, chosen.bleu) == (0.1, 0.0, "13a")


def test_a_beam_keeps_as_many_hypotheses_as_it_is_told(folder: Path) -> None:
    task = build(folder)[0].task
    assert {name: search.settings.beam for name, search in task.searches({}).items()} == {"bleu": 1, "bleu_beam": 3}
    assert task.search({}).settings.beam == 3, "of pseudo-labels too"
    assert list(build(folder, task={"decode": {"beam": 1}})[0].task.searches({})) == ["bleu"]
