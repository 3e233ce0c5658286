"""UrbanSound8K, on a tree in the official layout."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.corpora.skipping import skipping
from fedray.data.features import audio
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests import trees
from tests.trees import LFS_STUB, read, tone, urban_line, write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return trees.urbansound8k(tmp_path)


def test_folds_stay_as_they_are(tree: Path) -> None:
    splits = read("urbansound8k", tree)
    assert {split: len(part) for split, part in splits.items()} == {"train": 8 * 4, "dev": 4, "test": 4}
    assert splits["test"].column("utterance") == ["1010-9-0-0", "1010-9-0-1", "2010-4-0-0", "2010-4-0-1"]
    assert splits["test"].column("speaker") == ["1010", "1010", "2010", "2010"]
    assert splits["test"].column("label") == ["street_music", "street_music", "drilling", "drilling"]
    assert set(splits["dev"].column("speaker")) == {"1009", "2009"}
    for part in splits.values():
        part.check()
    assert read("urbansound8k", tree / "UrbanSound8K", seed=1)["train"].table.equals(splits["train"].table)
    # The dev fold is the fold before the test folds; the fold before the first is the last.
    assert set(read("urbansound8k", tree, test_folds=[1])["dev"].column("speaker")) == {"1010", "2010"}
    assert set(read("urbansound8k", tree, test_folds=[1, 10])["dev"].column("speaker")) == {"1009", "2009"}
    published = read("urbansound8k", tree, test_folds=[3], dev_folds=[])
    assert {split: len(part) for split, part in published.items()} == {"train": 9 * 4, "test": 4}
    assert {split: len(part) for split, part in read("urbansound8k", tree, test_folds=[]).items()} == {"train": 40}
    more = read("urbansound8k", tree, test_folds=[1], dev_folds=[4, 5])
    assert {split: len(part) for split, part in more.items()} == {"train": 7 * 4, "dev": 8, "test": 4}


def test_clients_are_recordings_or_dirichlet_draws(tree: Path) -> None:
    _, clients, scored = divide(read("urbansound8k", tree), DataSettings())
    assert list(scored) == ["dev", "test"]
    assert {len(rows) for rows in partition(clients, PartitionSettings(), 0).values()} == {2}
    drawn = partition(clients, PartitionSettings(by="dirichlet", count=4, alpha=0.5), 0)
    assert sorted(np.concatenate(list(drawn.values()))) == list(range(len(clients)))


def test_any_rate_and_any_channels_are_read(tree: Path) -> None:
    path = tree / "UrbanSound8K" / "audio" / "fold10" / "1010-9-0-0.wav"
    time = np.arange(11025) / 44100  # 0.25 s
    left, right = 0.5 * np.sin(2 * np.pi * 400 * time), 0.25 * np.sin(2 * np.pi * 400 * time)
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "FLOAT", "MS_ADPCM"):
        soundfile.write(path, np.stack([left, right], axis=1), 44100, subtype=subtype)
        row = read("urbansound8k", tree)["test"][0]
        assert row.seconds == pytest.approx(0.25, abs=0.05)  # ADPCM has whole blocks
        heard = audio.read(row.path, 16000, row.offset, row.seconds)
        assert heard.shape == (math.ceil(round(row.seconds * 44100) * 160 / 441),)
        expected = 0.375 * np.sin(2 * np.pi * 400 * np.arange(4000) / 16000)  # the mean of both channels
        # Eight bits have steps of 1/128. The resampling filter disturbs both ends.
        assert np.abs(heard.numpy()[200:3800] - expected[200:3800]).max() < 0.02


def test_an_unreadable_sound_is_not_called_short(tree: Path) -> None:
    (tree / "UrbanSound8K" / "audio" / "fold2" / "1002-1-0-1.wav").write_bytes(b"no audio" * 50)
    with skipping(True):
        splits = read("urbansound8k", tree)
    assert "1002-1-0-1" in splits["train"].column("utterance"), "its features are what cannot be computed"


def test_very_short_sounds_are_left_out_by_name(tree: Path) -> None:
    short = tree / "UrbanSound8K" / "audio" / "fold2" / "1002-1-0-1.wav"
    tone(short, 0.05, 44100)
    with pytest.warns(
        LeftOut, match=r"UrbanSound8K\.csv: 1 of 40 recordings are left out: 1 shorter than 0\.1 s \(1002-1-0-1\.wav\)"
    ):
        splits = read("urbansound8k", tree)
    assert len(splits["train"]) == 31 and "1002-1-0-1" not in splits["train"].column("utterance")
    assert len(read("urbansound8k", tree, min_seconds=0.0)["train"]) == 32
    with (
        pytest.raises(
            ValueError,
            match=r"has no sounds for train in fold 1, 2, .*: restore the table, or lower data\.options\.min_seconds",
        ),
        pytest.warns(LeftOut, match="and 37 more"),
    ):
        read("urbansound8k", tree, min_seconds=0.3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"test_folds": [11]}, "data.options.test_folds must be one of 1, 2, 3, .* 10, not 11"),
        ({"test_folds": list(range(1, 11))}, "data.options.test_folds leaves no fold to train on: name at most nine"),
        ({"test_folds": [2], "dev_folds": [2, 3]}, "test_folds and dev_folds both name fold 2"),
        ({"test_folds": list(range(1, 10))}, "leave no fold to train on: name fewer"),
        ({"min_seconds": -1.0}, "min_seconds must be at least 0, not -1"),
    ],
)
def test_settings_that_cannot_be(tree: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read("urbansound8k", tree, **options)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("3000-3-0-0.wav,3000,0,1,1,5,3,dog", r"csv:42: class 'dog' is not number '3' of air_conditioner, "),
        ("3000-3-0-0.wav,3000,0,1,1,5,10,dog_bark", r"csv:42: class 'dog_bark' is not number '10'"),
        (
            "3000-4-0-0.wav,3000,0,1,1,5,3,dog_bark",
            r"csv:42: '3000-4-0-0\.wav' must begin with fsID and classID, 3000-3-",
        ),
        (urban_line("3000-3-0-0.wav", 11).strip(), r"csv:42: fold must be a number from 1 to 10, not '11'"),
        (urban_line("3000-3-0-0.wav", 5).strip(), r"csv:42: .*audio/fold5/3000-3-0-0\.wav: missing\. Restore the file"),
        (urban_line("1001-0-0-0.wav", 1).strip(), r"csv:42: the id '1001-0-0-0' is already in .*csv:2"),
        (
            urban_line("1001-0-0-0.wav", 2).strip(),
            r"fold1/1001-0-0-0\.wav is not in this fold in .*csv: remove the file",
        ),
        ("3000-3-0-0.wav,3000", r"csv:42: the row has 2 fields, but the header names 8"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tree: Path, row: str, words: str) -> None:
    table = tree / "UrbanSound8K" / "metadata" / "UrbanSound8K.csv"
    write(table, table.read_text() + row + "\n")
    with pytest.raises(ValueError, match=words):
        read("urbansound8k", tree)


def test_what_is_missing_is_named(tree: Path) -> None:
    home = tree / "UrbanSound8K"
    write(home / "audio" / "fold1" / "1001-0-0-0.wav", LFS_STUB)
    with pytest.raises(ValueError, match=r"csv:2: .*1001-0-0-0\.wav: a Git LFS stub"):
        read("urbansound8k", tree)
    tone(home / "audio" / "fold1" / "1001-0-0-0.wav", 0.25)
    tone(home / "audio" / "fold1" / "9-0-0-0.wav", 0.25)
    with pytest.raises(
        ValueError, match=r"fold1/9-0-0-0\.wav is not in this fold in .*UrbanSound8K\.csv: remove the file, or restore"
    ):
        read("urbansound8k", tree)
    table = home / "metadata" / "UrbanSound8K.csv"
    write(table, "slice_file_name,fsID,start,end,salience,classID,class\n")
    with pytest.raises(
        ValueError, match=r"csv has no column 'fold', only slice_file_name, .*: restore the corpus' file"
    ):
        read("urbansound8k", tree)
    write(table, LFS_STUB)
    with pytest.raises(ValueError, match=r"csv is a Git LFS stub: fetch the file with `git lfs pull`"):
        read("urbansound8k", tree)
    table.unlink()
    with pytest.raises(ValueError, match=r"holds no metadata/UrbanSound8K\.csv \(also looked in UrbanSound8K\)"):
        read("urbansound8k", tree)
