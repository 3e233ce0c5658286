"""Kaldi's log-mels, two frames at once, as wav2vec2-bert reads them: transformers' SeamlessM4TFeatureExtractor."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedray.data.features.settings import FeatureSettings

HOP, WINDOW, STRIDE = 160, 400, 2  # samples, samples, mel frames in a frame


@dataclass(frozen=True)
class FbankSettings(FeatureSettings):
    """Kaldi's log-mels with mean 0 and variance 1 in each mel bin of an utterance, two neighbours in a frame."""

    of_checkpoints: ClassVar[bool] = True

    bins: int = 160  # values of a frame: 80 mel bins of two neighbours
    sample_rate: int = 16000  # Hz; audio of another rate is resampled

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins < STRIDE or self.bins % STRIDE:
            raise ValueError(f"features.bins must be an even number of values, not {self.bins}")

    @property
    def hop_seconds(self) -> float:
        return STRIDE * HOP / self.sample_rate

    def frames(self, seconds: float) -> int:
        return max(1, (1 + (round(seconds * self.sample_rate) - WINDOW) // HOP) // STRIDE)

    def compute(self, waveform: torch.Tensor) -> torch.Tensor:
        if len(waveform) < WINDOW + STRIDE * HOP:
            raise ValueError(f"has {len(waveform):,} samples, and log-mels of two frames need {WINDOW + STRIDE * HOP}")
        made = _extractor(self.bins // STRIDE, self.sample_rate)(
            waveform.numpy(), sampling_rate=self.sample_rate, return_tensors="np"
        )
        whole = made["attention_mask"][0].astype(bool)  # an odd mel frame at the end has no neighbour
        return torch.from_numpy(made["input_features"][0][whole])


@functools.lru_cache(maxsize=2)
def _extractor(bins: int, sample_rate: int) -> Any:
    try:
        from transformers import SeamlessM4TFeatureExtractor
    except ImportError as error:
        raise RuntimeError('features.kind fbank needs transformers: pip install "fedray[encoders]"') from error
    make: Any = SeamlessM4TFeatureExtractor
    return make(feature_size=bins, num_mel_bins=bins, sampling_rate=sample_rate)
