"""The embedded emotions and sound events: their contents, how classes differ, and skewed class shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora.synthesis.embedded import Embedded
from fedray.data.corpora.synthesis.emotions import EMOTIONS, deliver
from fedray.data.corpora.synthesis.events import EVENTS
from fedray.data.corpora.synthesis.speakers import Conditions, clean, draw
from fedray.data.manifest import Manifest
from tests.data.corpora.synthesis.test_embedded import backwards, synthesiser, waveforms  # noqa: F401

CLEAN = clean()


def small(kind: str, speakers: int, utterances: int, **changes: Any) -> Embedded:
    none = {"server_speakers": 0, "dev_speakers": 0, "test_speakers": 0, "test_server_speakers": 0}
    return Embedded(**{"kind": kind, "client_speakers": speakers, "client_utterances": utterances, **none, **changes})


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Make two sources of each event, with three slices each."""
    return small("events", 20, 3, clients=CLEAN).read(None, 0, tmp_path_factory.mktemp("events"), serial)["train"]


def clips(manifest: Manifest) -> list[tuple[str, str, np.ndarray]]:
    """Return (speaker, label, samples) of every utterance."""
    found = []
    for row in manifest:
        rate = soundfile.info(row.path).samplerate
        samples, _ = soundfile.read(row.path, start=round(row.offset * rate), frames=round(row.seconds * rate))
        found.append((row.speaker, row.label, samples))
    return found


@pytest.mark.parametrize("kind", ["emotions", "events"])
def test_bits_depend_on_seed_and_names_alone(kind: str, tmp_path: Path, synthesiser: None) -> None:  # noqa: F811
    corpus = small(kind, 4, 4)
    one, other = corpus.read(None, 0, tmp_path / "a", serial), corpus.read(None, 0, tmp_path / "b", backwards)
    assert waveforms(one) == waveforms(other)
    assert not set(waveforms(corpus.read(None, 1, tmp_path, serial)).values()) & set(waveforms(one).values())
    more = replace(corpus, client_speakers=6).read(None, 0, tmp_path / "c", serial)
    assert waveforms(one).items() <= waveforms(more).items(), "further speakers do not change the others"


def test_emotions(tmp_path: Path, synthesiser: None) -> None:  # noqa: F811
    """Emotions are equally frequent. In clean speech, most angry utterances are louder than sad ones."""
    manifest = small("emotions", 6, 16, clients=CLEAN).read(None, 0, tmp_path, serial)["train"]
    assert (
        Counter(manifest.column("label")) == dict.fromkeys(EMOTIONS, 6 * 4) and len(set(manifest.column("text"))) > 20
    )
    loud: dict[tuple[str, str], list[float]] = {}
    for speaker, label, samples in clips(manifest):
        loud.setdefault((speaker, label), []).append(10 * np.log10(np.mean(samples**2)))
    louder = [
        np.mean(loud[speaker, "angry"]) > np.mean(loud[speaker, "sad"]) for speaker in {speaker for speaker, _ in loud}
    ]
    assert sum(louder) >= 5


def test_an_emotion_is_a_tendency() -> None:
    """On average, angry speech is faster and louder than sad speech; single utterances often are not."""
    who = [draw(f"clients-en-{i:04d}", "en", Conditions(), 0) for i in range(50)]
    faster = []
    for one in who:
        angry, sad = ([deliver(one, emotion, position) for position in range(10)] for emotion in ("angry", "sad"))
        for name in ("level", "tilt"):
            assert np.mean([getattr(way, name) for way in angry]) > np.mean([getattr(way, name) for way in sad]) - 4
        faster += [a.manner[0] > s.manner[0] for a, s in zip(angry, sad, strict=True)]
    assert 0.75 < np.mean(faster) < 1.0


def test_events(events: Manifest) -> None:
    """A source has one class; its utterances are slices of up to four seconds."""
    assert Counter(events.column("label")) == dict.fromkeys(EVENTS, 6)
    classes: dict[str, set[str]] = {}
    for speaker, label in zip(events.column("speaker"), events.column("label"), strict=True):
        classes.setdefault(speaker, set()).add(label)
    assert len(classes) == 20 and all(len(found) == 1 for found in classes.values())
    seconds = events.array("seconds")
    assert seconds.min() >= 0.8 and seconds.max() == 4.0 and set(events.column("text")) == {None}


def test_events_sound_like_their_sources(events: Manifest) -> None:
    """Shots and barks are mostly silent, air conditioners and drills are steady, sirens and horns are tonal."""
    found = clips(events)
    crest: dict[str, list[float]] = {}
    flat: dict[str, list[float]] = {}
    for _, label, samples in found:
        frames = samples[: len(samples) // 800 * 800].reshape(-1, 800)
        power = (frames**2).mean(1) + 1e-12
        crest.setdefault(label, []).append(power.max() / np.median(power))
        spectrum = (np.abs(np.fft.rfft(samples * np.hanning(len(samples)))) ** 2)[10:] + 1e-12
        flat.setdefault(label, []).append(np.exp(np.log(spectrum).mean()) / spectrum.mean())
    uneven = {label: np.median(values) for label, values in crest.items()}
    noisy = {label: np.median(values) for label, values in flat.items()}
    assert min(uneven["gun_shot"], uneven["dog_bark"]) > 3 * max(uneven["air_conditioner"], uneven["drilling"])
    assert max(noisy["siren"], noisy["car_horn"]) < noisy["jackhammer"] and noisy["car_horn"] < noisy["air_conditioner"]


def test_clients_with_skewed_shares(tmp_path: Path, synthesiser: None) -> None:  # noqa: F811
    """Each client draws words with its own shares; dev has every word equally often."""
    corpus = small("keywords", 12, 20, words=5, skew=0.3, dev_speakers=2, dev_utterances=20)
    splits = corpus.read(None, 0, tmp_path, serial)
    by_client: dict[str, Counter[str]] = {}
    for row in splits["train"]:
        by_client.setdefault(row.speaker, Counter())[row.label] += 1
    assert all(sum(words.values()) == 20 for words in by_client.values())
    assert np.median([max(words.values()) for words in by_client.values()]) >= 8, "equal shares are four of each"
    assert set(Counter(splits["dev"].column("label")).values()) == {8}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "moods"}, "kind must be one of commands, keywords, emotions, events, not 'moods'"),
        ({"kind": "keywords", "skew": 0.0}, "skew must be above 0, not 0"),
        ({"kind": "events", "skew": 1.0}, "data.options.skew is for keywords and emotions, not events"),
    ],
)
def test_impossible_settings_are_errors(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        Embedded(**changes).read(None, 0, tmp_path, serial)
