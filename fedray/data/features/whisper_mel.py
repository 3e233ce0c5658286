"""The log-mels that Whisper was trained on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torchaudio.transforms import MelSpectrogram

from fedray.core.ranges import Count
from fedray.data.features.settings import FeatureSettings

FIXED = {"sample_rate": 16000, "window_ms": 25.0, "hop_ms": 10.0, "normalise": "none"}


@dataclass(frozen=True)
class WhisperMelSettings(FeatureSettings):
    """The features that Whisper was trained on, with another mel scale and range than log-mels.

    The checkpoint says how many bins it needs. The other keys have one value each.
    """

    of_checkpoints: ClassVar[bool] = True

    bins: Count = 80  # mel bins of a frame: 80, or 128 for whisper-large-v3
    sample_rate: int = 16000  # Hz; audio of another rate is resampled
    window_ms: float = 25.0  # length of the analysis window
    hop_ms: float = 10.0  # distance between two frames
    normalise: str = "none"  # nothing is subtracted from a bin

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = [f"{name}={value}" for name, value in FIXED.items() if getattr(self, name) != value]
        if fixed:
            raise ValueError(
                f"features.kind=whisper allows one setting only: set {', '.join(f'features.{one}' for one in fixed)}"
            )

    @property
    def hop_seconds(self) -> float:
        return self.hop_ms / 1000

    def frames(self, seconds: float) -> int:
        return whisper_frames(round(seconds * self.sample_rate))

    def compute(self, waveform: torch.Tensor) -> torch.Tensor:
        return whisper_mels(waveform, self.bins)


@torch.inference_mode()
def whisper_mels(waveform: torch.Tensor, bins: int) -> torch.Tensor:
    """Compute Whisper's features: float32 [samples] at 16 kHz -> float32 [frames, bins].

    A feature is log10 of a mel power, bounded below at 8 less than the loudest bin, plus 4, divided by 4. The frames
    equal the first ones of WhisperFeatureExtractor in transformers, which pads every recording with silence to 30 s.
    """
    padded = torch.nn.functional.pad(waveform, (0, 400))  # with zeros; MelSpectrogram would mirror the end
    powers: torch.Tensor = _transform(bins)(padded)
    mels = powers.clamp_(min=1e-10).log10_().T[: whisper_frames(len(waveform))]
    return (mels.clamp(min=float(mels.max()) - 8) + 4) / 4


def whisper_frames(samples: int) -> int:
    """Number of Whisper's frames over the samples.

    A frame is 400 samples wide; frames are centred at every 160th sample.
    """
    return max(1, -(-(samples + 200) // 160))


@functools.lru_cache(maxsize=2)
def _transform(bins: int) -> MelSpectrogram:
    return MelSpectrogram(16000, n_fft=400, hop_length=160, n_mels=bins, norm="slaney", mel_scale="slaney")
