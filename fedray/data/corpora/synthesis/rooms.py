"""Turn a dry voice into a recording: vocal tract, equaliser, room, noise, level.

Signals are float32 [samples] at 16 kHz unless a docstring says otherwise.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import scipy.fft
import scipy.signal

from fedray.data.corpora.synthesis import espeak
from fedray.data.corpora.synthesis.speakers import BANDS

SAMPLE_RATE = 16000  # Hz
GRID = 125  # samples, 1/128 s: as floats, offsets and lengths in seconds are exact
SILENCE = 100  # of 32,767: quieter samples at either end are not speech
EQUALISER_TAPS = 255
PRE_DELAY = 0.002  # s between the direct sound and the first reflection
LOUDEST = 0.95  # of full scale, the highest peak


def trim(voice: np.ndarray) -> np.ndarray:
    """The voice (int16) from its first to its last audible sample."""
    heard = np.flatnonzero(np.abs(voice.astype(np.int32)) > SILENCE)
    return voice[heard[0] : heard[-1] + 1] if len(heard) else voice


def shorten_tract(voice: np.ndarray, warp: float) -> np.ndarray:
    """espeak-ng's int16 samples as float32 at 16 kHz, played `warp` times as fast, with higher formants and pitch."""
    ratio = Fraction(SAMPLE_RATE / (espeak.SAMPLE_RATE * warp)).limit_denominator(100)
    signal = voice.astype(np.float32) / 32768
    window = _low_pass(max(ratio.numerator, ratio.denominator))
    warped: np.ndarray = scipy.signal.resample_poly(signal, ratio.numerator, ratio.denominator, window=window)
    return warped


@lru_cache(maxsize=512)
def _low_pass(factor: int) -> np.ndarray:
    taps: np.ndarray = scipy.signal.firwin(20 * factor + 1, 1 / factor, window=("kaiser", 5.0))
    return taps.astype(np.float32)


def channel(equaliser: tuple[float, ...], t60: float, direct: float, generator: np.random.Generator) -> np.ndarray:
    """The impulse response of room and microphone.

    The room is noise that decays exponentially, by 60 dB in `t60` seconds. Its energy is `direct` dB below that of the
    direct sound. With `t60` 0 there is no room.
    """
    frequencies = [0, *BANDS]
    gains = [10 ** (gain / 20) for gain in (equaliser[0], *equaliser)]
    microphone: np.ndarray = scipy.signal.firwin2(EQUALISER_TAPS, frequencies, gains, fs=SAMPLE_RATE)
    samples = round(t60 * SAMPLE_RATE)
    if samples == 0:
        return microphone.astype(np.float32)
    answer = generator.standard_normal(samples) * 10 ** (-3 * np.arange(samples) / samples)
    answer *= 10 ** (-direct / 20) / np.sqrt(np.sum(answer**2))
    room = np.concatenate([[1.0], np.zeros(round(PRE_DELAY * SAMPLE_RATE)), answer])
    response: np.ndarray = scipy.signal.fftconvolve(room, microphone)
    return response.astype(np.float32)


def noise(kind: str, samples: int, generator: np.random.Generator) -> np.ndarray:
    """Noise of unit power: "white", "pink" (-3 dB per octave) or "babble" (spectrum and syllables of far voices)."""
    if kind == "white":
        return generator.standard_normal(samples, dtype=np.float32)
    size = scipy.fft.next_fast_len(samples, real=True)
    spectrum = generator.standard_normal(2 * (size // 2 + 1), dtype=np.float32).view(np.complex64)
    shaped: np.ndarray = scipy.fft.irfft(spectrum * _spectrum(kind, size), size)[:samples]
    if kind == "babble":
        syllables = generator.normal(0, 4, samples * 5 // SAMPLE_RATE + 2)  # dB, five a second
        times = np.linspace(0, len(syllables) - 1, samples)
        shaped *= 10 ** (np.interp(times, np.arange(len(syllables)), syllables).astype(np.float32) / 20)
    normalised: np.ndarray = shaped / power(shaped) ** 0.5
    return normalised


@lru_cache(maxsize=256)
def _spectrum(kind: str, size: int) -> np.ndarray:
    frequencies = np.maximum(scipy.fft.rfftfreq(size, 1 / SAMPLE_RATE), 60)
    # Above 500 Hz, speech falls by 9 dB per octave.
    gains: np.ndarray = frequencies**-0.5 if kind == "pink" else 1 / (1 + (frequencies / 500) ** 1.5)
    return gains.astype(np.float32)


def power(signal: np.ndarray) -> float:
    """The mean square of a signal."""
    return float(np.dot(signal, signal)) / max(len(signal), 1)


def record(
    voice: np.ndarray,
    response: np.ndarray,
    kind: str,
    snr: float,
    level: float,
    before: int,
    samples: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """A recording (int16 [samples]): `voice` begins after `before` samples, heard through `response` and in noise.

    `snr` is in dB over the span of the voice. `level` is the voice's root mean square in dB below full scale; it is
    lower if a peak would exceed LOUDEST.
    """
    heard = np.zeros(samples, np.float32)
    arrived = scipy.signal.fftconvolve(voice, response)[: samples - before]
    heard[before : before + len(arrived)] = arrived
    speech = max(power(heard[before : before + len(voice)]), 1e-12)
    heard += noise(kind, samples, generator) * np.float32((speech / 10 ** (snr / 10)) ** 0.5)
    gain = min(10 ** (level / 20) / speech**0.5, LOUDEST / float(np.max(np.abs(heard))))
    return np.round(heard * np.float32(gain * 32767)).astype(np.int16)
