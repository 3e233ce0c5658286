"""Which samples of a file are read, and which rows of a store get noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from fedray.core.parallel import serial
from fedray.data.corruption import CorruptionSettings
from fedray.data.features import audio
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.store import build_features
from fedray.data.manifest import Manifest


def test_a_segment_starts_at_its_second_at_any_rate(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.repeat([0.0, 0.5, -0.5, 0.0], 8000), 8000)
    part = audio.read(tmp_path / "a.wav", 16000, offset=1.0, seconds=1.0)
    assert len(part) == 16000
    np.testing.assert_allclose(part[1000:-1000], 0.5, atol=0.01)


def test_noise_on_as_many_other_rows_makes_another_store(tmp_path: Path) -> None:
    rows = []
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", 0.1 * np.random.default_rng(0).standard_normal(8000), 16000)
        rows.append({"utterance": name, "path": str(tmp_path / f"{name}.wav"), "seconds": 0.5, "speaker": name})
    manifest, noise = Manifest.from_rows(rows, "test"), CorruptionSettings(snr_db=0.0)
    clean = build_features(manifest, LogMelSettings(), tmp_path / "cache", serial)
    for hit in (0, 1):
        clients = {"client": np.array([hit])}
        noisy = build_features(manifest, LogMelSettings(), tmp_path / "cache", serial, noise, clients=clients)
        assert [np.array_equal(clean[row], noisy[row]) for row in (0, 1)] == [row != hit for row in (0, 1)]
