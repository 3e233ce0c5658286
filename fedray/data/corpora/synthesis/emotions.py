"""How an emotion changes a voice: tempo, pitch, melody, loudness, spectral tilt and breath (Juslin and Laukka, 2003).

An emotion is a tendency, not a rule. Speakers differ in how strongly and in which way they express emotions, and each
utterance differs again. The cues are relative to the speaker: a sad speaker with a high voice can have a higher pitch
than an angry speaker with a low voice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.signal

from fedray.core import seeds
from fedray.data.corpora.synthesis.espeak import Manner
from fedray.data.corpora.synthesis.speakers import BANDS, Speaker

# The mean changes of tempo (natural logarithm of the factor), pitch and pitch range (espeak-ng's units, 0-99),
# loudness (dB), tilt (dB per octave) and breath (dB of noise against the voice, over QUIET_BREATH).
TENDENCIES = {
    "angry": (0.10, 9.0, 12.0, 5.0, 2.0, -4.0),
    "happy": (0.06, 15.0, 24.0, 2.5, 0.8, 0.0),
    "neutral": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "sad": (-0.16, -7.0, -18.0, -4.0, -1.6, 8.0),
}
EMOTIONS = tuple(TENDENCIES)
BETWEEN_SPEAKERS = (0.06, 5.0, 7.0, 1.2, 0.6, 3.0)  # standard deviations between speakers' ways to express an emotion
BETWEEN_UTTERANCES = (0.07, 6.0, 9.0, 1.5, 0.6, 3.0)  # standard deviations between a speaker's utterances
EXPRESSIVE = (0.5, 1.4)  # factor of the mean change, drawn for a speaker
INTENSITY = (0.4, 1.4)  # factor of the mean change, drawn for an utterance
# One of three punctuation marks closes the text: it changes the melody of the last syllables.
CLOSINGS = {
    "angry": ".!!",
    "happy": ".!?",
    "neutral": "...",
    "sad": "..,",
}
HABITUAL = (-29.0, -23.0)  # dB below full scale, the range of speakers' mean loudness
QUIET_BREATH = -30.0  # dB of breath against the voice, above 2 kHz
TILT_TAPS = 127
TILTED = (250, 4000)  # Hz: outside, the gain stays constant


@dataclass(frozen=True)
class Delivery:
    """The way one utterance is spoken."""

    manner: Manner
    closing: str  # the punctuation after the text
    level: float  # dB below full scale, of the root mean square
    loudness: float  # dB above the speaker's mean
    tilt: float  # dB per octave, 0 at 1 kHz
    breath: float  # dB of noise against the voice


def deliver(speaker: Speaker, emotion: str, position: int) -> Delivery:
    """How `speaker` expresses `emotion` in the utterance at `position`. Other utterances do not change the draws."""
    habits = seeds.numpy_generator(*speaker.names, "expression")
    shown, habitual = habits.uniform(*EXPRESSIVE), habits.uniform(*HABITUAL)
    personal = seeds.numpy_generator(*speaker.names, "expression", emotion).normal(0, BETWEEN_SPEAKERS)
    generator = seeds.numpy_generator(*speaker.names, "delivery", position)
    change = shown * generator.uniform(*INTENSITY) * np.array(TENDENCIES[emotion]) + personal
    change = change + generator.normal(0, BETWEEN_UTTERANCES)
    tempo, pitch, pitch_range, loudness, tilt, breath = change.tolist()
    return Delivery(
        manner=(
            int(np.clip(round(speaker.rate * np.exp(tempo)), 80, 320)),
            int(np.clip(round(speaker.pitch + pitch), 0, 99)),
            int(np.clip(round(speaker.pitch_range + pitch_range), 0, 99)),
        ),
        closing=CLOSINGS[emotion][int(generator.integers(3))],
        level=habitual + loudness,
        loudness=loudness,
        tilt=tilt,
        breath=QUIET_BREATH + breath,
    )


def colour(voice: np.ndarray, delivery: Delivery, generator: np.random.Generator) -> np.ndarray:
    """Apply the delivery's spectral tilt and breath to `voice` (float32 at 16 kHz), which keeps its length."""
    frequencies = np.array([0, *BANDS])
    octaves = np.log2(np.clip(frequencies, *TILTED) / 1000)
    gains = 10 ** (delivery.tilt * octaves / 20)
    response = scipy.signal.firwin2(TILT_TAPS, frequencies, gains, fs=2 * BANDS[-1])
    tilted: np.ndarray = scipy.signal.oaconvolve(voice, response.astype(np.float32), mode="same")
    # Breath is high-frequency noise whose loudness follows the voice.
    hiss = np.diff(generator.standard_normal(len(voice) + 1, dtype=np.float32))
    loudness = scipy.signal.fftconvolve(np.abs(tilted), np.full(400, 1 / 400, np.float32), mode="same")
    coloured: np.ndarray = tilted + hiss * loudness * np.float32(10 ** (delivery.breath / 20))
    return coloured
