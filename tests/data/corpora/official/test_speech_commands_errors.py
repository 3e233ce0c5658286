"""Errors of the reader of Speech Commands: impossible settings, and files that are missing or wrong."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from tests import trees
from tests.trees import DEV, LFS_STUB, TRAIN, read, tone, write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.speech_commands(tmp_path_factory.mktemp("commands"))


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    """A copy that tests can damage; its root is the innermost folder."""
    return Path(shutil.copytree(made / "SpeechCommands" / "speech_commands_v0.02", tmp_path / "speech_commands_v0.02"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classes": 10}, "data.options.classes must be one of 35, 12, 36, not 10"),
        ({"split": "random"}, "data.options.split must be one of lists, hash, files, not random"),
        ({"split": "files"}, "data.options.split_files needs split=files and speakers=train: set all three, or none"),
        ({"split_files": "x"}, "data.options.split_files needs split=files"),
        ({"split": "files", "split_files": "x", "speakers": "all"}, "split=files and speakers=train"),
        ({"speakers": "test"}, "data.options.speakers must be one of train, all, not test"),
        ({"unknown_percentage": 0.0}, "unknown_percentage must be above 0, not 0"),
        (
            {"silence_percentage": math.nan},
            "silence_percentage must be above 0, not nan",
        ),
        (
            {"test_archive": "x"},
            "test_archive has 12 classes, data.options.classes is 35: remove test_archive, or set classes=12",
        ),
        (
            {"test_archive": "x", "classes": 12, "speakers": "all"},
            "data.options.test_archive has speakers that speakers=all trains on",
        ),
    ],
)
def test_settings_that_cannot_be(made: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read("speech_commands", made, **options)


def test_what_is_missing_or_strange_is_named(tree: Path) -> None:
    def refused(words: str, **options: object) -> None:
        with pytest.raises(ValueError, match=words):
            read("speech_commands", tree, **options)

    noise = tree / "_background_noise_"
    tone(noise / "running_tap.wav", 9.0)
    refused(
        r"running_tap\.wav lasts 9\.00 s, but a tenth of it must be longer than the cuts of 1 s: restore the file",
        classes=12,
    )
    write(noise / "running_tap.wav", LFS_STUB)
    refused(r"running_tap\.wav: a Git LFS stub, not the audio \(fetch it with `git lfs pull`\)", classes=36)
    shutil.rmtree(noise)
    refused(r"_background_noise_ holds no \.wav files to cut silence from: .* or set classes=35", classes=12)
    assert len(read("speech_commands", tree)["dev"]) == 35

    clip = tree / "yes" / f"{TRAIN[0]}_nohash_0.wav"
    write(clip, LFS_STUB)
    refused(rf"^{clip}: a Git LFS stub, not the audio \(fetch it with `git lfs pull`\)")
    clip.write_bytes(b"")
    refused(rf"{clip}: an empty file")
    clip.rename(tree / "yes" / "yes1.wav")
    refused(r"yes/yes1\.wav: the name must be like 004ae714_nohash_0\.wav: rename or remove the file")
    (tree / "yes" / "yes1.wav").unlink()

    listed = (tree / "testing_list.txt").read_text()
    write(tree / "testing_list.txt", listed + f"yes/{DEV}_nohash_0.wav\n")
    refused(rf"testing_list\.txt:36: yes/{DEV}_nohash_0\.wav is already listed for dev")
    write(tree / "testing_list.txt", "\nyes/ffffffff_nohash_0.wav\n")
    refused(r"testing_list\.txt:2: the file .*yes/ffffffff_nohash_0\.wav does not exist")
    write(tree / "testing_list.txt", "\n")
    refused("holds no clips for test")
    (tree / "testing_list.txt").write_bytes(b"\xff\xfe")
    refused(r"testing_list\.txt is not UTF-8 text")
    write(tree / "testing_list.txt", LFS_STUB)
    refused(r"testing_list\.txt is a Git LFS stub: fetch the file with `git lfs pull`")
    (tree / "testing_list.txt").unlink()
    refused(
        r"testing_list\.txt is missing: unpack speech_commands_v0\.02\.tar\.gz again, or set data\.options\.split=hash"
    )
    assert len(read("speech_commands", tree, split="hash")["test"]) == 35

    (tree / "cough").mkdir()
    refused(r"cough is not one of the 35 words of version 0\.02: remove the folder", split="hash")
    (tree / "cough").rename(tree / "_cough")
    shutil.rmtree(tree / "wow")
    refused(r"lacks the folders of 1 of the 35 words \(wow\): unpack", split="hash")
    with pytest.raises(
        ValueError,
        match=r"holds no yes \(also looked in speech_commands_v0\.02, .*\): set data\.root to the folder that",
    ):
        read("speech_commands", tree / "no")
    with pytest.raises(
        ValueError, match=r"this corpus needs data\.root: set it to the folder that holds speech_commands_v0\.02/"
    ):
        read("speech_commands", None)
