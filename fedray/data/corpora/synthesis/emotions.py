"""How an emotion changes a voice: tempo, pitch, melody, loudness, spectral tilt and breath (the cues of Juslin & Laukka, 2003).

An emotion is a tendency, never a rule: speakers differ in how much they show and in which way, and no two utterances are shown alike. A
sad speaker of a high voice may well lie above an angry one of a low voice; what tells them apart is relative to the speaker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.signal

from fedray.core import seeds
from fedray.data.corpora.synthesis.espeak import Manner
from fedray.data.corpora.synthesis.speakers import BANDS, Speaker

# What changes: tempo (natural logarithm of the factor), pitch and pitch range (espeak-ng's units, 0-99), loudness (dB),
# tilt (dB an octave), breath (dB of noise against the voice, over QUIET_BREATH)
TENDENCIES = {
    "angry": (0.10, 9.0, 12.0, 5.0, 2.0, -4.0),
    "happy": (0.06, 15.0, 24.0, 2.5, 0.8, 0.0),
    "neutral": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "sad": (-0.16, -7.0, -18.0, -4.0, -1.6, 8.0),
}
EMOTIONS = tuple(TENDENCIES)
OWN_WAYS = (0.06, 5.0, 7.0, 1.2, 0.6, 3.0)  # standard deviation of a speaker's own way of showing one emotion
CHANCE = (0.07, 6.0, 9.0, 1.5, 0.6, 3.0)  # standard deviation from one utterance to the next
EXPRESSIVE = (0.5, 1.4)  # how much of the tendency a speaker shows at all
INTENSITY = (0.4, 1.4)  # and in one utterance
CLOSINGS = {
    "angry": ".!!",
    "happy": ".!?",
    "neutral": "...",
    "sad": "..,",
}  # one of three: it moves the last syllables' melody
HABITUAL = (-29.0, -23.0)  # dB below full scale, the range of speakers' own loudness
QUIET_BREATH = -30.0  # dB of breath against the voice, above 2 kHz
TILT_TAPS = 127
TILTED = (250, 4000)  # Hz: below and above the tilt goes no further


@dataclass(frozen=True)
class Delivery:
    """How one utterance is spoken."""

    manner: Manner
    closing: str  # the punctuation behind the text
    level: float  # dB: the root mean square, full scale being 0
    loudness: float  # dB over the speaker's own mean
    tilt: float  # dB an octave, 0 at 1 kHz
    breath: float  # dB of noise against the voice


def deliver(speaker: Speaker, emotion: str, position: int) -> Delivery:
    """How `speaker` shows `emotion` in the utterance at `position`: drawn by names, whatever else the speaker says."""
    habits = seeds.numpy_generator(*speaker.names, "expression")
    shown, habitual = habits.uniform(*EXPRESSIVE), habits.uniform(*HABITUAL)
    own = seeds.numpy_generator(*speaker.names, "expression", emotion).normal(0, OWN_WAYS)
    generator = seeds.numpy_generator(*speaker.names, "delivery", position)
    change = shown * generator.uniform(*INTENSITY) * np.array(TENDENCIES[emotion]) + own + generator.normal(0, CHANCE)
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
    """`voice` (float32 at 16 kHz) with the delivery's spectral tilt and breath, as long as it was."""
    frequencies = np.array([0, *BANDS])
    octaves = np.log2(np.clip(frequencies, *TILTED) / 1000)
    response = scipy.signal.firwin2(TILT_TAPS, frequencies, 10 ** (delivery.tilt * octaves / 20), fs=2 * BANDS[-1])
    tilted = scipy.signal.oaconvolve(voice, response.astype(np.float32), mode="same")
    # breath is air through the same mouth: noise of high frequencies, as loud as the voice at that moment
    hiss = np.diff(generator.standard_normal(len(voice) + 1, dtype=np.float32))
    loudness = scipy.signal.fftconvolve(np.abs(tilted), np.full(400, 1 / 400, np.float32), mode="same")
    return tilted + hiss * loudness * np.float32(10 ** (delivery.breath / 20))
