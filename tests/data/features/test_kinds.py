"""Kinds of features: a user's kind, waveforms in the store, and the keys that older caches and runs have."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from fedray import experiment
from fedray.config.schema import plain
from fedray.core.parallel import serial
from fedray.data.features import audio
from fedray.data.features.dataset import Utterances, collate
from fedray.data.features.kinds import FEATURES
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.settings import FeatureSettings
from fedray.data.features.store import as_stored, build_features
from fedray.data.features.waveform import WaveformSettings
from fedray.data.features.whisper_mel import WhisperMelSettings
from fedray.data.manifest import Manifest
from fedray.experiment.pretraining import PretrainingConfig
from tests.data.features.test_features import RATE, manifest_of

ALGORITHM = {"kind": "fedavg"}


@dataclass(frozen=True)
class Energy(FeatureSettings):
    """The power of each hundredth of a second."""

    bins: int = 1
    sample_rate: int = RATE
    floor: float = 0.0

    @property
    def hop_seconds(self) -> float:
        return 0.01

    def frames(self, seconds: float) -> int:
        return int(100 * seconds)

    def compute(self, waveform: torch.Tensor) -> torch.Tensor:
        hop = self.sample_rate // 100
        if len(waveform) < hop:
            raise ValueError(f"has only {len(waveform)} samples")
        return waveform[: len(waveform) // hop * hop].view(-1, hop).square().mean(1, keepdim=True) + self.floor


@pytest.fixture
def energy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURES, "energy", Energy)


def test_a_users_kind_is_configured_and_computed_as_fedrays(energy: None, tmp_path: Path) -> None:
    values = {"features": {"kind": "energy", "floor": 0.5}, "algorithm": ALGORITHM, "cohort": {"size": 1}}
    config, _ = experiment.load(values)
    assert config.features == Energy(floor=0.5) and plain(config)["features"]["kind"] == "energy"
    with pytest.raises(ValueError, match=r"features.kind: 'mfcc' is not known; known kinds: logmel"):
        experiment.load({**values, "features": "mfcc"})
    with pytest.raises(ValueError, match=r"unknown key features.hop_ms"):
        experiment.load({**values, "features": {"kind": "energy", "hop_ms": 10}})
    (tmp_path / "audio").mkdir()
    manifest = manifest_of(tmp_path / "audio", 3)
    store = build_features(manifest, config.features, tmp_path / "cache", serial)
    for row, utterance in enumerate(manifest):
        wave = audio.read(utterance.path, RATE)
        blocks = [float(part.square().mean()) + 0.5 for part in wave.split(160) if len(part) == 160]
        assert np.array_equal(store[row][:, 0], np.array(blocks, np.float16))
    assert build_features(manifest, config.features, tmp_path / "cache", serial).folder == store.folder
    assert build_features(manifest, Energy(), tmp_path / "cache", serial).folder != store.folder


def test_the_code_of_a_users_kind_is_part_of_the_key() -> None:
    manifest = Manifest.concat([])
    assert Energy().depends(manifest) and LogMelSettings().depends(manifest) is None


def test_what_a_users_kind_refuses_is_broken_audio(energy: None, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "short.wav", np.zeros(100), RATE)
    row = {"utterance": "short", "path": str(tmp_path / "short.wav"), "seconds": 100 / RATE, "speaker": "s"}
    manifest = Manifest.from_rows([row], "test")
    with pytest.raises(ValueError, match=r"short: .*short.wav: has only 100 samples"):
        build_features(manifest, Energy(), tmp_path / "cache", serial)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_waveforms_are_kept_in_16_bits(subtype: str, tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-32768, 32768, 1000)
    rows = []
    for name, part in {"long": samples, "short": samples[:300]}.items():
        path = tmp_path / f"{name}.wav"
        soundfile.write(path, part / 32768, RATE, subtype=subtype)
        rows.append({"utterance": name, "path": str(path), "seconds": len(part) / RATE, "speaker": "s"})
    manifest = Manifest.from_rows(rows, "test")
    store = build_features(manifest, WaveformSettings(), tmp_path / "cache", serial)
    assert (store.bins, store.stored, store.frames.tolist()) == (1, "int16", [1000, 300])
    assert np.array_equal(store[0][:, 0], samples)
    batch = collate(Utterances(manifest, store, np.arange(2)), np.arange(2))
    assert batch.features.dtype == torch.float32 and batch.features.shape == (2, 1000, 1)
    assert np.array_equal(batch.features[0, :, 0], samples / 32768) and not batch.features[1, 300:].any()
    assert WaveformSettings().frames(1.5) == 24_000


def test_samples_beyond_full_scale() -> None:
    found = WaveformSettings().compute(torch.tensor([-1.5, 1.5, 0.5]))
    assert np.array_equal(as_stored(found, "int16")[:, 0], [-32768, 32767, 16384]), "as a 16-bit file has them"
    with pytest.raises(ValueError, match="samples up to 3e"):
        WaveformSettings().compute(torch.tensor([0.0, 3e4]))


def test_keys_are_those_of_older_runs() -> None:
    assert asdict(LogMelSettings()) == {
        "bins": 40,
        "sample_rate": 16000,
        "window_ms": 25.0,
        "hop_ms": 10.0,
        "normalise": "mean",
    }
    older = {"kind": "whisper", **asdict(LogMelSettings(bins=80, normalise="none"))}
    config, _ = experiment.load({"features": older, "algorithm": ALGORITHM, "cohort": {"size": 1}})
    assert config.features == WhisperMelSettings() and plain(config)["features"] == older


def test_pre_training_has_64_bins_unless_told_otherwise() -> None:
    def bins(**features: object) -> int:
        return experiment.load_as(PretrainingConfig, {"features": features})[0].features.bins

    assert (bins(), bins(hop_ms=20), bins(kind="logmel"), bins(bins=40)) == (64, 64, 64, 40)
    assert bins(kind="whisper") == 80


def test_a_speakers_features_are_scaled_together(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, 5)
    raw, scaled = (
        build_features(manifest, LogMelSettings(normalise=kind), tmp_path / "cache", serial)
        for kind in ("none", "speaker")
    )
    for rows in ((0, 2, 4), (1, 3)):
        before = np.concatenate([raw[row] for row in rows]).astype(np.float64)
        expected = (before - before.mean(0)) / (before.std(0) + 1e-5)
        np.testing.assert_allclose(np.concatenate([scaled[row] for row in rows]), expected, atol=5e-3, rtol=5e-3)
