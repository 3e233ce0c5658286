"""One switch for all kernels: without them models, loss and search give the same but for rounding."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from fedray import experiment
from fedray.core.parallel import serial
from fedray.models import MODELS, kernels
from fedray.models.audio_cnn import AudioCNNSettings
from fedray.models.conformer import ConformerSettings
from fedray.models.crdnn import CRDNNSettings
from fedray.models.crnn import CRNNSettings
from fedray.models.language_model import NGram
from fedray.training.decoding.beam import BeamSearch
from fedray.training.decoding.search import DecodeSettings
from fedray.training.speech_to_text import aligned_loss
from tests import speech
from tests.models.kernels.without import removed, switched_off

SETTINGS = {
    "conformer": ConformerSettings(d_model=16, layers=1, heads=2, ffn=24, kernel=3, dropout=0.0),
    "crdnn": CRDNNSettings(channels=(4,), rnn_neurons=8, dnn_neurons=8, dropout=0.0),
    "crnn": CRNNSettings("tiny", dropout=0.0),
    "audio_cnn": AudioCNNSettings(dropout=0.0),
}
TOKENS = [[1, 2, 3], [4, 5]]


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """The outputs of a step, and the gradients."""
    torch.manual_seed(1)
    features, lengths = torch.randn(2, 64, 20), torch.tensor([64, 49])
    outputs = model(features, lengths)
    if isinstance(outputs, tuple):
        found, lengths = outputs
        sizes = torch.tensor([len(row) for row in TOKENS])
        loss = aligned_loss(found, torch.tensor([token for row in TOKENS for token in row]), lengths, sizes)
    else:
        found = outputs
        loss = found.square().sum()
    return [found.detach(), loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_step_without_kernels_is_one_with_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = MODELS[kind](SETTINGS[kind], 20, 8)
    compiled = gradients(model)
    removed(monkeypatch)
    with pytest.raises(ImportError):
        gradients(model)
    with switched_off():
        for one, other in zip(gradients(model), compiled, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_search_without_kernels_has_the_same_bits() -> None:
    log_probs = torch.randn(3, 20, 6, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    search = BeamSearch(DecodeSettings(beam=4), str, NGram.train(TOKENS, 2, vocabulary=6))
    compiled = search(log_probs, torch.tensor([20, 7, 12]))
    with switched_off():
        assert search(log_probs, torch.tensor([20, 7, 12])) == compiled


def test_actors_follow_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML reads off as false."""
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / "cache"))
    speech.write_corpus(tmp_path, speakers=6, utterances=1)
    sent = {}
    try:
        for choice in (False, "off", "auto"):
            config, source = experiment.load(speech.settings(tmp_path, rounds=1) | {"kernels": choice})
            data, _ = experiment.build_data(config, source, serial)
            algorithm = experiment.build_algorithm(config, data)
            assert kernels.switched_on() == (choice == "auto") and "kernels" in algorithm.init_depends
            sent[choice] = pickle.dumps(algorithm.task)
        for choice, task in sent.items():
            assert pickle.loads(task).kernels == kernels.switched_on() == (choice == "auto")
    finally:
        kernels.switch(True)
