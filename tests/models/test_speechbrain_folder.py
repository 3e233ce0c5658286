"""SpeechBrain's folders as they are downloaded: what EncoderASR transcribes, fedray transcribes, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from hyperpyyaml import load_hyperpyyaml
from speechbrain.dataio.encoder import CTCTextEncoder
from speechbrain.inference.ASR import EncoderASR

from fedray import experiment
from fedray.data.text.tokenisers import SentencePiece
from fedray.models.speechbrain_folder import SpeechBrainCTC, SpeechBrainSettings
from tests import speech
from tests.algorithms import by_hand

pytestmark = pytest.mark.usefixtures("no_ray")
YAML = """\
pretrained_path: some/where
sample_rate: 16000
blank_index: 0
fbank: !new:speechbrain.lobes.features.Fbank
  sample_rate: !ref <sample_rate>
  n_mels: 20
  n_fft: 400
norm: !new:speechbrain.processing.features.InputNormalization
  norm_type: sentence
enc: !new:speechbrain.nnet.RNN.GRU
  input_shape: [null, null, 20]
  hidden_size: 16
ctc_lin: !new:speechbrain.nnet.linear.Linear
  input_size: 16
  n_neurons: 6
log_softmax: !new:speechbrain.nnet.activations.Softmax
  apply_log: true
asr_model: !new:torch.nn.ModuleList
  - [!ref <enc>, !ref <ctc_lin>]
encoder: !new:speechbrain.nnet.containers.LengthsCapableSequential
  input_shape: [null, null]
  compute_features: !ref <fbank>
  normalize: !ref <norm>
  enc: !ref <enc>
  ctc_lin: !ref <ctc_lin>
  log_softmax: !ref <log_softmax>
tokenizer: !new:speechbrain.dataio.encoder.CTCTextEncoder
decoding_function: !name:speechbrain.decoders.ctc_greedy_decode
  blank_id: !ref <blank_index>
modules:
  encoder: !ref <encoder>
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
  loadables:
    asr: !ref <asr_model>
    tokenizer: !ref <tokenizer>
  paths:
    asr: !ref <pretrained_path>/asr.ckpt
    tokenizer: !ref <pretrained_path>/tokenizer.ckpt
"""
SUBWORDS = "tokenizer: !new:sentencepiece.SentencePieceProcessor"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    speech.write_corpus(folder)
    return folder


def write(folder: Path, text: str = YAML) -> Path:
    """A folder as SpeechBrain publishes it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hyperparams.yaml").write_text(text, encoding="utf-8")
    torch.manual_seed(0)
    parts = load_hyperpyyaml(text)
    torch.save(parts["asr_model"].state_dict(), folder / "asr.ckpt")
    if SUBWORDS in text:
        (folder / "tokenizer.ckpt").write_bytes(SentencePiece.train(["ab cd", "ba dc", "ca bd"], 6, "bpe").proto)
        return folder
    tokens = CTCTextEncoder()
    tokens.ignore_len()
    tokens.insert_blank(index=0)
    for letter in "abcd ":
        tokens.add_label(letter)
    tokens.save(folder / "tokenizer.ckpt")
    return folder


def settings(corpus: Path, folder: Path, **model: Any) -> dict[str, Any]:
    base = {"features": {}, "task": {"decode": {"search": "greedy"}}, "rounds": 1}
    model = {"kind": "speechbrain", "folder": str(folder), "trusted": True, **model}
    algorithm = {"kind": "fedavg", "client": {"lr": 0.05, "batch": 2}}
    found = speech.settings(corpus, **base, model=model, algorithm=algorithm)
    return found | {"data": {key: value for key, value in found["data"].items() if key != "server"}}


def theirs(folder: Path) -> EncoderASR:
    found = EncoderASR.from_hparams(str(folder), savedir=str(folder), overrides={"pretrained_path": str(folder)})
    found.tokenizer.ignore_len()
    return found


def test_it_transcribes_as_encoder_asr_does(corpus: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder")
    algorithm, data, state = by_hand.build(settings(corpus, folder))
    losses, state = by_hand.play(algorithm, data, state, 3)
    assert losses[-1] < losses[0] and algorithm.task.tokeniser.tokens == ["<blank>", *"abcd "]
    algorithm.export(state, tmp_path / "model")
    asr, mine = theirs(tmp_path / "model"), data.load(data.client_ids()[0])
    (ours,) = algorithm.task.transcribe(state.params, mine, [algorithm.task.greedy()], "cpu")
    for position, one in enumerate(ours):
        wave = torch.from_numpy(mine.features[int(mine.rows[position])][:, 0].astype(np.float32) / 32768)
        assert asr.transcribe_batch(wave[None], torch.ones(1))[0] == [one.text]
    again = by_hand.build(settings(corpus, tmp_path / "model"))[2]
    assert np.array_equal(again.params, state.params)


def test_sub_words(corpus: Path, tmp_path: Path) -> None:
    text = YAML.replace("tokenizer: !new:speechbrain.dataio.encoder.CTCTextEncoder", SUBWORDS)
    algorithm, data, state = by_hand.build(settings(corpus, write(tmp_path / "folder", text)))
    assert isinstance(algorithm.task.tokeniser, SentencePiece) and algorithm.task.outputs == 6
    assert sentencepiece.SentencePieceProcessor(model_proto=algorithm.task.tokeniser.proto).get_piece_size() == 6
    assert by_hand.play(algorithm, data, state, 1)[0][0] > 0


def test_nothing_is_executed_before_the_user_says_so(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder)
    harm = f"harm: !apply:pathlib.Path.touch [!new:pathlib.Path ['{tmp_path / 'touched'}']]\n"
    (folder / "hyperparams.yaml").write_text(harm + YAML, encoding="utf-8")
    loaded, source = experiment.load(settings(corpus, folder, trusted=False))
    with pytest.raises(ValueError, match=r"is HyperPyYAML, which can execute anything .* read it, then"):
        experiment.check(loaded, source)
    with pytest.raises(ValueError, match="HyperPyYAML"):
        SpeechBrainCTC(SpeechBrainSettings(str(folder)), 1, 6)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("modules:\n  encoder:", "modules:\n  other:", "has no modules.encoder"),
        ("pretrainer:", "other:", "has no pretrainer"),
        ("!ref <pretrained_path>/asr.ckpt", "nowhere/asr.ckpt", "names nowhere/asr.ckpt, which is not there"),
    ],
)
def test_what_is_missing_is_named(old: str, new: str, words: str, tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "hyperparams.yaml").write_text(YAML.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        SpeechBrainCTC(SpeechBrainSettings(str(folder), trusted=True), 1, 6).load_pretrained()


def test_a_folder_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model.folder is missing: set it to a folder of SpeechBrain's"):
        SpeechBrainCTC(SpeechBrainSettings(), 1, 6)
    with pytest.raises(ValueError, match="has no hyperparams.yaml"):
        SpeechBrainCTC(SpeechBrainSettings(str(tmp_path)), 1, 6)


def test_a_corpus_mean_is_the_folders_and_stays(corpus: Path, tmp_path: Path) -> None:
    """`InputNormalization` with norm_type global, as in SpeechBrain's recipes for LibriSpeech."""
    text = YAML.replace("norm_type: sentence", "norm_type: global")
    text = text.replace(
        "    tokenizer: !ref <tokenizer>\n", "    tokenizer: !ref <tokenizer>\n    normalizer: !ref <norm>\n"
    )
    folder = write(tmp_path / "folder", text + "    normalizer: !ref <pretrained_path>/normalizer.ckpt\n")
    norm = load_hyperpyyaml(text)["norm"].train()
    norm(torch.randn(4, 50, 20) * 3 - 5, torch.ones(4))
    norm._save(folder / "normalizer.ckpt")
    algorithm, data, state = by_hand.build(settings(corpus, folder))
    mine = data.load(data.client_ids()[0])

    def told(model: Path) -> None:
        asr = theirs(model)
        (ours,) = algorithm.task.transcribe(state.params, mine, [algorithm.task.greedy()], "cpu")
        for position, one in enumerate(ours):
            wave = torch.from_numpy(mine.features[int(mine.rows[position])][:, 0].astype(np.float32) / 32768)
            assert asr.transcribe_batch(wave[None], torch.ones(1))[0] == [one.text]

    told(folder)
    _, state = by_hand.play(algorithm, data, state, 2)
    algorithm.export(state, tmp_path / "model")
    told(tmp_path / "model")
