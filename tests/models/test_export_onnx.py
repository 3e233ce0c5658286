"""An exported model computes in onnxruntime what the model computes, for every kind and length."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile
import torch
from torchaudio.transforms import MelSpectrogram

from fedray.data.features.log_mel import LogMelSettings, log_mels
from fedray.models.audio_cnn import AudioCNN, AudioCNNSettings
from fedray.models.conformer import LONGEST, Conformer, ConformerSettings
from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.models.crnn import CRNN, CRNNSettings
from fedray.models.export_onnx import SCRIPT, TEXT, LogMels, samples_of, write
from fedray.training.task import described

LABELS = ["<blank>", " ", *"abcde"]
SMALL = {"d_model": 16, "heads": 2, "ffn": 32, "kernel": 7}
MODELS = {
    "RoPEMHA": (Conformer, ConformerSettings(**SMALL)),
    "RelPosMHAXL and a decoder": (
        Conformer,
        ConformerSettings(**SMALL, front="conv2d", attention="RelPosMHAXL", decoder_layers=1),
    ),
    "regularMHA": (Conformer, ConformerSettings(**SMALL, attention="regularMHA")),
    "lstm": (CRDNN, CRDNNSettings(channels=(4, 6), rnn_neurons=8, rnn_layers=2, dnn_neurons=12)),
    "gru and a decoder": (CRDNN, CRDNNSettings(channels=(4,), rnn="gru", rnn_neurons=8, decoder_layers=1)),
    "crnn": (CRNN, CRNNSettings()),
    "crnn tiny": (CRNN, CRNNSettings(size="tiny")),
    "audio_cnn": (AudioCNN, AudioCNNSettings()),
}
SETTINGS = LogMelSettings(sample_rate=8000, bins=20)


def speech_like(seconds: float, background: float = 3e-3) -> np.ndarray:
    """A loud low tone in noise."""
    at = np.arange(int(seconds * 8000)) / 8000
    noise = np.random.default_rng(0).normal(0, background, len(at))
    return (0.5 * np.sin(2 * np.pi * 200 * at) * (1 + np.sin(2 * np.pi * 3 * at)) / 2 + noise).astype(np.float32)


@pytest.mark.parametrize("normalise", ["none", "mean", "mean_variance", "waveform"])
@pytest.mark.parametrize("window_ms", [25.0, 25.125], ids=["even window", "odd window"])
def test_log_mels_are_those_of_training(normalise: str, window_ms: float) -> None:
    settings = LogMelSettings(sample_rate=8000, bins=20, normalise=normalise, window_ms=window_ms)
    wave = torch.from_numpy(speech_like(1.003, background=1e-4))
    found, features = LogMels(described(settings))(wave[None])[0], described(settings)
    # The fast Fourier transform of training rounds to float32: with a loud tone, its quiet bins are off by 1e-3.
    torch.testing.assert_close(found, log_mels(wave, settings), atol=2e-3, rtol=0)
    exact = MelSpectrogram(
        8000, features["fft"], features["window"], features["hop"], pad=(features["fft"] - features["window"]) // 2,
        n_mels=20, center=False,
    ).double()  # fmt: skip
    heard = wave.double()
    if normalise == "waveform":
        heard = (heard - heard.mean()) / heard.std(correction=0)
    mels = exact(heard).clamp(min=features["floor"]).log().T
    if normalise.startswith("mean"):
        mels = mels - mels.mean(0)
    if normalise == "mean_variance":
        mels = mels / mels.std(0, correction=0)
    torch.testing.assert_close(found, mels.float(), atol=1e-5, rtol=0)


LATER = ("regularMHA", "gru and a decoder")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n in LATER)) for n in MODELS])
def test_onnxruntime_says_what_the_model_says(name: str, tmp_path: Path) -> None:
    kind, settings = MODELS[name]
    torch.manual_seed(0)
    model = kind(settings, SETTINGS.bins, len(LABELS)).eval()
    features = described(SETTINGS)
    write(model, LABELS, features, None, tmp_path)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    longest = 4 * LONGEST if kind is Conformer else 500
    for batch, frames in ((1, model.shortest), (3, 40), (2, 133), (1, longest)):
        waves = torch.from_numpy(speech_like(samples_of(frames, features) / 8000 + 0.001)).repeat(batch, 1)
        waves = waves[:, : samples_of(frames, features)] * torch.linspace(1, 0.5, batch)[:, None]
        with torch.no_grad():
            expected = model.unpadded(torch.stack([log_mels(wave, SETTINGS) for wave in waves]))
        (found,) = session.run(None, {"waveform": waves.numpy()})
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-4, rtol=0)
        if frames == longest:  # only the three shorter ones are compared with `forward`
            continue
        lengths = torch.full((batch,), frames)
        with torch.no_grad():
            trained = model(torch.stack([log_mels(wave, SETTINGS) for wave in waves]), lengths)
        trained = trained[0] if isinstance(trained, tuple) else trained
        torch.testing.assert_close(expected, trained, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["crdnn", "crnn"])
def test_the_script_prints_each_block(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    features = described(SETTINGS)
    if kind == "crdnn":
        model = CRDNN(CRDNNSettings(channels=(4,), rnn_neurons=8, dnn_neurons=12), SETTINGS.bins, len(LABELS)).eval()
        torch.nn.init.normal_(model.ctc_head.w.weight)
    else:
        model = CRNN(CRNNSettings(size="tiny"), SETTINGS.bins, len(LABELS)).eval()
    frames = None if kind == "crdnn" else 50
    write(model, LABELS, features, frames, tmp_path)
    block = 80_000 if frames is None else samples_of(frames, features)
    wave = np.random.default_rng(0).normal(0, 0.1, 2 * block + 10).astype(np.float32)  # the last block is too short
    soundfile.write(tmp_path / "speech.wav", wave, 8000, subtype="FLOAT")

    expected = []
    for start in (0, block, 2 * block):
        part = torch.zeros(max(samples_of(model.shortest, features), len(wave[start : start + block])))
        part[: len(wave[start : start + block])] = torch.from_numpy(wave[start : start + block])
        with torch.no_grad():
            scores = model.unpadded(log_mels(part, SETTINGS)[None])[0]
        best = scores.argmax(-1)
        text = (
            "".join(LABELS[token] for token in best.unique_consecutive() if token) if kind == "crdnn" else LABELS[best]
        )
        expected.append(text.strip())
    assert any(expected)
    monkeypatch.setattr(sys, "argv", ["stream.py", str(tmp_path / "speech.wav")])
    runpy.run_path(str(tmp_path / "stream.py"))
    assert capsys.readouterr().out.split("\n")[:-1] == expected

    soundfile.write(tmp_path / "speech.wav", wave, 16000)
    with pytest.raises(AssertionError, match="resample to 8000 Hz"):
        runpy.run_path(str(tmp_path / "stream.py"))


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Linear cannot be written as ONNX: give it `unpadded`"):
        write(torch.nn.Linear(1, 1), LABELS, described(SETTINGS), None, tmp_path)


def test_the_page_shows_the_script() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hand-over.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert (SCRIPT % {"prints": "", "say": TEXT}).endswith(shown)
