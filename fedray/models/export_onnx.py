"""Write a trained model as ONNX: from the waveform to the CTC head's log-probabilities, or to a classifier's logits.

model.onnx   input `waveform`, float32 [batch, samples]; output `log_probs` [batch, frames, tokens], or `logits`
             [batch, classes]. All waveforms of a batch have one length. The file's metadata say how to use it.
stream.py    python stream.py speech.wav reads a recording in blocks and prints the text or the class of each

An attention decoder is not part of it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torchaudio.transforms import MelSpectrogram

from fedray.models.export_recogniser import FeatureDescription
from fedray.storage.files import write_atomically, write_whole

OPSET = 17
INSTALL = 'needs onnx and onnxruntime: pip install "fedray[onnx]"'
BLOCK_SECONDS = 10  # length of the blocks that stream.py reads


@runtime_checkable
class Unpadded(Protocol):
    """A model that can be traced."""

    shortest: int  # frames
    longest: int  # frames of the trace: tables that the model computes in advance suffice up to here

    def unpadded(self, features: Tensor) -> Tensor:
        """Features [B, T, bins] without padding -> log-probabilities [B, T', tokens], or logits [B, classes]."""


class LogMels(nn.Module):
    """Waveforms [B, samples] -> log-mels [B, frames, bins], by the discrete Fourier transform as a matrix.

    Computed in float64: in float32, quiet bins next to loud ones would differ from those of a fast Fourier transform.
    """

    cosines: Tensor  # [fft, fft / 2 + 1], times the window
    sines: Tensor
    mels: Tensor  # [fft / 2 + 1, bins]

    def __init__(self, features: FeatureDescription) -> None:
        super().__init__()
        self.hop, self.fft, self.floor = features["hop"], features["fft"], features["floor"]
        self.normalise = features["normalise"]
        self.padding = (self.fft - features["window"]) // 2
        mel = MelSpectrogram(
            features["sample_rate"], self.fft, features["window"], self.hop, n_mels=features["bins"], center=False
        )
        window = mel.spectrogram.window.double()
        before = (self.fft - len(window)) // 2  # torch centres the window in the transform
        at = torch.arange(self.fft, dtype=torch.float64)
        angles = at[:, None] * at[: self.fft // 2 + 1] * (2 * torch.pi / self.fft)
        shaped = pad(window, (before, self.fft - len(window) - before))[:, None]
        self.register_buffer("cosines", shaped * angles.cos())
        self.register_buffer("sines", shaped * angles.sin())
        self.register_buffer("mels", mel.mel_scale.fb.double())

    def forward(self, waveforms: Tensor) -> Tensor:
        """Waveforms, float [B, samples] -> log-mels, float [B, frames, bins]."""
        if self.normalise == "waveform":
            waveforms = waveforms.double() - waveforms.double().mean(1, keepdim=True)
            waveforms = waveforms / waveforms.square().mean(1, keepdim=True).sqrt().clamp(min=1e-5)
        padded = pad(waveforms, (self.padding, self.padding))
        count = (padded.shape[1] - self.fft) // self.hop + 1
        at = torch.arange(count)[:, None] * self.hop + torch.arange(self.fft)
        frames = padded[:, at].double()  # [B, frames, fft]
        powers = (frames @ self.cosines).square() + (frames @ self.sines).square()
        mels = (powers @ self.mels).clamp(min=self.floor).log()
        if self.normalise in ("mean", "mean_variance"):
            mels = mels - mels.mean(1, keepdim=True)
        if self.normalise == "mean_variance":
            mels = mels / mels.square().mean(1, keepdim=True).sqrt().clamp(min=1e-3)
        return mels.float()


class _Whole(nn.Module):
    def __init__(self, model: nn.Module, features: FeatureDescription) -> None:
        super().__init__()
        self.log_mels, self.model = LogMels(features), model

    def forward(self, waveforms: Tensor) -> Tensor:
        assert isinstance(self.model, Unpadded)
        return self.model.unpadded(self.log_mels(waveforms))


SCRIPT = '''\
"""python stream.py speech.wav: %(prints)s. Needs onnxruntime and soundfile."""

import json
import sys
from pathlib import Path

import numpy
import onnxruntime
import soundfile

session = onnxruntime.InferenceSession(str(Path(__file__).with_name("model.onnx")))
about = session.get_modelmeta().custom_metadata_map
rate, block, shortest = (int(about[name]) for name in ("sample_rate", "block", "shortest"))
labels, sound = json.loads(about["labels"]), soundfile.info(sys.argv[1])
assert (sound.samplerate, sound.channels) == (rate, 1), f"resample to {rate} Hz, one channel"
for samples in soundfile.blocks(sys.argv[1], block, dtype="float32"):
    samples = numpy.pad(samples, (0, max(0, shortest - len(samples))))
    scores = session.run(None, {"waveform": samples[None]})[0][0]
    best = scores.argmax(-1)
%(say)s'''
TEXT = """\
    tokens = [token for token, before in zip(best, [0, *best]) if token not in (0, before)]  # 0 is the CTC blank
    print("".join(labels[token] for token in tokens).strip(), flush=True)
"""
CLASS = """\
    print(labels[best], flush=True)
"""


def write(
    model: nn.Module, labels: Sequence[str], features: FeatureDescription, frames: int | None, folder: Path
) -> None:
    """Write model.onnx and stream.py.

    `labels`: the text of each token, or the classes. `frames`: length of the windows that a classifier was trained on.
    ValueError: the packages of `fedray[onnx]` are missing, or a model of this class cannot be traced.
    """
    try:
        import onnx
    except ImportError as error:
        raise ValueError(f"ONNX {INSTALL}") from error
    if not isinstance(model, Unpadded):
        raise ValueError(
            f"{type(model).__name__} cannot be written as ONNX: give it `unpadded`, `shortest` and `longest`, as "
            "fedray.models.crnn does"
        )
    recogniser, rate = hasattr(model, "ctc"), features["sample_rate"]
    block = samples_of(frames, features) if frames else BLOCK_SECONDS * rate
    about = {
        "sample_rate": str(rate),
        "shortest": str(samples_of(model.shortest, features)),
        "block": str(block),
        "labels": json.dumps(list(labels), ensure_ascii=False),
    }
    output, axes = ("log_probs", {0: "batch", 1: "frames"}) if recogniser else ("logits", {0: "batch"})
    noise = 0.1 * torch.randn(2, samples_of(model.longest, features), generator=torch.Generator().manual_seed(0))

    def save(path: Path) -> None:
        with warnings.catch_warnings():  # the tracer warns of shapes that it mistakes for constants
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Whole(model, features).eval(),
                (noise,),
                str(path),
                dynamo=False,  # the newer exporter knows neither dynamic lengths of a GRU nor RelPosMHAXL (torch 2.11)
                opset_version=OPSET,
                input_names=["waveform"],
                output_names=[output],
                dynamic_axes={"waveform": {0: "batch", 1: "samples"}, output: axes},
            )
        traced = onnx.load(path)
        onnx.helper.set_model_props(traced, about)
        onnx.checker.check_model(traced)
        onnx.save(traced, path)

    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "model.onnx", save)
    prints = f"the {'text' if recogniser else 'class'} of each {block / rate:g} seconds"
    text = SCRIPT % {"prints": prints, "say": TEXT if recogniser else CLASS}
    write_whole(folder / "stream.py", text)


def samples_of(frames: int, features: FeatureDescription) -> int:
    """The number of samples that give this number of frames."""
    return (frames - 1) * features["hop"] + features["window"]
