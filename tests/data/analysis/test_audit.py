"""The audit finds what was put into a small corpus: lengths, levels, rates, and the same audio in two parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.analysis import audit as audits
from fedray.data.analysis import listening
from fedray.data.analysis.audit import FASTEST, Audit, outlying
from fedray.data.analysis.inspection import Problem
from fedray.data.features import audio
from fedray.data.manifest import Manifest
from fedray.report import audit_picture

RATE = 8000
SECONDS = 0.5
TEXT = "one two three"  # 13 characters, 26 a second


def noise(seed: int, loud: float = 0.1, seconds: float = SECONDS) -> np.ndarray:
    return loud * np.random.default_rng(seed).uniform(-1, 1, int(seconds * RATE))


class Corpus:
    """Utterances of parts, each a file of noise that no other file holds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, dict[str, list[dict[str, Any]]]()

    def add(self, part: str, name: str, sound: np.ndarray | None = None, ending: str = "wav", **row: Any) -> None:
        if sound is None:
            sound = noise(sum(map(len, self.rows.values())))
        path = self.folder / f"{name}.{ending}"
        soundfile.write(path, sound, RATE)
        given = {"utterance": name, "path": str(path), "seconds": len(sound) / RATE, "speaker": name[0], "text": TEXT}
        self.rows.setdefault(part, []).append(given | row)

    def audit(self) -> Audit:
        parts = {part: Manifest.from_rows(rows, "test") for part, rows in self.rows.items()}
        speakers = np.array(parts["clients"].column("speaker"))
        clients = {name: np.flatnonzero(speakers == name) for name in sorted(set(speakers.tolist()))}
        return Audit.of(parts, clients, serial, 0, RATE)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Ten utterances of each of five clients, and ten of test."""
    made = Corpus(tmp_path)
    for number in range(50):
        made.add("clients", f"{'abcde'[number % 5]}{number}")
    for number in range(10):
        made.add("test", f"z{number}", text=f"{TEXT} {number}")
    return made


def only(found: list[Problem]) -> Problem:
    (problem,) = found
    return problem


def rows_of(found: Audit) -> Mapping[str, str]:
    return dict(found.findings()[0])


def test_a_sound_corpus_has_no_problem(corpus: Corpus, tmp_path: Path) -> None:
    found = corpus.audit()
    rows, problems = found.findings()
    assert not problems and len(found.sound) == 60
    table = dict(rows)
    assert table["wav, 8,000 Hz, 1 ch."] == "60 files: manifest 30.00 s, header 30.00 s, decoded 30.00 s"
    assert table["characters a second"].startswith(f"{13 / SECONDS:.1f} / 26.0 / {15 / SECONDS:.1f} ")
    assert table["sentences of test"].startswith("0.0 %") and table["the same audio twice"].startswith("none")
    power = 10 * np.log10(0.1**2 / 3)  # of uniform noise
    assert f"{power:.0f} / {power:.0f} / {power:.0f} dB" in table["level"]
    assert audit_picture.save(found, "test", tmp_path / "new" / "audit.png").read_bytes()[:4] == b"\x89PNG"


def test_sentences_that_all_read_are_told_without_a_problem(corpus: Corpus) -> None:
    for row in corpus.rows["test"][:4]:
        row["text"] = TEXT
    found = corpus.audit()
    assert not found.findings()[1] and rows_of(found)["sentences of test"].startswith("40.0 %")


def test_one_recording_in_two_parts(corpus: Corpus) -> None:
    corpus.add("test", "zcopy", noise(3), text="another text")  # the same bytes as utterance 3
    problem = only(corpus.audit().findings()[1])
    assert problem.wrong and problem.text.startswith(
        "1 of 11 utterances that are scored have the same audio as one for"
    )
    assert problem.names == ("zcopy", "d3")
    corpus.rows["test"].pop()
    written, _ = soundfile.read(corpus.folder / "e4.wav", dtype="int16")
    corpus.add("test", "zflac", written, "flac", text="other words")  # the same samples in other bytes
    problem = only(corpus.audit().findings()[1])
    assert problem.wrong and problem.names == ("zflac", "e4")
    corpus.rows["test"][-1] = {**corpus.rows["clients"][7], "utterance": "zfile", "speaker": "z"}  # the same file
    assert only(corpus.audit().findings()[1]).names == ("zfile", "c7")


def test_one_recording_twice_in_a_part_is_told(corpus: Corpus) -> None:
    corpus.add("clients", "a-again", noise(0))
    found = corpus.audit()
    assert not found.findings()[1] and rows_of(found)["the same audio twice"].startswith("1 within clients")


def test_equal_silence_is_no_copy(corpus: Corpus) -> None:
    corpus.add("clients", "asilent", np.zeros(4000))
    corpus.add("test", "zsilent", np.zeros(4100))
    problem = only(corpus.audit().findings()[1])
    assert problem.text.startswith("2 of 62 decoded utterances are silent") and problem.wrong
    assert set(problem.names) == {"asilent", "zsilent"}


def test_headers_that_decoding_corrects_are_told(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = audio.measure

    def shorter(path: str) -> audio.Lengths:
        found = measure(path)
        return replace(found, header=SECONDS / 2) if Path(path).stem in ("a0", "b1") else found

    monkeypatch.setattr(audio, "measure", shorter)
    found = corpus.audit()
    assert not found.findings()[1]
    expected = "60 files: manifest 30.00 s, header 29.50 s, decoded 30.00 s; 2 headers are wrong, and decoding decides"
    assert rows_of(found)["wav, 8,000 Hz, 1 ch."] == expected


def test_a_manifest_that_uses_a_part_of_a_file_is_sound(corpus: Corpus) -> None:
    corpus.rows["clients"][0]["seconds"] = SECONDS / 2
    found = corpus.audit()
    assert not found.findings()[1]
    assert rows_of(found)["wav, 8,000 Hz, 1 ch."].endswith("of 1 the manifest uses a part")


def test_a_file_of_several_utterances_is_compared_once(corpus: Corpus) -> None:
    first = corpus.rows["clients"][0]
    first["seconds"] = 0.2
    corpus.rows["clients"].append(first | {"utterance": "a0-rest", "offset": 0.2, "seconds": 0.3})
    found = corpus.audit()
    assert rows_of(found)["wav, 8,000 Hz, 1 ch."] == "60 files: manifest 30.00 s, header 30.00 s, decoded 30.00 s"


def test_audio_that_only_decoding_finds(corpus: Corpus, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a0.wav", np.full(4000, np.nan, np.float32), RATE, "FLOAT")
    problem = only(corpus.audit().findings()[1])
    assert problem.stops and problem.names == ("a0",) and "not finite" in problem.text


def test_clipping(corpus: Corpus) -> None:
    loud = np.clip(noise(100, 3.0), -1, 1)
    share = (np.abs(loud) >= listening.FULL).mean()
    assert 0.6 < share < 0.7  # a third of the noise is within full scale
    corpus.add("clients", "aloud", loud)
    problem = only(corpus.audit().findings()[1])
    assert problem.text.startswith("1 of 61 decoded utterances are clipped") and not problem.wrong
    assert problem.names[0] == "aloud"


def test_impossible_and_unusual_rates(corpus: Corpus) -> None:
    fast = "a" * int(SECONDS * FASTEST + 1)
    corpus.rows["clients"][1]["text"] = fast
    problem = only(corpus.audit().findings()[1])
    assert problem.text.startswith("1 of 60 utterances have more than 60 characters a second") and problem.wrong
    assert problem.names == ("b1",)
    corpus.rows["clients"][1]["text"] = "12345678"  # 16 a second: slower than the median, but no outlier
    assert not corpus.audit().findings()[1]
    corpus.add("clients", "bslow", noise(99, seconds=4.0))  # 13 / 4 a second
    problem = only(corpus.audit().findings()[1])
    assert problem.text.startswith("1 of 61 utterances have 3 times more or fewer") and not problem.wrong
    assert problem.names == ("bslow",)


def test_a_client_of_another_rate(corpus: Corpus) -> None:
    for row in corpus.rows["clients"]:
        if row["speaker"] == "c":
            row["text"] = "12345678"
    problem = only(corpus.audit().findings()[1])
    assert problem.names == ("c",) and problem.text.startswith("1 of 5 clients have unusual characters a second (")
    assert problem.text.endswith("(the median client 26.0): c 16.0")


def test_texts_without_letters_and_labels_are_no_rates(corpus: Corpus) -> None:
    for rows in corpus.rows.values():
        for row in rows:
            row |= {"text": None, "label": "yes"}
    rows, problems = corpus.audit().findings()
    assert not problems and "characters a second" not in dict(rows)


def test_every_format_is_decoded(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEARD", 10)
    monkeypatch.setattr(listening, "SUSPECTS", 0)
    corpus.add("clients", "arare", ending="flac")
    found = corpus.audit()
    endings = [listening.format_of(found.manifest[one.row].path) for one in found.heard]
    assert endings.count("flac") == 1 and endings.count("wav") == 5
    assert (
        listening.format_of("/set/part.parquet#audio/3") == "parquet" and listening.format_of("/set/a") == "no ending"
    )


def test_outliers_are_far_in_ratio_and_in_deviations() -> None:
    values = np.exp(np.linspace(-0.1, 0.1, 21))
    assert not outlying(values, 1.05).any()
    assert outlying(np.append(values, 2.0), 1.5).tolist() == [False] * 21 + [True]
    assert not outlying(np.append(values, 2.0), 2.5).any()
    assert np.log(2) > audits.DEVIATIONS * 1.4826 * 0.05  # the median distance of the 21 values is 0.05
