"""FSD50K, on a tree in the official layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests import trees
from tests.trees import LFS_STUB, read, tone, write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return trees.fsd50k(tmp_path)


def test_official_splits(tree: Path) -> None:
    splits = read("fsd50k", tree)
    assert {split: part.column("utterance") for split, part in splits.items()} == {
        "train": ["64760", "63", "10000", "136"],
        "dev": ["345111"],
        "test": ["37199", "99"],
    }
    assert splits["train"].column("label") == ["Electric_guitar;Guitar;Music", "Music", "Guitar;Music", "Music"]
    assert splits["train"].column("speaker") == ["train1", "train0", "train1", "train1"]
    assert splits["test"].column("speaker") == ["eval1", "eval0"]
    row = splits["dev"][0]
    assert (row.text, row.seconds) == (None, 0.25) and Path(
        row.path
    ) == tree / "FSD50K" / "FSD50K.dev_audio" / "345111.wav"
    for part in splits.values():
        part.check()
    assert read("fsd50k", tree / "FSD50K")["train"].table.equals(splits["train"].table)
    whole = read("fsd50k", tree, validation=False)
    assert list(whole) == ["train", "test"] and len(whole["train"]) == 5
    _, clients, _ = divide(whole, DataSettings())
    assert {client: len(rows) for client, rows in partition(clients, PartitionSettings(), 0).items()} == {
        "train0": 1,
        "train1": 3,
        "val0": 1,
    }


def test_pre_training_needs_the_development_set_alone(tree: Path) -> None:
    shutil.rmtree(tree / "FSD50K" / "FSD50K.eval_audio")
    with pytest.raises(
        ValueError, match=r"FSD50K\.eval_audio is missing: unpack its archives, or set data\.options\.evaluation=false"
    ):
        read("fsd50k", tree)
    assert list(read("fsd50k", tree, evaluation=False)) == ["train", "dev"]
    shutil.rmtree(tree / "FSD50K" / "FSD50K.metadata")
    assert read("fsd50k", tree, evaluation=False)["train"].column("speaker") == ["64760", "63", "10000", "136"]


def test_what_no_table_names_is_left_out(tree: Path) -> None:
    tone(tree / "FSD50K" / "FSD50K.dev_audio" / "1.wav", 0.25)
    with pytest.warns(
        LeftOut, match=r"FSD50K\.dev_audio: 1 of 6 recordings are left out: 1 not in dev\.csv \(1\.wav\)"
    ):
        assert len(read("fsd50k", tree)["train"]) == 4


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('7,"Music","/m/04rlf",train', r"dev\.csv:7: .*FSD50K\.dev_audio/7\.wav: missing\. Restore the file"),
        ('63,"Music","/m/04rlf",train', r"dev\.csv:7: the id '63' is already in .*dev\.csv:3"),
        (
            '136,"Rock,Music","/m/1,/m/04rlf",train',
            r"dev\.csv:7: 'Rock' is not in vocabulary\.csv: restore the corpus' files",
        ),
        ('136,"","",train', r"dev\.csv:7: '' is not in vocabulary\.csv"),
        ("136,Music", r"dev\.csv:7: the row has 2 fields, but the header names 4"),
    ],
)
def test_a_bad_row_is_named(tree: Path, row: str, words: str) -> None:
    shutil.rmtree(tree / "FSD50K" / "FSD50K.metadata")
    table = tree / "FSD50K" / "FSD50K.ground_truth" / "dev.csv"
    write(table, table.read_text() + row + "\n")
    with pytest.raises(ValueError, match=words):
        read("fsd50k", tree)


def test_what_is_missing_is_named(tree: Path) -> None:
    def refused(words: str, **options: object) -> None:
        with pytest.raises(ValueError, match=words):
            read("fsd50k", tree, **options)

    home = tree / "FSD50K"
    truth, clips = home / "FSD50K.ground_truth", home / "FSD50K.metadata" / "dev_clips_info_FSD50K.json"
    write(home / "FSD50K.dev_audio" / "63.wav", LFS_STUB)
    refused(r"dev\.csv:3: .*63\.wav: a Git LFS stub, not the audio")
    tone(home / "FSD50K.dev_audio" / "63.wav", 0.25)
    names = json.loads(clips.read_text())
    write(clips, json.dumps({name: clip for name, clip in names.items() if name != "136"}))
    refused(
        r"dev_clips_info_FSD50K\.json has no uploader of clip 136 \(.*dev\.csv:5\): unpack FSD50K\.metadata\.zip again"
    )
    write(clips, "[]")
    refused(r"has no uploader of clip 64760")
    write(clips, "{")
    refused(r"dev_clips_info_FSD50K\.json is not JSON \(.*\): unpack FSD50K\.metadata\.zip again")
    write(clips, LFS_STUB)
    refused(r"json is a Git LFS stub")
    clips.unlink()
    text = (truth / "dev.csv").read_text()
    write(truth / "dev.csv", text.replace(",val", ",test"))
    refused(r"dev\.csv:6: split must be train or val, not 'test': restore the corpus' file")
    write(truth / "dev.csv", text.replace(",train", ",val"))
    refused(r"dev\.csv has no clips of split train")
    write(truth / "dev.csv", text.replace("split", "part"))
    refused(r"dev\.csv has no column 'split', only fname, labels, mids, part: restore")
    write(truth / "dev.csv", text)
    write(truth / "vocabulary.csv", "Music\n")
    refused(r"vocabulary\.csv:1: the line must read '69,Electric_guitar,/m/02sgy', not 'Music'")
    (truth / "vocabulary.csv").unlink()
    refused(r"vocabulary\.csv is missing: unpack FSD50K\.ground_truth\.zip again")
    (truth / "dev.csv").unlink()
    refused(
        r"holds no FSD50K\.ground_truth/dev\.csv \(also looked in FSD50K\): set data\.root to the folder that holds FSD"
    )
