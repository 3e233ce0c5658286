"""Ambient Acoustic Contexts, on a tree in the layout of Flower's FedSTAR baseline."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests import trees
from tests.trees import AMBIENT, LFS_STUB, read, tone, write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return trees.ambient(tmp_path)


def test_ten_classes_by_the_lists(tree: Path) -> None:
    splits = read("ambient", tree)
    assert {split: len(part) for split, part in splits.items()} == {"train": 30, "test": 10}
    assert Counter(splits["train"].column("label")) == {label.strip(): 3 for label in AMBIENT} and len(AMBIENT) == 10
    row = splits["test"][1]
    assert (row.utterance, row.speaker, row.label, row.text) == (
        "id_-1_HjvnJLIk_40_50_03",
        "id_-1_HjvnJLIk",
        "Crowd",
        None,
    )
    assert row.seconds == 0.25 and Path(row.path).parent.name == "id_-1_HjvnJLIk_40_50"
    for part in splits.values():
        part.check()


def test_audio_may_lie_in_one_folder(tree: Path) -> None:
    nested = read("ambient", tree)
    home = tree / "datasets" / "ambient_context" / "Data"
    for folder in list(home.iterdir()):
        for path in folder.iterdir():
            path.rename(tree / path.name)
    for name in ("train_split.txt", "test_split.txt"):
        shutil.move(tree / "data_splits" / "ambient_context" / name, tree / name)
    flat = read("ambient", tree, audio=".", train="train_split.txt", test="test_split.txt")
    for split, part in nested.items():
        for column in ("utterance", "speaker", "label"):
            assert flat[split].column(column) == part.column(column)


def test_clients_are_dealt_or_videos(tree: Path) -> None:
    _, clients, scored = divide(read("ambient", tree), DataSettings())
    assert list(scored) == ["test"]
    dealt = partition(clients, PartitionSettings(by="iid", count=5), 0)
    assert sorted(np.concatenate(list(dealt.values()))) == list(range(30))
    assert len(partition(clients, PartitionSettings(), 0)) == 10


def test_what_no_list_names_is_left_out(tree: Path) -> None:
    with pytest.warns(
        LeftOut,
        match=r"Data: 10 of 40 recordings are left out: 10 in no list \(id_-0_HjvnJLIk_40_50_03\.wav, .* and 7 more\)",
    ):
        splits = read("ambient", tree, test=None)
    assert list(splits) == ["train"]
    _, clients, scored = divide(splits, DataSettings(test_share=0.3))
    assert not set(clients.column("speaker")) & set(scored["test"].column("speaker"))


def test_a_line_that_only_repeats_another_counts_once(tree: Path) -> None:
    path = tree / "data_splits" / "ambient_context" / "train_split.txt"
    write(path, path.read_text() + "id_-0_HjvnJLIk_40_50_00.wav\tApplause\n")
    with pytest.warns(
        LeftOut, match=r"1 of 41 recordings are left out: 1 listed for the second time \(id_-0_HjvnJLIk_40_50_00\.wav\)"
    ):
        assert len(read("ambient", tree)["train"]) == 30


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "id_x_0_10_99.wav\tDoor",
            r"train_split\.txt:31: id_x_0_10_99\.wav is not below .*Data: unpack audioset_1sec_v1",
        ),
        (
            "id_-0_HjvnJLIk_40_50_00.wav\tDoor",
            r"train_split\.txt:31: .* is already in .*train_split\.txt:1: restore the lists",
        ),
        ("id_-0_HjvnJLIk_40_50_03.wav\tDoor", r"test_split\.txt:1: .* is already in .*train_split\.txt:31"),
        (
            "id_x_0_10_99.wav",
            r"train_split\.txt:31: the line must read 'id_<video>_.*\.wav<TAB><label>', not 'id_x_0_10_99\.wav'",
        ),
        ("noise.wav\tDoor", r"train_split\.txt:31: the line must read 'id_<video>"),
    ],
)
def test_a_bad_line_is_named(tree: Path, line: str, words: str) -> None:
    path = tree / "data_splits" / "ambient_context" / "train_split.txt"
    write(path, path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=words):
        read("ambient", tree)


def test_what_is_missing_is_named(tree: Path) -> None:
    def refused(words: str, **options: object) -> None:
        with pytest.raises(ValueError, match=words):
            read("ambient", tree, **options)

    home, lists = tree / "datasets" / "ambient_context" / "Data", tree / "data_splits" / "ambient_context"
    sound = home / "id_-0_HjvnJLIk_40_50" / "id_-0_HjvnJLIk_40_50_00.wav"
    write(sound, LFS_STUB)
    refused(r"train_split\.txt:1: .*_00\.wav: a Git LFS stub, not the audio")
    tone(sound, 0.25)
    shutil.copyfile(sound, home / sound.name)
    refused(r"40_50_00\.wav and .*Data/id_-0_HjvnJLIk_40_50_00\.wav have the same name: remove one of the two")
    (home / sound.name).unlink()
    text = (lists / "test_split.txt").read_text()
    write(lists / "test_split.txt", text.replace("Tenth", "Eleventh"))
    refused(r"test_split\.txt: the class Eleventh has no cuts in .*train_split\.txt: restore the lists")
    (lists / "test_split.txt").unlink()
    refused(r"test_split\.txt is missing: fetch FedSTAR's list .*, or correct data\.options\.test")
    refused(
        r"elsewhere is missing: unpack audioset_1sec_v1\.tar\.gz there, or correct data\.options\.audio",
        audio="elsewhere",
    )
