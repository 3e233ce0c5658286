"""The sound of connected digits: recordings joined with pauses, changed in voice and tempo, heard in a room and noise.

Signals are float64 [samples] at 8 kHz.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.fft
import scipy.signal

from fedray.data.corpora.official.fsdd import RATE

HOP, SEARCH = 128, 80  # samples: pieces of 32 ms every 16 ms, each moved by up to 10 ms to the best fit


def join(sounds: Sequence[np.ndarray], pause: tuple[float, float], generator: np.random.Generator) -> np.ndarray:
    """The recordings with pauses (in seconds) before, between and after them.

    The pauses hold noise as quiet as the quietest 20 ms of the recordings: no microphone records digital silence, which
    would stand out in log-mels.
    """
    loudness = np.sqrt(np.mean(np.square(np.concatenate(sounds))))
    parts = (part for sound in sounds for part in np.array_split(sound, max(1, len(sound) // (RATE // 50))))
    quiet = min(np.sqrt(np.mean(np.square(part))) for part in parts)
    level = max(quiet, loudness / 1000)
    pauses = []
    for _ in range(len(sounds) + 1):
        samples = round(generator.uniform(*pause) * RATE)
        pauses.append(level * generator.standard_normal(samples))
    return np.concatenate([piece for pair in zip(pauses, [*sounds, pauses[-1][:0]], strict=True) for piece in pair])


def warp_voice(signal: np.ndarray, warp: float, tempo: float) -> np.ndarray:
    """Formants and pitch `warp` times as high (to the nearest hundredth), and `tempo` times as fast."""
    hundredths = round(100 * warp)
    return change_tempo(scipy.signal.resample_poly(signal, 100, hundredths), 100 * tempo / hundredths)


def change_tempo(signal: np.ndarray, rate: float) -> np.ndarray:
    """`rate` times as fast, with the same pitch and formants: WSOLA (Verhelst and Roelands, 1993)."""
    window: np.ndarray = scipy.signal.get_window("hann", 2 * HOP)
    padded = np.pad(signal, (SEARCH, SEARCH + 3 * HOP))
    length = round(len(signal) / rate)
    total, place = np.zeros(length + 2 * HOP), SEARCH
    for start in range(0, length, HOP):
        region = padded[round(start * rate) :][: 2 * (SEARCH + HOP)]
        if start:  # take the piece most similar to the continuation of the last piece
            likeness = np.correlate(region, padded[place + HOP : place + 3 * HOP])
            likeness /= np.sqrt(np.correlate(np.square(region), np.ones(2 * HOP)) + 1e-12)
            place = round(start * rate) + int(np.argmax(likeness))
        total[start : start + 2 * HOP] += window * padded[place : place + 2 * HOP]
    return total[:length]


def equalise(signal: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """The signal with gains (dB) at frequencies evenly spaced in octaves from 100 to 4000 Hz, without phase shift."""
    size = scipy.fft.next_fast_len(len(signal), real=True)
    octaves = np.log2(np.maximum(scipy.fft.rfftfreq(size, 1 / RATE), 1))
    curve = np.interp(octaves, np.linspace(np.log2(100), np.log2(RATE / 2), len(gains)), gains)
    equalised: np.ndarray = scipy.fft.irfft(scipy.fft.rfft(signal, size) * 10 ** (curve / 20), size)
    return equalised[: len(signal)]


def reverberate(signal: np.ndarray, t60: float, generator: np.random.Generator) -> np.ndarray:
    """The signal in a room: direct sound, and a tail of noise of equal energy that falls by 60 dB in `t60` seconds."""
    samples = round(t60 * RATE)
    tail = generator.standard_normal(samples) * 10 ** (-3 * np.arange(samples) / samples)
    tail /= np.sqrt(np.square(tail).sum())
    heard: np.ndarray = scipy.signal.fftconvolve(signal, np.concatenate([[1.0], tail]))
    return heard[: len(signal)]


def add_noise(signal: np.ndarray, snr: float, generator: np.random.Generator) -> np.ndarray:
    """The signal with white noise, `snr` dB below the mean power of the whole signal."""
    level = np.sqrt(np.mean(np.square(signal)) / 10 ** (snr / 10))
    noisy: np.ndarray = signal + level * generator.standard_normal(len(signal))
    return noisy
