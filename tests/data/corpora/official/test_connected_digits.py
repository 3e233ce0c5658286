"""Connected digits, made from recordings of tones: contents, identical bits, and changes of sound."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora.official import digit_strings
from fedray.data.corpora.official.connected_digits import ConnectedDigits
from fedray.data.corpora.official.fsdd import RATE, WORDS, recordings
from tests.trees import read

SMALL = {
    "server_speakers": ["ann", "bob"],
    "clients_per_speaker": 2,
    "test_takes": (0, 1),
    "dev_takes": (2, 3),
    "server_takes": (4, 7),
    "client_takes": (4, 7),
    "server_strings": 7,
    "client_strings": 3,
    "dev_strings": 6,
    "test_strings": 5,
}


def test_connected_digits(digits: Path, tmp_path: Path) -> None:
    splits = read("connected_digits", digits, tmp_path, **SMALL, augment_server=False)
    assert {split: len(manifest) for split, manifest in splits.items()} == {
        "server": 7,
        "clients": 12,
        "dev": 6,
        "test": 5,
        "test-server": 5,
    }
    assert (
        set(splits["clients"].column("speaker"))
        == {"cat#1", "cat#2", "dan#1", "dan#2"}
        >= set(splits["test"].column("speaker"))
    )
    assert set(splits["server"].column("speaker")) == {"ann", "bob"} == set(splits["test-server"].column("speaker"))
    assert all(manifest.column("label") == manifest.column("speaker") for manifest in splits.values())
    lengths = {word: 0.1 + 0.01 * digit for digit, word in enumerate(WORDS)}
    with Path(splits["test"][0].path).with_name("strings.tsv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file, delimiter="\t"):  # a recording is named like 7_ann_0
            assert [WORDS[int(name[0])] for name in line["recordings"].split()] == line["text"].split()
    for manifest in splits.values():
        manifest.check()
        for row in manifest:
            info = soundfile.info(row.path)
            assert (info.samplerate, info.format, info.subtype, info.duration) == (8000, "FLAC", "PCM_16", row.seconds)
            words = row.text.split()
            assert 3 <= len(words) <= 7
            pauses = row.seconds - sum(lengths[word] for word in words)
            assert 0.05 * (len(words) + 1) - 0.001 < pauses < 0.3 * (len(words) + 1) + 0.001


def test_connected_digits_are_the_same_bits(digits: Path, tmp_path: Path) -> None:
    def hashes(folder: Path, seed: int = 0, parallel=serial, **options: object) -> dict[str, str]:
        corpus = ConnectedDigits(**SMALL | options)
        splits = corpus.read(digits, seed, tmp_path / folder, parallel)
        paths = [Path(path) for manifest in splits.values() for path in manifest.column("path")]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}

    def backwards(function, items, what):
        results = [function(item) for item in reversed(items)]
        yield from reversed(results)

    first = hashes("a")
    assert len(set(first.values())) == 35
    assert hashes("b", parallel=backwards) == first
    before = sorted((tmp_path / "a").rglob("*.flac"))
    assert hashes("a") == first and sorted((tmp_path / "a").rglob("*.flac")) == before  # read again, not made again
    assert not set(hashes("a", seed=1).values()) & set(first.values())
    roomy = hashes("a", rooms=True)
    changed = {name for name in first if roomy[name] != first[name]}
    assert changed == {name for name in first if name.startswith(("clients-", "dev-", "test-cat", "test-dan"))}


def test_clients_of_a_speaker_share_no_recording(digits: Path) -> None:
    speakers = recordings(digits)
    sources = ConnectedDigits(**SMALL)._sources(speakers, 0)
    of = {source.talker: set(source.takes) for source in sources if source.split == "clients"}
    assert of["cat#1"] | of["cat#2"] == {4, 5, 6, 7} and not of["cat#1"] & of["cat#2"]
    both = SMALL | {"client_speakers": ["ann"], "server_takes": (4, 5), "client_takes": (6, 7)}
    used = {
        source.split: set(source.takes)
        for source in ConnectedDigits(**both)._sources(speakers, 0)
        if source.talker == "ann"
    }
    assert used == {"server": {4, 5}, "test-server": {0, 1}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_speakers": ["ann"]}, r"(server|client)_takes and data\.options\.(server|client)_takes overlap"),
        ({"client_takes": (3, 7)}, r"dev_takes and data\.options\.client_takes overlap at take 3"),
        (
            {"server_speakers": ["zoe"]},
            "the recordings have no speaker 'zoe', only ann, bob, cat, dan: correct server_speakers",
        ),
        (
            {"server_speakers": ["ann", "bob", "cat", "dan"]},
            "no speaker for the clients: correct server_speakers and client_speakers",
        ),
        ({"clients_per_speaker": 5}, "cat has 4 takes, too few for 5 clients"),
        ({"client_takes": (20, 30)}, "cat has no takes 20 to 30, only 0 to 7"),
        ({"warp": (1.2, 0.8)}, "warp must be a range"),
        ({"digits": (0, 3)}, "digits must be a range"),
        ({"pause": (-0.1, 0.3)}, "pause must be a range"),
    ],
)
def test_connected_digits_refuse(digits: Path, tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read("connected_digits", digits, tmp_path, **SMALL | options)


def test_changes_of_sound() -> None:
    time = np.arange(8000) / RATE
    signal = np.sin(2 * np.pi * 500 * time)

    def pitch(sound: np.ndarray) -> float:
        return np.fft.rfftfreq(len(sound), 1 / RATE)[np.argmax(np.abs(np.fft.rfft(sound)))]

    for rate in (0.7, 1.0, 1.4):
        changed = digit_strings.change_tempo(signal, rate)
        assert len(changed) == round(8000 / rate)
        assert pitch(changed) == pytest.approx(500, abs=2)  # Hz: twice the resolution of a spectrum of about 1 s
        assert np.std(changed) == pytest.approx(np.std(signal), rel=0.1)
    louder = digit_strings.equalise(signal, np.full(7, 6.0))
    assert np.std(louder) == pytest.approx(np.std(signal) * 10 ** (6 / 20))
    noisy = digit_strings.add_noise(signal, 10.0, np.random.default_rng(0)) - signal
    assert 10 * np.log10(np.mean(signal**2) / np.mean(noisy**2)) == pytest.approx(10, abs=0.3)
    impulse = np.zeros(8000)
    impulse[0] = 1
    answer = digit_strings.reverberate(impulse, 0.5, np.random.default_rng(0))
    assert answer[0] == pytest.approx(1, abs=0.2) and np.square(answer).sum() == pytest.approx(2, abs=0.4)
    first, second = (10 * np.log10(np.square(part).sum()) for part in (answer[400:800], answer[2400:2800]))
    assert first - second == pytest.approx(60 * (2000 / 8000) / 0.5, abs=3)  # 60 dB in half a second
