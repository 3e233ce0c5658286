"""Log-mel features: their settings, and how a waveform becomes a matrix of them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torchaudio.transforms import MelSpectrogram

from fedray.core.ranges import Count, Positive, Range, one_of
from fedray.data.features.settings import FeatureSettings

# The rounding of audio to 16 bits leaves about this power in a mel bin. Digital silence gets the same value.
FLOOR = 1e-8
# A waveform with a smaller root mean square is not scaled to power 1: rounding to 16 bits leaves about this much.
SILENT = 1e-5


@dataclass(frozen=True)
class LogMelSettings(FeatureSettings):
    """Log-mels: natural logarithms of mel powers."""

    bins: Count = 40  # mel bins of a frame
    sample_rate: Annotated[int, Range(1000, 768_000)] = 16000  # Hz; audio of another rate is resampled
    window_ms: Positive = 25.0  # length of the analysis window
    hop_ms: Positive = 10.0  # distance between two frames
    # mean | mean_variance, per utterance and bin | waveform: scaled to mean 0 and power 1 before the transform, so that
    # the stationary part of a spectrum, such as a hum, stays | speaker: mean 0 and variance 1 in each bin over all of a
    # speaker's utterances, so that their differences in loudness stay (FedAudio) | none
    normalise: str = one_of(("mean", "mean_variance", "waveform", "speaker", "none"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window_ms", "hop_ms"):
            if getattr(self, name) * self.sample_rate < 2 * 1000:
                raise ValueError(
                    f"features.{name}: {getattr(self, name)} ms is shorter than two samples at {self.sample_rate} Hz"
                )

    @property
    def silence(self) -> float:
        """The value of padding: that of silence in log-mels that keep their mean, else 0."""
        return math.log(FLOOR) if self.normalise in ("none", "waveform") else 0.0

    @property
    def window(self) -> int:
        """Length of the analysis window in samples, even: torch centres windows in the FFT, whose size is even too."""
        return 2 * round(self.sample_rate * self.window_ms / 2000)

    @property
    def hop(self) -> int:
        """Distance between two frames in samples."""
        return max(1, round(self.sample_rate * self.hop_ms / 1000))

    @property
    def hop_seconds(self) -> float:
        return self.hop_ms / 1000

    def frames(self, seconds: float) -> int:
        return max(1, 1 + (round(seconds * self.sample_rate) - self.window) // self.hop)

    def compute(self, waveform: torch.Tensor) -> torch.Tensor:
        return log_mels(waveform, self)


@torch.inference_mode()
def log_mels(waveform: torch.Tensor, settings: LogMelSettings) -> torch.Tensor:
    """float32 [samples] -> normalised natural logarithms of mel powers, float32 [1 + (samples - window) // hop, bins].

    A waveform shorter than one window is padded with zeros to one window.
    """
    if settings.normalise == "waveform":
        waveform = waveform - waveform.mean()
        waveform = waveform / waveform.square().mean().sqrt().clamp(min=SILENT)
    if len(waveform) < settings.window:
        waveform = torch.nn.functional.pad(waveform, (0, settings.window - len(waveform)))
    mels: torch.Tensor = _mel_transform(settings)(waveform)
    features = mels.clamp_(min=FLOOR).log_().T
    if settings.normalise in ("mean", "mean_variance"):
        features = features - features.mean(dim=0)
    if settings.normalise == "mean_variance":
        # Digital silence has no variance. The bound keeps it at 0.
        features = features / features.square().mean(dim=0).sqrt().clamp(min=1e-3)
    return features


@functools.lru_cache(maxsize=8)
def _mel_transform(settings: LogMelSettings) -> MelSpectrogram:
    size = fft_size(settings)
    # torch centres the window in the FFT. This padding makes the first window start at the first sample.
    padding = (size - settings.window) // 2
    return MelSpectrogram(
        settings.sample_rate,
        n_fft=size,
        win_length=settings.window,
        hop_length=settings.hop,
        pad=padding,
        n_mels=settings.bins,
        center=False,
    )


def fft_size(settings: LogMelSettings) -> int:
    """The smallest FFT, a power of two, that holds the window and leaves no mel filter empty.

    The lowest filter is the narrowest.
    """
    highest = 2595 * math.log10(1 + settings.sample_rate / 2 / 700)  # mel (HTK), as in torchaudio
    width = 700 * (10 ** (2 * highest / (settings.bins + 1) / 2595) - 1)  # Hz
    size = 1 << (settings.window - 1).bit_length()
    while settings.sample_rate / size >= width:
        size *= 2
    return size
