"""One speaker's session: everything they say, one FLAC file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from fedray.core import seeds
from fedray.data.corpora.synthesis import acoustics, espeak
from fedray.data.corpora.synthesis.acoustics import SAMPLE_RATE
from fedray.data.corpora.synthesis.speakers import Speaker

LEVELS = (-32.0, -20.0)  # dB below full scale
PAUSES = (0.1, 0.25)  # s of room before and after a sentence
CLIP = 1.0  # s, of a keyword
GRID = 125  # samples, 1/128 s: floating point holds offsets and lengths in seconds exactly


@dataclass(frozen=True)
class Session:
    """What one speaker says: `texts` in order, as sentences or as clips of one second, into the file `path` below the corpus."""

    speaker: Speaker
    texts: tuple[str, ...]
    clips: bool
    path: str


def record(session: Session, folder: Path) -> list[int]:
    """Write the session's file: 16 kHz, 16 bit, one utterance directly after the other. Returns the samples of each utterance."""
    speaker = session.speaker
    response = acoustics.channel(speaker.equaliser, speaker.t60, speaker.direct, seeds.numpy_generator(*speaker.names, "room"))
    voice_seed = seeds.derive(*speaker.names, "voice")
    with espeak.voice(speaker.voice, speaker.rate, speaker.pitch, speaker.pitch_range, voice_seed) as speak:
        dry = [acoustics.shorten_tract(acoustics.trim(speak(text)), speaker.warp) for text in session.texts]
    utterances = [_utterance(session, position, voice, response) for position, voice in enumerate(dry)]
    path = folder / session.path
    path.parent.mkdir(parents=True, exist_ok=True)
    # the fastest level: the files are a tenth larger than the smallest
    soundfile.write(path, np.concatenate(utterances), SAMPLE_RATE, subtype="PCM_16", compression_level=0.0)
    return [len(utterance) for utterance in utterances]


def _utterance(session: Session, position: int, voice: np.ndarray, response: np.ndarray) -> np.ndarray:
    speaker = session.speaker
    generator = seeds.numpy_generator(*speaker.names, "utterance", position)
    snr, level = generator.uniform(*speaker.snr), generator.uniform(*LEVELS)
    if session.clips:
        samples = round(CLIP * SAMPLE_RATE)
        voice = voice[:samples]
        before = int(generator.integers(samples - len(voice) + 1))
    else:
        before, after = (generator.uniform(*PAUSES, 2) * SAMPLE_RATE).astype(int).tolist()
        samples = -(-(before + len(voice) + after) // GRID) * GRID
    return acoustics.record(voice, response, speaker.noise, snr, level, before, samples, generator)
