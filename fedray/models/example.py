"""example.py of a trained classifier: a script that says the class of a clip with torch alone, by windows where the model has any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedray.models.export import NORMALISE

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
mel_spectrogram = torchaudio.transforms.MelSpectrogram(
    %(sample_rate)d, n_fft=%(fft)d, win_length=%(window)d, hop_length=%(hop)d, pad=%(pad)d, n_mels=%(bins)d, center=False
)
mels = mel_spectrogram(torch.from_numpy(wave)).clamp(min=%(floor)r).log().T
%(normalise)sframes = %(frames)r  # of the windows the model was trained on; None: whole clips
if frames is None:
    windows = mels[None]
else:
    short = max(0, frames - len(mels))
    mels = pad(mels, (0, 0, short // 2, short - short // 2))
    count = -(-len(mels) // frames)
    starts = torch.linspace(0, len(mels) - frames, count, dtype=torch.float64).round().int().tolist()
    windows = torch.stack([mels[start : start + frames] for start in starts])
with torch.inference_mode():
    print(classes[int(model(windows).mean(0).argmax())])
'''


def script(network: str, make: str, features: Mapping[str, Any], frames: int | None) -> str:
    """`network`: the source of its class; `make`: the expression that makes one, in which `classes` is the list of class names.

    `features` as for `fedray.models.export.export`; `frames`: of the windows that a clip is judged by (None: whole clips).
    """
    padded = (features["fft"] - features["window"]) // 2  # so that the first window starts at the first sample
    own = {"network": network.rstrip(), "make": make, "frames": frames, "pad": padded, "normalise": NORMALISE[features["normalise"]]}
    return SCRIPT % {**features, **own}
