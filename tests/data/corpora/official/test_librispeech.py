"""The reader of LibriSpeech, on a small tree in its official layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import read, tone, write


@pytest.fixture
def librispeech(tmp_path: Path) -> Path:
    home = tmp_path / "LibriSpeech"
    write(
        home / "SPEAKERS.TXT",
        ";ID  |SEX| SUBSET           |MINUTES| NAME\n84   | F | dev-clean        |  8.02 | Christie Nowak\n"
        "60   | M | train-clean-100  | 20.18 | |CBW|Simon\n103  | F | train-clean-100 | 25.1 | Karen Savage\n"
        "61 | M | test-clean | 8.1 | Paul\n",
    )
    for subset, reader, chapter, texts in (
        ("train-clean-100", "60", "121082", ("CHAPTER ONE", "IT WAS")),
        ("train-clean-100", "103", "1240", ("MISSUS RACHEL'S",)),
        ("dev-clean", "84", "121123", ("GO DO YOU HEAR",)),
        ("test-clean", "61", "70968", ("HE BEGAN",)),
        ("test-other", "61", "70969", ("A CONFUSED COMPLAINT",)),
    ):
        lines = []
        for number, text in enumerate(texts):
            name = f"{reader}-{chapter}-{number:04d}"
            tone(home / subset / reader / chapter / f"{name}.flac", 0.25 * (number + 1))
            lines.append(f"{name} {text}\n")
        write(home / subset / reader / chapter / f"{reader}-{chapter}.trans.txt", "".join(lines))
    return tmp_path


def test_librispeech(librispeech: Path) -> None:
    splits = read("librispeech", librispeech, test=["test-clean", "test-other"])
    assert {split: len(manifest) for split, manifest in splits.items()} == {
        "train": 3,
        "dev": 1,
        "test": 1,
        "test-other": 1,
    }
    train = splits["train"]
    assert train.column("utterance") == ["60-121082-0000", "60-121082-0001", "103-1240-0000"]
    assert train.column("speaker") == ["60", "60", "103"]
    assert train.column("text") == ["CHAPTER ONE", "IT WAS", "MISSUS RACHEL'S"]
    assert train.array("seconds").tolist() == [0.25, 0.5, 0.25]
    for manifest in splits.values():
        manifest.check()
    inside = read("librispeech", librispeech / "LibriSpeech", lower_case=True)
    assert inside["train"].column("text")[0] == "chapter one" and "test-other" not in inside


def test_librispeech_names_what_is_missing(librispeech: Path) -> None:
    home = librispeech / "LibriSpeech"
    with pytest.raises(
        ValueError, match=r"train-clean-360 is missing: unpack train-clean-360\.tar\.gz .* dev-clean, test-clean"
    ):
        read("librispeech", librispeech, train=["train-clean-360"])
    with pytest.raises(ValueError, match="this corpus needs data.root"):
        read("librispeech", None)
    with pytest.raises(ValueError, match="the folder .* does not exist"):
        read("librispeech", librispeech / "nowhere")
    chapter = home / "train-clean-100" / "60" / "121082"
    audio, transcripts = chapter / "60-121082-0001.flac", chapter / "60-121082.trans.txt"
    audio.rename(home / "kept.flac")
    with pytest.raises(ValueError, match=rf"{transcripts}:2: {audio} is missing"):
        read("librispeech", librispeech)
    (home / "kept.flac").rename(audio)
    told = transcripts.read_bytes()
    transcripts.write_bytes(told + b"60-121082-0002 \xff\n")
    with pytest.raises(ValueError, match=rf"{transcripts}:\d: is not UTF-8"):
        read("librispeech", librispeech)
    transcripts.write_bytes(told)
    tone(chapter / "60-121082-0009.flac")
    with pytest.raises(ValueError, match="60-121082-0009.flac has no transcript"):
        read("librispeech", librispeech)
    (chapter / "60-121082-0009.flac").unlink()
    transcripts.write_text("60-121082-0000\n")
    with pytest.raises(ValueError, match=r"trans\.txt:1: the line must read"):
        read("librispeech", librispeech)
    transcripts.unlink()
    with pytest.raises(ValueError, match=r"60-121082\.trans\.txt is missing"):
        read("librispeech", librispeech)
    write(home / "SPEAKERS.TXT", "60 | M | train-clean-100 | 20.18 | |CBW|Simon\n")
    with pytest.raises(ValueError, match=r"the reader 103 is not in .*SPEAKERS\.TXT"):
        read("librispeech", librispeech)
    write(home / "SPEAKERS.TXT", "; comment\n60 | M\n")
    with pytest.raises(ValueError, match=r"SPEAKERS\.TXT:2: the line must read"):
        read("librispeech", librispeech)
