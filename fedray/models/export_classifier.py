"""Write example.py next to a trained classifier: a script that prints the class of a clip without fedray."""

from __future__ import annotations

import math

from fedray.models.export_recogniser import NORMALISE, WAVEFORM, FeatureDescription

SCRIPT = '''\
"""python example.py speech.wav: the class of a clip by this folder's model. Needs torch, torchaudio and soundfile."""
import json
import sys
from pathlib import Path

import soundfile
import torch
import torchaudio
from torch import nn
from torch.nn.functional import pad


%(network)s


folder = Path(__file__).resolve().parent
classes = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
model = %(make)s.eval()
model.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
wave, rate = soundfile.read(sys.argv[1], dtype="float32")
assert rate == %(sample_rate)d and wave.ndim == 1, "resample to %(sample_rate)d Hz, one channel"
%(waveform)smel_spectrogram = torchaudio.transforms.MelSpectrogram(
    %(sample_rate)d,
    n_fft=%(fft)d,
    win_length=%(window)d,
    hop_length=%(hop)d,
    pad=%(pad)d,
    n_mels=%(bins)d,
    center=False,
)
mels = mel_spectrogram(torch.from_numpy(wave)).clamp(min=%(floor)r).log().T
%(normalise)sframes = %(frames)r  # of the windows the model was trained on; None: whole clips
if frames is None:
    windows = mels[None]
else:
    short = max(0, frames - len(mels))
    mels = pad(mels, (0, 0, short // 2, short - short // 2), value=%(silence)r)
%(starts)s
    windows = torch.stack([mels[start : start + frames] for start in starts])
with torch.inference_mode():
    print(classes[int(model(windows).mean(0).argmax())])
'''


SPREAD = """\
    count = -(-len(mels) // frames)
    starts = torch.linspace(0, len(mels) - frames, count, dtype=torch.float64).round().int().tolist()"""
EVERY = "    starts = range(0, len(mels) - frames + 1, %d)"


def script(network: str, make: str, features: FeatureDescription, frames: int | None, hop: int | None) -> str:
    """The text of example.py.

    `network`: the source code of the model's class. `make`: an expression that makes the model, in which `classes` is
    the list of class names. `frames`: length of the windows that the model classifies (None: whole clips). `hop`:
    frames from one window to the next (None: as few windows as cover the clip).
    """
    padding = (features["fft"] - features["window"]) // 2  # makes the first window start at the first sample
    normalise = NORMALISE[features["normalise"]]
    silence = math.log(features["floor"]) if features["normalise"] in ("none", "waveform") else 0.0
    waveform = WAVEFORM if features["normalise"] == "waveform" else ""
    values = {"network": network.rstrip(), "make": make, "frames": frames, "pad": padding, "normalise": normalise}
    starts = SPREAD if hop is None else EVERY % hop
    return SCRIPT % {**features, **values, "silence": silence, "waveform": waveform, "starts": starts}
