"""Waveforms as features, for pre-trained encoders that read samples. A second takes 32 kB in the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from fedray.data.features.settings import FeatureSettings

FULL_SCALE = 32768  # of 16 bits
LOUDEST = 2.0  # samples a little above 1, as lossy codecs decode them, are cut; larger ones are another scale


@dataclass(frozen=True)
class WaveformSettings(FeatureSettings):
    """The samples of a recording, one a frame. A model normalises them as its checkpoint wants."""

    stored: ClassVar[str] = "int16"
    of_checkpoints: ClassVar[bool] = True

    sample_rate: int = 16000  # Hz; all published encoders read 16,000
    bins: int = field(default=1, init=False)

    @property
    def hop_seconds(self) -> float:
        return 1 / self.sample_rate

    def frames(self, seconds: float) -> int:
        return max(1, round(seconds * self.sample_rate))

    def compute(self, waveform: torch.Tensor) -> torch.Tensor:
        """float32 [samples] -> float32 [samples, 1], whole multiples of 1 / 32768."""
        if (loudest := float(waveform.abs().max())) > LOUDEST:
            raise ValueError(f"holds samples up to {loudest:.2g}, but full scale is 1: scale it to -1..1")
        samples = (waveform * FULL_SCALE).round_().clamp_(-FULL_SCALE, FULL_SCALE - 1)
        return samples[:, None] / FULL_SCALE
