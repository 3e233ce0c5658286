"""Hugging Face's AudioFolder: metadata beside audio files, in the forms that `datasets` reads."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedray.data.corpora.assembly import Told
from fedray.data.corpora.official.layout import LeftOut
from tests.trees import LFS_STUB, read, tone, write

OPTIONS = {"text_column": "transcription", "speaker_column": "who", "label_column": "label"}
ROWS = [
    {"file_name": "a.wav", "transcription": "Yes, he said", "who": "ann", "label": "x"},
    {"file_name": "deep/b.wav", "transcription": 'a "no"', "who": "bob", "label": "y"},
]
CSV = 'file_name,transcription,who,label\na.wav,"Yes, he said",ann,x\ndeep/b.wav,"a ""no""",bob,y\n'


def audio(folder: Path) -> Path:
    tone(folder / "a.wav", 0.5)
    tone(folder / "deep" / "b.wav", 0.25)
    return folder


def metadata(folder: Path, form: str) -> Path:
    if form == "csv":
        return write(folder / "metadata.csv", CSV)
    if form == "jsonl":
        return write(folder / "metadata.jsonl", "".join(f"{json.dumps(row)}\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "metadata.parquet")
    return folder / "metadata.parquet"


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_metadata_beside_audio(form: str, tmp_path: Path) -> None:
    metadata(audio(tmp_path), form)
    splits = read("huggingface", tmp_path, **OPTIONS)
    assert list(splits) == ["train"]
    train = splits["train"]
    assert train.column("path") == [str(tmp_path / "a.wav"), str(tmp_path / "deep" / "b.wav")]
    assert train.column("text") == ["Yes, he said", 'a "no"'] and train.column("label") == ["x", "y"]
    assert train.column("speaker") == ["ann", "bob"] and train.array("seconds").tolist() == [0.5, 0.25]


def test_a_split_is_a_folder_above_the_metadata_or_in_its_names(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        metadata(audio(tmp_path / "apart" / split), "csv")
    splits = read("huggingface", tmp_path / "apart", **OPTIONS)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 2, "dev": 2}
    home = tmp_path / "together"
    for name in ("train/1.wav", "train/2.wav", "test/1.wav"):
        tone(home / name)
    write(home / "metadata.csv", "file_name,text\ntrain/1.wav,one\ntrain/2.wav,two\ntest/1.wav,three\n")
    splits = read("huggingface", home, text_column="text")
    assert splits["train"].column("text") == ["one", "two"] and splits["test"].column("text") == ["three"]
    assert read("huggingface", home, text_column="text", train=["test"])["train"].column("utterance") == ["test/1.wav"]


def test_the_usual_columns_are_found_and_told(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    write(tmp_path / "metadata.csv", "file_name,speaker_id,sentence\na.wav,ann,hello\n")
    with pytest.warns(Told, match=r"metadata.csv: read with text_column=sentence, speaker_column=speaker_id"):
        train = read("huggingface", tmp_path)["train"]
    assert train.column("text") == ["hello"] and train.column("speaker") == ["ann"]


def test_hidden_folders_hold_no_metadata(tmp_path: Path) -> None:
    metadata(audio(tmp_path), "csv")
    write(tmp_path / ".cache" / "metadata.csv", "file_name\ngone.wav\n")
    assert len(read("huggingface", tmp_path, **OPTIONS)["train"]) == 2


@pytest.mark.parametrize(("name", "text", "told"), [
    ("metadata.csv", "text\none\n", "has no column 'file_name'"),
    ("metadata.csv", "file_name,text\n", "its metadata lists no audio"),
    ("metadata.csv", "file_name,text\ngone.wav,one\n", "metadata.csv:2: .*gone.wav: missing"),
    ("metadata.csv", "file_name,text\n,one\n", "metadata.csv:2: file_name is empty"),
    ("metadata.csv", "file_name,text\na.wav,\n", "metadata.csv:2: the text is empty"),
    ("metadata.csv", LFS_STUB, "git lfs pull"),
    ("metadata.jsonl", LFS_STUB, "git lfs pull"),
    ("metadata.parquet", LFS_STUB, "git lfs pull"),
    ("metadata.parquet", "PAR1", "cannot be read as Parquet"),
    ("metadata.jsonl", "[1]\n", "metadata.jsonl:1: the line must be an object"),
    ("metadata.jsonl", "{\n", "metadata.jsonl:1: is not JSON"),
    ("metadata.jsonl", '{"text": "one"}\n', "has no column 'file_name'"),
    ("metadata.jsonl", '{"file_name": ["a.wav"], "text": "one"}\n', r"metadata.jsonl:1: file_name must be text"),
])  # fmt: skip
def test_wrong_metadata(name: str, text: str, told: str, tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    write(tmp_path / name, text)
    with pytest.raises(ValueError, match=told):
        read("huggingface", tmp_path, text_column="text")


def test_two_lists_in_one_folder_and_a_column_that_is_not_there(tmp_path: Path) -> None:
    metadata(audio(tmp_path), "csv")
    with pytest.raises(ValueError, match="has no column 'words': set text_column in data.options to one of file_name,"):
        read("huggingface", tmp_path, text_column="words")
    metadata(tmp_path, "jsonl")
    with pytest.raises(ValueError, match="holds metadata.csv and metadata.jsonl: keep one of them"):
        read("huggingface", tmp_path)


def test_audio_that_no_metadata_names_is_told(tmp_path: Path) -> None:
    metadata(audio(tmp_path), "csv")
    tone(tmp_path / "deep" / "c.wav", 0.25)
    with pytest.warns(LeftOut, match=r"1 of 3 recordings are left out: 1 that no metadata file names \(deep/c\.wav\)"):
        assert len(read("huggingface", tmp_path, **OPTIONS)["train"]) == 2


def test_a_split_may_be_a_link(tmp_path: Path) -> None:
    metadata(audio(tmp_path / "here" / "train"), "csv")
    metadata(audio(tmp_path / "elsewhere"), "csv")
    (tmp_path / "here" / "test").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "train" / "up").symlink_to(tmp_path / "here")  # to a folder that it lies in
    splits = read("huggingface", tmp_path / "here", **OPTIONS)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 2, "test": 2}
