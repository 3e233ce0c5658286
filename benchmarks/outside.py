"""Listeners from outside a run: what Whisper tiny understands of log-mels, and whose voice an embedding hears."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torchaudio.transforms import GriffinLim, InverseMelScale

from benchmarks import study
from fedray.data.features.log_mel import LogMelSettings, fft_size

ITERATIONS = 60  # of Griffin and Lim
LOUD = 0.9  # the peak of a waveform


def waveform(log_mels: np.ndarray, settings: LogMelSettings, mean: np.ndarray) -> np.ndarray:
    """A waveform with about these log-mels [frames, bins], float32 [samples]. `mean`: what they lack of each bin."""
    torch.manual_seed(0)  # of the phases
    fft = fft_size(settings)
    mels = torch.from_numpy(np.asarray(log_mels + mean, np.float32)).exp().T
    powers = InverseMelScale(fft // 2 + 1, settings.bins, settings.sample_rate, driver="gelsd")(mels)
    made = GriffinLim(fft, ITERATIONS, settings.window, settings.hop, power=2.0)(powers).numpy()
    return LOUD * made / max(float(np.abs(made).max()), 1e-6)


@cache
def _whisper() -> tuple[Any, Any, Any]:
    from transformers import PreTrainedTokenizerFast, WhisperFeatureExtractor, WhisperForConditionalGeneration

    folder = study.speech("whisper-tiny.en")
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    return model, WhisperFeatureExtractor(), PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


def heard(waveforms: Sequence[np.ndarray]) -> list[str]:
    """What Whisper tiny writes of waveforms at 16 kHz."""
    model, extractor, tokenizer = _whisper()
    texts = []
    for one in waveforms:
        features = extractor(one, sampling_rate=16000, return_tensors="pt").input_features
        with torch.no_grad():
            written = model.generate(features, max_new_tokens=40)
        texts.append(tokenizer.decode(written[0], skip_special_tokens=True))
    return texts


@cache
def _voices() -> Any:
    from resemblyzer import VoiceEncoder  # its wheel holds the weights: pip install resemblyzer

    return VoiceEncoder("cpu", verbose=False)


def voices(waveforms: Sequence[np.ndarray]) -> np.ndarray:
    """Embeddings of voices by Resemblyzer, waveforms at 16 kHz -> [waveforms, 256], each of norm 1."""
    return np.stack([_voices().embed_utterance(one) for one in waveforms])
