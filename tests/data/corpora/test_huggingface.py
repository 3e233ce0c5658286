"""Datasets of Hugging Face: Parquet and Arrow files with audio inside, in the layouts that users have."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.analysis.inspection import broken_audio
from fedray.data.features import audio
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.features.packed import packed_path
from fedray.data.features.store import build_features
from tests.trees import read, tone

WORDS = ["no", "yes"]
AUDIO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {"audio": {"_type": "Audio"}, "label": {"names": WORDS, "_type": "ClassLabel"}}
OPTIONS = {"text_column": "text", "label_column": "label", "speaker_column": "speaker"}


def clip(pitch: float, kind: str = "FLAC", seconds: float = 0.5) -> bytes:
    file = io.BytesIO()
    wave = 0.3 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * 16000)) / 16000)
    soundfile.write(file, wave, 16000, format=kind)
    return file.getvalue()


def table(rows: int = 4, start: int = 0, **columns: Any) -> pa.Table:
    sounds = [{"bytes": clip(100.0 * (start + row + 1)), "path": f"{row}.flac"} for row in range(rows)]
    values = {
        "audio": pa.array(sounds, AUDIO),
        "label": pa.array([row % 2 for row in range(rows)], pa.int64()),
        "text": [f"Go {row}" for row in range(rows)],
        "speaker": [start + row // 2 for row in range(rows)],
    }
    made = pa.table(values | columns)
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})


def parquet(path: Path, content: pa.Table, group: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path, row_group_size=group)
    return path


def saved(folder: Path, content: pa.Table) -> Path:
    """Write a folder as save_to_disk does, in two files with one row in each batch."""
    folder.mkdir(parents=True)
    half = len(content) // 2
    names = [f"data-{index:05d}-of-00002.arrow" for index in range(2)]
    for name, part in zip(names, (content.slice(0, half), content.slice(half)), strict=True):
        with pa.ipc.new_stream(folder / name, content.schema) as writer:
            writer.write_table(part, max_chunksize=1)
    state = {"_data_files": [{"filename": name} for name in names], "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder


def test_parquet_as_on_the_hub(tmp_path: Path) -> None:
    for index in range(2):
        parquet(tmp_path / "data" / f"train-{index:05d}-of-00002.parquet", table(start=4 * index))
    parquet(tmp_path / "data" / "validation-00000-of-00001-1f2e3d.parquet", table(2, start=90))
    splits = read("huggingface", tmp_path, **OPTIONS, lower_case=True)
    train = splits["train"]
    assert {name: len(manifest) for name, manifest in splits.items()} == {"train": 8, "dev": 2}
    assert train.column("utterance") == [f"train/{row:06d}" for row in range(8)]
    assert train.column("label") == WORDS * 4 and train.column("text")[:2] == ["go 0", "go 1"]
    assert train.column("speaker")[3:6] == ["1", "4", "4"] and set(train.array("seconds")) == {0.5}
    heard = [audio.read(row.path, 16000, row.offset, row.seconds).numpy() for row in train]
    for number, wave in enumerate(heard):
        assert int(np.abs(np.fft.rfft(wave)).argmax()) == 50 * (number + 1)  # bins of 2 Hz
    assert (
        train.fingerprint() == train.fingerprint() and broken_audio({"train": train}, serial, 0, True, 16000)[0] == []
    )
    store = build_features(train, LogMelSettings(), tmp_path / "cache", serial)
    assert len(store) == 8 and store.frames.min() > 0


def test_row_groups_of_any_size(tmp_path: Path) -> None:
    """A file that was written piece by piece, with 1, 3 and 2 rows, is read whole."""
    whole = table(6)
    with pq.ParquetWriter(tmp_path / "train.parquet", whole.schema) as writer:
        for start, rows in ((0, 1), (1, 3), (4, 2)):
            writer.write_table(whole.slice(start, rows))
    train = read("huggingface", tmp_path, **OPTIONS)["train"]
    heard = [audio.read(path, 16000).numpy() for path in train.column("path")]
    assert [int(np.abs(np.fft.rfft(wave)).argmax()) for wave in heard] == [50, 100, 150, 200, 250, 300]


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    saved(tmp_path / "train", table(6))
    one = read("huggingface", tmp_path / "train", **OPTIONS)["train"]
    assert one.column("text") == [f"Go {row}" for row in range(6)] and one.column("label") == WORDS * 3
    heard = audio.read(one[4].path, 16000)
    assert int(np.abs(np.fft.rfft(heard.numpy())).argmax()) == 250
    saved(tmp_path / "test.other", table(2, start=9))
    saved(tmp_path / "test.clean", table(2, start=7))
    splits = {"splits": ["train", "test.clean", "test.other"]}
    (tmp_path / "dataset_dict.json").write_text(json.dumps(splits), encoding="utf-8")
    with pytest.raises(ValueError, match=r"has the splits train, test\.clean, test\.other, and 'test\.clean' is none"):
        read("huggingface", tmp_path)
    found = read("huggingface", tmp_path, train=["train"], test=["test.clean", "test.other"], **OPTIONS)
    assert {name: len(manifest) for name, manifest in found.items()} == {"train": 6, "test": 2, "test-other": 2}
    with pytest.raises(ValueError, match=r"has no split 'dev': set dev in data\.options to some of train, test\.clean"):
        read("huggingface", tmp_path, train=["train"], dev=["dev"])


def test_audio_may_be_paths_or_plain_bytes(tmp_path: Path) -> None:
    tone(tmp_path / "clips" / "a.wav")
    sounds = pa.array([{"bytes": None, "path": "clips/a.wav"}, {"bytes": clip(200, "WAV"), "path": None}], AUDIO)
    for column in (sounds, ["clips/a.wav", "clips/a.wav"], [clip(200, "OGG"), clip(300, "MP3")]):
        parquet(tmp_path / "train.parquet", pa.table({"audio": column}))
        train = read("huggingface", tmp_path)["train"]
        assert train.array("seconds") == pytest.approx([0.5, 0.5], abs=0.1)
        assert train.column("speaker")[0] == "train/000000" and train.anonymous


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (
            {},
            {"text_column": "sentence"},
            r"train\.parquet has no column 'sentence': set text_column .* one of audio, l",
        ),
        ({}, {"audio_column": "clip"}, r"has no column 'clip': set audio_column in data\.options"),
        ({}, {"audio_column": "label"}, r"the column 'label' holds int64, not audio: fedray reads datasets' Audio"),
        ({"text": [0.5] * 4}, {"text_column": "text"}, r"the column 'text' holds double, not text or whole numbers"),
        (
            {"label": [0, 1, -1, 1]},
            {"label_column": "label"},
            r"train\.parquet:row 2: the label is empty",
        ),
        (
            {"label": [0, 1, 2, 1]},
            {"label_column": "label"},
            r"row 2: 2 in the column 'label' is not a class: .* no, yes",
        ),
        ({"text": ["a", None, "c", "d"]}, {"text_column": "text"}, r"train\.parquet:row 1: the text is empty"),
        ({"audio": [b"no audio"] * 4}, {}, r"train\.parquet:row 0: .*its 8 bytes cannot be read as audio"),
        ({"audio": [None, b"a", b"b", b"c"]}, {}, r"row 0: .*row 0 of the table holds no audio"),
        ({"audio": ["z.wav"] * 4}, {}, r"train\.parquet:row 0: .*z\.wav: missing"),
    ],
)
def test_errors_name_file_and_row(columns: dict[str, Any], options: dict[str, str], words: str, tmp_path: Path) -> None:
    content = table().to_pydict() | columns
    made = pa.table(content).replace_schema_metadata(table().schema.metadata)
    parquet(tmp_path / "train.parquet", made)
    with pytest.raises(ValueError, match=words):
        read("huggingface", tmp_path, **options)


def test_files_that_are_missing_or_cut_short_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no dataset_dict\.json, .*\*\.arrow or metadata.csv: set"):
        read("huggingface", tmp_path)
    folder = saved(tmp_path / "saved", table(6))
    file = folder / "data-00001-of-00002.arrow"
    whole = file.read_bytes()
    for kept in (len(whole) // 2, len(whole) - 8, 0):  # without the last 8 bytes, all batches are still there
        file.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=r"data-00001-of-00002\.arrow cannot be read: it is cut short or damaged"):
            read("huggingface", folder)
    file.unlink()
    with pytest.raises(ValueError, match=r"data-00001-of-00002\.arrow is missing, which state\.json names"):
        read("huggingface", folder)
    (folder / "state.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"state\.json is not JSON"):
        read("huggingface", folder)
    hub = tmp_path / "hub"
    name = parquet(hub / "en" / "train-00000-of-00002.parquet", table())
    with pytest.raises(ValueError, match=r"'train' has 1 of 2 files: fetch the others"):
        read("huggingface", hub)
    name.rename(hub / "en" / "train.parquet")
    parquet(hub / "fr" / "train.parquet", table())
    with pytest.raises(ValueError, match=r"the split 'train' is in .*en and .*fr: set data\.root to the folder of one"):
        read("huggingface", hub)
    (hub / "en" / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"train\.parquet cannot be read: it is cut short or damaged"):
        read("huggingface", hub / "en")
    parquet(hub / "en" / "train.parquet", table(0))
    with pytest.raises(ValueError, match=r"the split 'train' has no rows"):
        read("huggingface", hub / "en")


def test_a_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """A file whose text is not UTF-8 is named. Fuzzing found that a damaged offset ended the process."""
    text = pa.Array.from_buffers(pa.string(), 4, pa.array([b"\xf7", b"a", b"b", b"c"]).buffers())
    folder = saved(tmp_path / "saved", table(text=text))
    with pytest.raises(
        ValueError, match=r"data-00000-of-00002.arrow cannot be read: it is cut short or damaged \(.*UTF8"
    ):
        read("huggingface", folder, **OPTIONS)


@pytest.mark.parametrize(
    ("written", "words"), [(b"{", r"train\.parquet: the metadata huggingface:1: is not JSON"), (b"[]", None)]
)
def test_what_datasets_wrote_of_the_columns_may_be_damaged(tmp_path: Path, written: bytes, words: str | None) -> None:
    parquet(tmp_path / "train.parquet", table().replace_schema_metadata({b"huggingface": written}))
    if words is None:
        assert len(read("huggingface", tmp_path, **OPTIONS)["train"]) == 4
    else:
        with pytest.raises(ValueError, match=words):
            read("huggingface", tmp_path, **OPTIONS)


def test_a_row_that_is_gone_is_an_error_of_the_audio(tmp_path: Path) -> None:
    file = parquet(tmp_path / "train.parquet", table())
    assert audio.duration(packed_path(file, "audio", 3)) == 0.5
    with pytest.raises(audio.AudioError, match=r"row 17 of the table cannot be read"):
        audio.duration(packed_path(file, "audio", 17))
    with pytest.raises(audio.AudioError, match="missing"):
        audio.duration(packed_path(tmp_path / "gone.parquet", "audio", 0))


def test_files_of_the_real_library(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed (it is in the extra dev)")
    sounds = [{"bytes": clip(100 * (row + 1)), "path": None} for row in range(5)]
    made = datasets.Dataset.from_dict({"audio": sounds, "label": [0, 1, 0, 1, 0]})
    made = made.cast_column("audio", datasets.Audio(sampling_rate=16000))  # needs no torchcodec; encoding would
    made = made.cast_column("label", datasets.ClassLabel(names=WORDS))
    both = datasets.DatasetDict({"train": made, "validation": made.select(range(2))})
    both.save_to_disk(str(tmp_path / "saved"), num_shards={"train": 2, "validation": 1})
    made.to_parquet(str(tmp_path / "hub" / "train-00000-of-00001.parquet"))
    saved = read("huggingface", tmp_path / "saved", label_column="label")
    hub = read("huggingface", tmp_path / "hub", label_column="label")
    assert {name: len(manifest) for name, manifest in saved.items()} == {"train": 5, "dev": 2}
    for manifest in (saved["train"], hub["train"]):
        assert manifest.column("label") == ["no", "yes", "no", "yes", "no"]
        heard = [int(np.abs(np.fft.rfft(audio.read(row.path, 16000).numpy())).argmax()) for row in manifest]
        assert heard == [50, 100, 150, 200, 250]


def test_parts_in_the_folders_of_splits_and_categorical_columns(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for part in range(2):
            names = pa.array([f"{split}-{part}"] * 4).dictionary_encode()
            parquet(tmp_path / split / f"part-{part}.parquet", table(speaker=names))
    splits = read("huggingface", tmp_path, **OPTIONS)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 8, "test": 8}
    assert set(splits["test"].column("speaker")) == {"test-0", "test-1"}
