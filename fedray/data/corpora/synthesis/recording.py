"""Audio files: one FLAC file holds all utterances of a speaker, or all slices of a source's recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from fedray.core import seeds
from fedray.data.corpora.synthesis import emotions, espeak, events, rooms
from fedray.data.corpora.synthesis.emotions import Delivery
from fedray.data.corpora.synthesis.events import Source
from fedray.data.corpora.synthesis.rooms import GRID, SAMPLE_RATE
from fedray.data.corpora.synthesis.speakers import Speaker

LEVELS = (-32.0, -20.0)  # dB below full scale
PAUSES = (0.1, 0.25)  # s of room noise before and after a sentence
CLIP = 1.0  # s, the length of a keyword's clip


@dataclass(frozen=True)
class Session:
    """The `texts` that one speaker says, in order; `path` is the audio file, relative to the corpus' folder."""

    speaker: Speaker
    texts: tuple[str, ...]
    clips: bool  # whether each text is a clip of one second
    path: str
    emotions: tuple[str, ...] | None = None  # one for each text; None: the speaker's plain voice

    @property
    def id(self) -> str:
        return self.speaker.id


@dataclass(frozen=True)
class Slices:
    """`count` slices of one source's recording; `path` is the audio file, relative to the corpus' folder."""

    source: Source
    count: int
    path: str

    @property
    def id(self) -> str:
        return self.source.id

    @property
    def texts(self) -> tuple[None, ...]:
        return (None,) * self.count


def record(session: Session | Slices, folder: Path) -> list[int]:
    """Write the session's file: 16 kHz, 16 bit, utterances without gaps. Returns the number of samples of each."""
    utterances = _speech(session) if isinstance(session, Session) else _slices(session)
    path = folder / session.path
    path.parent.mkdir(parents=True, exist_ok=True)
    # The fastest compression level; its files are a tenth larger than the smallest.
    soundfile.write(path, np.concatenate(utterances), SAMPLE_RATE, subtype="PCM_16", compression_level=0.0)
    return [len(utterance) for utterance in utterances]


def _speech(session: Session) -> list[np.ndarray]:
    speaker = session.speaker
    place = speaker.place
    response = rooms.channel(place.equaliser, place.t60, place.direct, seeds.numpy_generator(*speaker.names, "room"))
    plain = (speaker.rate, speaker.pitch, speaker.pitch_range)
    deliveries: list[Delivery | None] = [None] * len(session.texts)
    if session.emotions is not None:
        deliveries = [emotions.deliver(speaker, emotion, position) for position, emotion in enumerate(session.emotions)]
    dry = []
    with espeak.voice(speaker.voice, seeds.derive(*speaker.names, "voice")) as speak:
        for text, delivery in zip(session.texts, deliveries, strict=True):
            voice = speak(text, plain) if delivery is None else speak(text + delivery.closing, delivery.manner)
            dry.append(rooms.shorten_tract(rooms.trim(voice), speaker.warp))
    return [_utterance(session, *each, response) for each in zip(range(len(dry)), dry, deliveries, strict=True)]


def _utterance(
    session: Session, position: int, voice: np.ndarray, delivery: Delivery | None, response: np.ndarray
) -> np.ndarray:
    speaker = session.speaker
    generator = seeds.numpy_generator(*speaker.names, "utterance", position)
    snr, level = generator.uniform(*speaker.place.snr), generator.uniform(*LEVELS)
    if delivery is not None:
        voice = emotions.colour(voice, delivery, seeds.numpy_generator(*speaker.names, "breath", position))
        snr, level = snr + delivery.loudness, delivery.level  # a louder voice leaves the room's noise as it is
    if session.clips:
        samples = round(CLIP * SAMPLE_RATE)
        voice = voice[:samples]
        before = int(generator.integers(samples - len(voice) + 1))
    else:
        before, after = (generator.uniform(*PAUSES, 2) * SAMPLE_RATE).astype(int).tolist()
        samples = -(-(before + len(voice) + after) // GRID) * GRID
    return rooms.record(voice, response, speaker.place.noise, snr, level, before, samples, generator)


def _slices(session: Slices) -> list[np.ndarray]:
    source = session.source
    place = source.place
    response = rooms.channel(place.equaliser, place.t60, place.direct, seeds.numpy_generator(*source.names, "room"))
    slices = []
    for position in range(session.count):
        sound = events.slice_of(source, position)
        generator = seeds.numpy_generator(*source.names, "slice", position)
        snr, level = generator.uniform(*place.snr), generator.uniform(*LEVELS)
        slices.append(rooms.record(sound, response, place.noise, snr, level, 0, len(sound), generator))
    return slices
