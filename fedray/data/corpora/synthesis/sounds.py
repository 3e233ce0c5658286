"""The parts of sounds: shaped noise, tones with harmonics, struck bodies, envelopes.

Signals are float32 [samples] at 16 kHz.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.fft
import scipy.signal

from fedray.data.corpora.synthesis.rooms import SAMPLE_RATE, power

HIGHEST = 7600  # Hz, the highest harmonic, below the Nyquist frequency
TABLE = 2048  # samples of one period


def noise(samples: int, gain: Callable[[np.ndarray], np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """Noise of unit power, with the spectrum `gain(frequencies in Hz)`."""
    size = scipy.fft.next_fast_len(samples, real=True)
    spectrum = generator.standard_normal(2 * (size // 2 + 1), dtype=np.float32).view(np.complex64)
    frequencies = np.maximum(scipy.fft.rfftfreq(size, 1 / SAMPLE_RATE).astype(np.float32), 20)
    return unit(scipy.fft.irfft(spectrum * gain(frequencies), size)[:samples])


def falling(corner: float, slope: float) -> Callable[[np.ndarray], np.ndarray]:
    """A gain for `noise`: flat up to `corner` Hz, then falling by `slope` times 6 dB per octave."""
    return lambda frequencies: 1 / (1 + (frequencies / np.float32(corner)) ** np.float32(slope))


def bands(centres: Sequence[float], width: float) -> Callable[[np.ndarray], np.ndarray]:
    """A gain for `noise`: bells around `centres` (Hz), `width` octaves wide on either side."""

    def gain(frequencies: np.ndarray) -> np.ndarray:
        octaves = np.log2(frequencies)
        distances = ((octaves - np.float32(np.log2(centre))) / np.float32(width) for centre in centres)
        bells = (np.exp(np.float32(-0.5) * distance**2) for distance in distances)
        total: np.ndarray = sum(bells, start=np.zeros_like(octaves))
        return total

    return gain


def tone(frequency: np.ndarray | float, samples: int, amplitudes: np.ndarray, start: float = 0.0) -> np.ndarray:
    """A tone of unit power with harmonics of these `amplitudes`, the fundamental first.

    `frequency` is in Hz: one number, or one for each sample. `start` is the phase of the first sample, in periods.
    """
    course = np.broadcast_to(np.asarray(frequency, np.float64), (samples,))
    kept = amplitudes[: max(int(HIGHEST / course.max()), 1)]
    spectrum = np.zeros(TABLE // 2 + 1, np.complex128)
    # The phases of a chirp keep the peaks of many harmonics low.
    spectrum[1 : len(kept) + 1] = kept * np.exp(1j * np.pi * np.arange(len(kept)) ** 2 / len(kept))
    period = scipy.fft.irfft(spectrum, TABLE).astype(np.float32)
    phase = np.cumsum(course) / SAMPLE_RATE + start
    return unit(period[(phase % 1 * TABLE).astype(np.int64) % TABLE])


def voiced(fundamental: float, formants: Sequence[float], width: float = 0.35) -> np.ndarray:
    """Amplitudes of a voice's harmonics: strong near the `formants` (Hz)."""
    harmonics = fundamental * np.arange(1, max(int(HIGHEST / fundamental), 1) + 1, dtype=np.float32)
    amplitudes: np.ndarray = (bands(formants, width)(harmonics) + 0.02) * (harmonics / fundamental) ** -0.3
    return amplitudes


def ringing(frequencies: np.ndarray, gains: np.ndarray, decays: np.ndarray) -> np.ndarray:
    """The sound of a struck body: damped sines. `decays` has the time (s) in which each falls to 1/e."""
    times = np.arange(int(5 * decays.max() * SAMPLE_RATE) + 1) / SAMPLE_RATE
    sines = np.sin(2 * np.pi * frequencies[:, None] * times) * np.exp(-times / decays[:, None])
    sound: np.ndarray = gains @ sines
    return sound.astype(np.float32)


def struck(times: np.ndarray, strengths: np.ndarray, answer: np.ndarray, samples: int) -> np.ndarray:
    """`answer`, started at each of `times` (s) with these `strengths`. Times outside the signal have no effect."""
    train = np.zeros(samples, np.float32)
    places = (np.asarray(times) * SAMPLE_RATE).astype(np.int64)
    inside = (places >= 0) & (places < samples)
    np.add.at(train, places[inside], np.asarray(strengths, np.float32)[inside])
    sound: np.ndarray = scipy.signal.fftconvolve(train, answer)
    return sound[:samples]


def add(signal: np.ndarray, part: np.ndarray, start: float) -> None:
    """Add `part` to `signal` from `start` (s) on, up to the end of `signal`."""
    begin = int(start * SAMPLE_RATE)
    piece = part[: max(len(signal) - begin, 0)]
    signal[begin : begin + len(piece)] += piece


def envelope(seconds: float, attack: float, release: float) -> np.ndarray:
    """A rise from 0 to 1 within `attack` seconds, and a fall to 0 within the last `release` seconds."""
    samples = max(int(seconds * SAMPLE_RATE), 2)
    times = np.arange(samples, dtype=np.float32) / SAMPLE_RATE
    return np.clip(np.minimum(times / attack, (seconds - times) / release), 0, 1).astype(np.float32)


def drift(samples: int, rate: float, deviation: float, generator: np.random.Generator) -> np.ndarray:
    """A random curve around 0 with `rate` turning points a second, normal with this `deviation`."""
    turns = generator.normal(0, deviation, int(samples * rate / SAMPLE_RATE) + 3)
    curve: np.ndarray = np.interp(np.arange(samples) * (rate / SAMPLE_RATE), np.arange(len(turns)), turns)
    return curve.astype(np.float32)


def unit(signal: np.ndarray) -> np.ndarray:
    """The signal at unit power; silence stays silence."""
    normalised: np.ndarray = signal / np.float32(max(power(signal), 1e-12) ** 0.5)
    return normalised


def gain(decibels: float) -> np.float32:
    """The factor of an amplitude."""
    return np.float32(10 ** (decibels / 20))
