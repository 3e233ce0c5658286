"""Acoustic measures on signals whose values are known."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedray.data.analysis import acoustics
from fedray.data.analysis.acoustics import SAMPLE_RATE

SECONDS = np.arange(SAMPLE_RATE, dtype=np.float64) / SAMPLE_RATE


def noise(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SAMPLE_RATE)


def as_waveform(signal: np.ndarray) -> np.ndarray:
    return signal.astype(np.float32)


def voice(pitch: float = 120.0) -> np.ndarray:
    """Pulses through a resonance at 700 Hz, which linear prediction of order 10 can follow."""
    from scipy.signal import lfilter

    pulses = np.diff(np.floor(SECONDS * pitch), prepend=0.0)
    return 0.1 * lfilter([1.0], [1.0, -2 * 0.97 * math.cos(2 * math.pi * 700 / SAMPLE_RATE), 0.97**2], pulses)


def test_loudness_of_a_tone_is_that_of_its_intensity() -> None:
    tone = as_waveform(0.2 * np.sin(2 * np.pi * 400 * SECONDS))  # ten periods in each frame
    assert acoustics.loudness(tone) == pytest.approx((0.2**2 / 2) ** 0.3, rel=1e-3)
    assert acoustics.loudness(2 * tone) == pytest.approx(4**0.3 * acoustics.loudness(tone), rel=1e-6)
    assert acoustics.loudness(np.zeros(SAMPLE_RATE, np.float32)) == 0


@pytest.mark.parametrize("decibels", [5.0, 10.0, 15.0])
def test_the_hnr_of_a_tone_in_noise_is_their_ratio(decibels: float) -> None:
    tone, hiss = np.sin(2 * np.pi * 200 * SECONDS), noise()
    hiss *= math.sqrt(0.5 / np.mean(hiss**2)) * 10 ** (-decibels / 20)
    assert acoustics.log_hnr(as_waveform(0.1 * (tone + hiss))) == pytest.approx(decibels, abs=1.0)


def test_the_hnr_keeps_to_its_bounds() -> None:
    assert acoustics.log_hnr(as_waveform(np.sin(2 * np.pi * 200 * SECONDS))) > 25
    assert -15 < acoustics.log_hnr(as_waveform(0.1 * noise())) < 0
    assert math.isnan(acoustics.log_hnr(np.zeros(SAMPLE_RATE, np.float32)))


def test_the_hnr_forgets_the_mean_of_each_frame() -> None:
    step = np.where(SECONDS < 0.5, 0.5, -0.5)
    assert acoustics.log_hnr(as_waveform(0.1 * noise() + step)) < 0


def test_the_autocorrelation_does_not_go_round() -> None:
    signal = noise()[:50]
    np.testing.assert_allclose(
        acoustics.autocorrelation(signal), np.correlate(signal, signal, "full")[len(signal) - 1 :], atol=1e-9
    )


def test_permutation_entropy_runs_from_a_ramp_to_noise() -> None:
    assert acoustics.permutation_entropy(as_waveform(noise())) > 0.97
    assert acoustics.permutation_entropy(as_waveform(SECONDS)) == 0
    assert acoustics.permutation_entropy(np.zeros(SAMPLE_RATE, np.float32)) == 0
    # Four neighbouring samples of a slow tone rise, fall or turn once: only a few of the 24 orders occur.
    assert 0.2 < acoustics.permutation_entropy(as_waveform(np.sin(2 * np.pi * 200 * SECONDS))) < 0.5


def test_permutation_entropy_equals_a_count_by_hand() -> None:
    waveform = as_waveform(noise(1)[:700])
    shares = []
    for start in range(0, 700 - acoustics.FRAME + 1, acoustics.HOP):
        frame = waveform[start : start + acoustics.FRAME]
        orders = [tuple(np.argsort(frame[place : place + 4], kind="stable")) for place in range(acoustics.FRAME - 3)]
        counts = np.array([orders.count(order) for order in set(orders)]) / len(orders)
        shares.append(-(counts * np.log(counts)).sum() / math.log(24))
    assert acoustics.permutation_entropy(waveform) == pytest.approx(np.mean(shares), abs=1e-12)


@pytest.mark.nightly  # numba compiles librosa first
def test_the_blind_snr_falls_with_noise_and_needs_a_voice() -> None:
    clean, noisy = (acoustics.blind_snr(as_waveform(voice() + level * noise())) for level in (0.001, 0.03))
    assert clean > noisy + 3
    assert math.isnan(acoustics.blind_snr(as_waveform(0.001 * noise()))), "there is no pitch in hiss"
    assert math.isnan(acoustics.blind_snr(np.zeros(SAMPLE_RATE, np.float32)))


@pytest.mark.long
def test_all_at_once_and_what_is_too_short() -> None:
    waveform = as_waveform(voice())
    values = acoustics.measure(waveform)
    assert len(values) == len(acoustics.MEASURES) and not any(map(math.isnan, values))
    assert acoustics.measure(waveform) == values
    assert acoustics.mel_statistics(waveform).shape == (80,)
    with pytest.raises(ValueError, match="50 ms is too short"):
        acoustics.measure(waveform[:800])


@pytest.mark.nightly
def test_processes_that_compile_librosa_at_once_leave_a_cache_that_can_be_read(tmp_path: Path) -> None:
    code = (
        "import numpy as np; from fedray.data.analysis import acoustics; "
        "print(acoustics.blind_snr(np.sin(np.arange(16000) / 12).astype('f4')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | {
        "FEDRAY_CACHE": str(tmp_path)
    }

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)

    together = [started() for _ in range(3)]
    said = [process.communicate()[0] for process in (*together, started())]
    assert len(set(said)) == 1 and float(said[0]) > 0
    assert list((tmp_path / "numba").rglob("*.nbc"))
