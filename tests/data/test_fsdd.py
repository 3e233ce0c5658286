"""Single and connected digits, from recordings that are tones: four speakers, eight takes."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora import fsdd
from fedray.data.manifest import Manifest


def read(kind: type, root: Path, cache: Path = Path("unused"), **options: object) -> dict[str, Manifest]:
    return kind(**options).read(root, 0, cache, serial)


def tone(path: Path, seconds: float, rate: int, pitch: float = 200.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate), rate)
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four speakers, eight takes of every digit; each recording has a pitch and a length of its own."""
    root = tmp_path_factory.mktemp("fsdd")
    for place, speaker in enumerate(("ann", "bob", "cat", "dan")):
        for take in range(8):
            for digit in range(10):
                name = f"{digit}_{speaker}_{take}.{'wav' if take % 2 else 'flac'}"
                tone(root / "recordings" / name, 0.1 + 0.01 * digit, 8000, 200 + 300 * place + 20 * digit + take)
    return root


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


def test_single_digits(digits: Path, tmp_path: Path) -> None:
    splits = read(fsdd.Fsdd, digits, test_takes=(0, 1), dev_takes=(2, 2))
    assert {split: len(manifest) for split, manifest in splits.items()} == {"train": 200, "dev": 40, "test": 80}
    row = splits["test"][3]
    assert (row.utterance, row.speaker, row.text, row.label) == ("3_ann_0", "ann", "three", "three")
    assert row.seconds == 0.13
    assert len(read(fsdd.Fsdd, digits / "recordings", test_takes=(0, 1), dev_takes=(2, 2))["test"]) == 80
    with pytest.raises(ValueError, match="test_takes and dev_takes overlap at take 1|test and dev overlap at take 1"):
        read(fsdd.Fsdd, digits, test_takes=(0, 1), dev_takes=(1, 2))
    tone(tmp_path / "recordings" / "0_ann_0.wav", 0.1, 8000)
    with pytest.raises(ValueError, match=r"1_ann_0, 2_ann_0, .* are missing"):
        read(fsdd.Fsdd, tmp_path)
    tone(tmp_path / "recordings" / "ann.wav", 0.1, 8000)
    with pytest.raises(ValueError, match=r"ann\.wav: must be named digit_speaker_take"):
        read(fsdd.Fsdd, tmp_path)


def test_connected_digits(digits: Path, tmp_path: Path) -> None:
    splits = read(fsdd.ConnectedDigits, digits, tmp_path, **SMALL, augment_server=False)
    assert {split: len(manifest) for split, manifest in splits.items()} == {
        "server": 7,
        "clients": 12,
        "dev": 6,
        "test": 5,
        "test-server": 5,
    }
    assert set(splits["clients"].column("speaker")) == {"cat#1", "cat#2", "dan#1", "dan#2"} >= set(splits["test"].column("speaker"))
    assert set(splits["server"].column("speaker")) == {"ann", "bob"} == set(splits["test-server"].column("speaker"))
    assert all(manifest.column("label") == manifest.column("speaker") for manifest in splits.values())
    lengths = {word: 0.1 + 0.01 * digit for digit, word in enumerate(fsdd.WORDS)}
    with Path(splits["test"][0].path).with_name("strings.tsv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file, delimiter="\t"):  # names its recordings, as 7_ann_0
            assert [fsdd.WORDS[int(name[0])] for name in line["recordings"].split()] == line["text"].split()
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
        corpus = fsdd.ConnectedDigits(**SMALL | options)
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
    speakers = fsdd.recordings(digits)
    sources = fsdd.ConnectedDigits(**SMALL)._sources(speakers, 0)
    of = {source.talker: set(source.takes) for source in sources if source.split == "clients"}
    assert of["cat#1"] | of["cat#2"] == {4, 5, 6, 7} and not of["cat#1"] & of["cat#2"]
    both = SMALL | {"client_speakers": ["ann"], "server_takes": (4, 5), "client_takes": (6, 7)}
    used = {source.split: set(source.takes) for source in fsdd.ConnectedDigits(**both)._sources(speakers, 0) if source.talker == "ann"}
    assert used == {"server": {4, 5}, "test-server": {0, 1}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_speakers": ["ann"]}, "server_takes and client_takes overlap|client_takes and server_takes overlap"),
        ({"client_takes": (3, 7)}, "dev_takes and client_takes overlap at take 3"),
        ({"server_speakers": ["zoe"]}, "no speaker 'zoe' among the recordings, only ann, bob, cat, dan"),
        ({"server_speakers": ["ann", "bob", "cat", "dan"]}, "need a speaker each"),
        ({"clients_per_speaker": 5}, "cat has 4 takes, too few for 5 clients"),
        ({"client_takes": (20, 30)}, "cat has no takes 20 to 30, only 0 to 7"),
        ({"warp": (1.2, 0.8)}, "warp must be a range"),
        ({"digits": (0, 3)}, "digits must be a range"),
        ({"pause": (-0.1, 0.3)}, "pause must be a range"),
    ],
)
def test_connected_digits_refuse(digits: Path, tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(fsdd.ConnectedDigits, digits, tmp_path, **SMALL | options)


def test_changes_of_sound() -> None:
    time = np.arange(8000) / fsdd.RATE
    signal = np.sin(2 * np.pi * 500 * time)

    def pitch(sound: np.ndarray) -> float:
        return np.fft.rfftfreq(len(sound), 1 / fsdd.RATE)[np.argmax(np.abs(np.fft.rfft(sound)))]

    for rate in (0.7, 1.0, 1.4):
        changed = fsdd.change_tempo(signal, rate)
        assert len(changed) == round(8000 / rate)
        assert pitch(changed) == pytest.approx(500, abs=2)  # the resolution of a second and a half at most
        assert np.std(changed) == pytest.approx(np.std(signal), rel=0.1)
    louder = fsdd.equalise(signal, np.full(7, 6.0))
    assert np.std(louder) == pytest.approx(np.std(signal) * 10 ** (6 / 20))
    noisy = fsdd.add_noise(signal, 10.0, np.random.default_rng(0)) - signal
    assert 10 * np.log10(np.mean(signal**2) / np.mean(noisy**2)) == pytest.approx(10, abs=0.3)
    impulse = np.zeros(8000)
    impulse[0] = 1
    answer = fsdd.reverberate(impulse, 0.5, np.random.default_rng(0))
    assert answer[0] == pytest.approx(1, abs=0.2) and np.square(answer).sum() == pytest.approx(2, abs=0.4)
    first, second = (10 * np.log10(np.square(part).sum()) for part in (answer[400:800], answer[2400:2800]))
    assert first - second == pytest.approx(60 * (2000 / 8000) / 0.5, abs=3)  # 60 dB in half a second
