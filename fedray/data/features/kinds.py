"""The kinds of features, by their names in `features.kind`."""

from __future__ import annotations

from fedray.data.features.fbank import FbankSettings
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.precomputed import PrecomputedSettings
from fedray.data.features.settings import FeatureSettings
from fedray.data.features.waveform import WaveformSettings
from fedray.data.features.whisper_mel import WhisperMelSettings

FEATURES: dict[str, type[FeatureSettings]] = {
    "logmel": LogMelSettings,
    "fbank": FbankSettings,
    "precomputed": PrecomputedSettings,
    "waveform": WaveformSettings,
    "whisper": WhisperMelSettings,
}
