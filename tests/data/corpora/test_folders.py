"""Audio in folders by class: classes, splits, speakers, and what the reader refuses or leaves out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.data.corpora.official.layout import LeftOut
from tests.trees import read, tone, write


def clips(root: Path, takes: int = 2) -> Path:
    for word in ("no", "yes"):
        for speaker in ("ann", "bob"):
            for take in range(takes):
                tone(root / word / f"{speaker}_{take}.wav")
    return root


def test_a_class_is_a_folder(tmp_path: Path) -> None:
    tone(clips(tmp_path) / "no" / "deeper" / "cid_0.FLAC", 0.25)
    train = read("folders", tmp_path, words=True)["train"]
    assert train.column("utterance")[:3] == ["no/ann_0.wav", "no/ann_1.wav", "no/bob_0.wav"]
    assert train.column("label") == train.column("text") == ["no"] * 5 + ["yes"] * 4
    assert train.column("path")[4] == str(tmp_path / "no" / "deeper" / "cid_0.FLAC")
    assert train.array("seconds").tolist() == [0.5] * 4 + [0.25] + [0.5] * 4
    assert train.anonymous and train.column("speaker") == train.column("utterance")
    known = read("folders", tmp_path, speaker=r"([a-z]+)_\d")["train"]
    assert not known.anonymous and set(known.column("speaker")) == {"ann", "bob", "cid"}
    assert set(known.column("text")) == {None}
    assert set(read("folders", tmp_path, classes=["yes"])["train"].column("label")) == {"yes"}


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_formats(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    soundfile.write(tmp_path / "yes" / f"a.{suffix}", np.zeros(16000), 16000)
    assert read("folders", tmp_path)["train"].array("seconds")[0] == pytest.approx(1, abs=0.1)


def test_splits_are_folders_too(tmp_path: Path) -> None:
    for split in ("Training", "val", "test"):
        clips(tmp_path / split, 1)
    splits = read("folders", tmp_path)
    assert {name: len(manifest) for name, manifest in splits.items()} == {"train": 4, "test": 4, "dev": 4}
    assert splits["dev"].column("utterance")[0] == "val/no/ann_0.wav"
    assert set(read("folders", tmp_path, splits=False)["train"].column("label")) == {"Training", "val", "test"}
    tone(tmp_path / "car" / "a.wav")
    with pytest.raises(ValueError, match="holds Training, test, val beside car: set data.options.splits to false"):
        read("folders", tmp_path)
    assert set(read("folders", tmp_path, splits=True)) == {"train", "dev", "test"}
    tone(tmp_path / "test" / "maybe" / "a.wav")
    with pytest.raises(ValueError, match=r"test/maybe: train has no class of this name, only no, yes"):
        read("folders", tmp_path, splits=True)


def test_other_files_are_left_out_and_counted(tmp_path: Path) -> None:
    write(clips(tmp_path) / "README.md", "mine")
    write(tmp_path / "yes" / "notes.txt", "mine")
    write(tmp_path / "yes" / ".hidden", "mine")
    tone(tmp_path / "loose.wav")
    words = r"2 of 10 recordings are left out: 1 in no class folder \(loose\.wav\); 1 whose .* \(yes/notes\.txt\)"
    with pytest.warns(LeftOut, match=words):
        assert len(read("folders", tmp_path)["train"]) == 8


def test_errors_name_the_folder_or_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no folders: give each class a folder"):
        read("folders", tmp_path)
    clips(tmp_path)
    with pytest.raises(ValueError, match=r"has no folder 'maybe', only no, yes"):
        read("folders", tmp_path, classes=["yes", "maybe"])
    with pytest.raises(ValueError, match=r"data\.options\.speaker: '\(' is not a regular expression"):
        read("folders", tmp_path, speaker="(")
    with pytest.raises(ValueError, match=r"has 0 groups: put one pair of parentheses"):
        read("folders", tmp_path, speaker="[a-z]+")
    with pytest.raises(
        ValueError, match=r"no/ann_0\.wav: data\.options\.speaker, .* finds no speaker in .* and in \d+ more"
    ):
        read("folders", tmp_path, speaker="(zoe)")
    (tmp_path / "maybe").mkdir()
    with pytest.raises(ValueError, match=r"maybe holds no audio"):
        read("folders", tmp_path)
    write(tmp_path / "maybe" / "a.wav", "")
    with pytest.raises(ValueError, match=r"maybe/a\.wav: an empty file"):
        read("folders", tmp_path)
    write(tmp_path / "maybe" / "b.m4a", "")
    with pytest.raises(ValueError, match=r"maybe/b\.m4a: fedray cannot read \.m4a files: convert them to flac or wav"):
        read("folders", tmp_path)


def test_damaged_files_are_counted_by_what_is_wrong(tmp_path: Path) -> None:
    """The path stands there once, and only files with the same problem are named; no table has a row to drop."""
    clips(tmp_path)
    for name in ("no/ann_0.wav", "yes/bob_1.wav"):
        write(tmp_path / name, "")
    write(tmp_path / "yes" / "ann_0.wav", "noise")
    with pytest.raises(ValueError) as caught:
        read("folders", tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/no/ann_0.wav: an empty file. Restore the file, or remove it, or "
        "set data.skip_broken=true to leave it out "
        "(1 more: yes/bob_1.wav; 1 with other problems)"
    )


def test_hidden_folders_are_no_classes_and_no_clients(tmp_path: Path) -> None:
    clips(tmp_path)
    for hidden in (".thumbnails/x/eve_0.wav", "no/.trash/eve_1.wav", "__MACOSX/no/._ann_0.wav", "no/._eve_2.wav"):
        tone(tmp_path / "tone.wav").rename(
            (tmp_path / hidden).parent.mkdir(parents=True, exist_ok=True) or tmp_path / hidden
        )
    train = read("folders", tmp_path, speaker=r"([a-z]+)_\d")["train"]
    assert set(train.column("speaker")) == {"ann", "bob"} and set(train.column("label")) == {"no", "yes"}


def test_a_speaker_may_be_a_link_and_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in ("no", "yes"):
        tone(tmp_path / "elsewhere" / word / "1.wav")
        tone(tmp_path / "words" / word / "s2" / "1.wav")
        (tmp_path / "words" / word / "s1").symlink_to(tmp_path / "elsewhere" / word)
    speaker = r"^[^/]+/([^/]+)/"
    train = read("folders", tmp_path / "words", speaker=speaker)["train"]
    assert sorted(train.column("speaker")) == ["s1", "s1", "s2", "s2"]
    scan = os.scandir

    def refused(path: str) -> object:
        if str(path).endswith("no/s2"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(ValueError, match=r"words/no/s2 cannot be read \(Permission denied\): permit it, or remove it"):
        read("folders", tmp_path / "words", speaker=speaker)
