"""What sounds are made of: shaped noise, tones with harmonics, struck bodies, envelopes. Signals are float32 [samples] at 16 kHz."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.fft
import scipy.signal

from fedray.data.corpora.synthesis.acoustics import SAMPLE_RATE, power

HIGHEST = 7600  # Hz, of a harmonic: above, it would fold back
TABLE = 2048  # samples of one period


def noise(samples: int, gain: Callable[[np.ndarray], np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """Noise of unit power whose spectrum has the amplitude `gain(frequencies in Hz)`."""
    size = scipy.fft.next_fast_len(samples, real=True)
    spectrum = generator.standard_normal(2 * (size // 2 + 1), dtype=np.float32).view(np.complex64)
    frequencies = np.maximum(scipy.fft.rfftfreq(size, 1 / SAMPLE_RATE).astype(np.float32), 20)
    return unit(scipy.fft.irfft(spectrum * gain(frequencies), size)[:samples])


def falling(corner: float, slope: float) -> Callable[[np.ndarray], np.ndarray]:
    """Flat up to `corner` in Hz, then falling by `slope` times 6 dB an octave."""
    return lambda frequencies: 1 / (1 + (frequencies / np.float32(corner)) ** np.float32(slope))


def bands(centres: Sequence[float], width: float) -> Callable[[np.ndarray], np.ndarray]:
    """Bells on the logarithmic axis around `centres` in Hz, `width` octaves to either side."""

    def gain(frequencies: np.ndarray) -> np.ndarray:
        octaves = np.log2(frequencies)
        return sum(np.exp(np.float32(-0.5) * ((octaves - np.float32(np.log2(centre))) / np.float32(width)) ** 2) for centre in centres)

    return gain


def tone(frequency: np.ndarray | float, samples: int, amplitudes: np.ndarray, start: float = 0.0) -> np.ndarray:
    """A tone of unit power: `frequency` in Hz, a number or one a sample; amplitudes of its harmonics, the first being its own.

    `start` is the phase at the beginning, in periods.
    """
    course = np.broadcast_to(np.asarray(frequency, np.float64), (samples,))
    kept = amplitudes[: max(int(HIGHEST / course.max()), 1)]
    spectrum = np.zeros(TABLE // 2 + 1, np.complex128)
    # phases of a chirp keep the peaks of many harmonics low, and are the same for every sound
    spectrum[1 : len(kept) + 1] = kept * np.exp(1j * np.pi * np.arange(len(kept)) ** 2 / len(kept))
    period = scipy.fft.irfft(spectrum, TABLE).astype(np.float32)
    phase = np.cumsum(course) / SAMPLE_RATE + start
    return unit(period[(phase % 1 * TABLE).astype(np.int64) % TABLE])


def voiced(fundamental: float, formants: Sequence[float], width: float = 0.35) -> np.ndarray:
    """Amplitudes of the harmonics of a throat: those near `formants` (Hz) are strong."""
    harmonics = fundamental * np.arange(1, max(int(HIGHEST / fundamental), 1) + 1, dtype=np.float32)
    return (bands(formants, width)(harmonics) + 0.02) * (harmonics / fundamental) ** -0.3


def ringing(frequencies: np.ndarray, gains: np.ndarray, decays: np.ndarray) -> np.ndarray:
    """A struck body: damped sines, each falling to 1/e in its own time in s."""
    times = np.arange(int(5 * decays.max() * SAMPLE_RATE) + 1) / SAMPLE_RATE
    sines = np.sin(2 * np.pi * frequencies[:, None] * times) * np.exp(-times / decays[:, None])
    return (gains @ sines).astype(np.float32)


def struck(times: np.ndarray, strengths: np.ndarray, answer: np.ndarray, samples: int) -> np.ndarray:
    """`answer` begun at each of `times` (s), those beyond the end left out."""
    train = np.zeros(samples, np.float32)
    places = (np.asarray(times) * SAMPLE_RATE).astype(np.int64)
    inside = (places >= 0) & (places < samples)
    np.add.at(train, places[inside], np.asarray(strengths, np.float32)[inside])
    return scipy.signal.fftconvolve(train, answer)[:samples]


def add(signal: np.ndarray, part: np.ndarray, start: float) -> None:
    """Lay `part` into `signal` from `start` (s) on, as far as it reaches."""
    begin = int(start * SAMPLE_RATE)
    piece = part[: max(len(signal) - begin, 0)]
    signal[begin : begin + len(piece)] += piece


def envelope(seconds: float, attack: float, release: float) -> np.ndarray:
    """0 to 1 within `attack`, and back within the last `release` (s)."""
    samples = max(int(seconds * SAMPLE_RATE), 2)
    times = np.arange(samples, dtype=np.float32) / SAMPLE_RATE
    return np.clip(np.minimum(times / attack, (seconds - times) / release), 0, 1).astype(np.float32)


def drift(samples: int, rate: float, deviation: float, generator: np.random.Generator) -> np.ndarray:
    """A course around 0 with `rate` random turns a second."""
    turns = generator.normal(0, deviation, int(samples * rate / SAMPLE_RATE) + 3)
    return np.interp(np.arange(samples) * (rate / SAMPLE_RATE), np.arange(len(turns)), turns).astype(np.float32)


def unit(signal: np.ndarray) -> np.ndarray:
    """At unit power; silence stays silence."""
    return signal / np.float32(max(power(signal), 1e-12) ** 0.5)


def gain(decibels: float) -> np.float32:
    return np.float32(10 ** (decibels / 20))
