"""Lists of all formats: names of splits and utterances, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedray.data.corpora.official.layout import LeftOut
from tests.trees import read, tone, write


def test_further_test_sets_of_one_name_have_their_folders_names_too(tmp_path: Path) -> None:
    for number, folder in enumerate(("ls", "cv", "ted")):
        tone(tmp_path / folder / "a.wav")
        write(tmp_path / folder / "test.tsv", f"path\tspeaker\tid\na.wav\ts{number}\tu{number}\n")
    lists = [f"{folder}/test.tsv" for folder in ("ls", "cv", "ted")]
    splits = read("tsv", tmp_path, test=lists, seconds_column=None, id_column="id")
    assert {name: rows.column("utterance") for name, rows in splits.items()} == {
        "test": ["u0"], "test-cv-test": ["u1"], "test-ted-test": ["u2"],
    }  # fmt: skip
    (tmp_path / "more" / "cv").mkdir(parents=True)
    (tmp_path / "more" / "cv" / "test.tsv").write_text("path\tspeaker\tid\n")
    with pytest.raises(ValueError, match=r"cv/test\.tsv and more/cv/test\.tsv would both be the split test-cv-test"):
        read("tsv", tmp_path, test=[*lists, "more/cv/test.tsv"], seconds_column=None, id_column="id")


@pytest.mark.parametrize("kind", ["tsv", "nemo"])
def test_equal_names_in_the_folders_of_splits_are_told_apart(tmp_path: Path, kind: str) -> None:
    options = {"seconds_column": None} if kind == "tsv" else {"text_key": None}
    for split in ("train", "dev"):
        tone(tmp_path / split / "wavs" / "1.wav", 0.5)
        line = {"audio_filepath": "wavs/1.wav", "duration": 0.5, "speaker": split}
        text = json.dumps(line) if kind == "nemo" else f"path\tspeaker\nwavs/1.wav\t{split}"
        write(tmp_path / split / "list", text + "\n")
    alone = read(kind, tmp_path, train=["train/list"], **options)["train"]
    assert alone.column("utterance") == ["wavs/1.wav"]
    splits = read(kind, tmp_path, train=["train/list"], dev=["dev/list"], **options)
    assert splits["train"].column("utterance") == ["train/wavs/1.wav"]
    assert splits["dev"].column("utterance") == ["dev/wavs/1.wav"]
    assert splits["dev"].column("path") == [str(tmp_path / "dev" / "wavs" / "1.wav")]
    with pytest.raises(ValueError, match=r"1 utterances are in more than one row of train, dev, among them \S*wav"):
        read(kind, tmp_path, train=["train/list"], dev=["dev/list", "dev/list"], **options)


def test_a_split_that_split_names_misspells_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split_names: held: 'tset' is none of server, clients, train, dev, test or"):
        read("tsv", tmp_path, split_names={"held": "tset"})


def test_what_speechbrain_manifests_hold_beside_text_and_numbers(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 0.5)
    item = {"wav": "a.wav", "duration": 0.5, "spk_id": "s", "wrd": "GO", "phn": ["G", "OW"], "clean": True}
    write(tmp_path / "train.json", json.dumps({"u1": item}))
    assert read("speechbrain", tmp_path, train=["train.json"])["train"].column("text") == ["GO"]
    with pytest.raises(ValueError, match=r"train\.json:u1: phn must be text or a number, not \['G', 'OW'\]"):
        read("speechbrain", tmp_path, train=["train.json"], text_column="phn")


def test_lines_of_kaldi_files_without_audio_are_told(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 0.5)
    write(tmp_path / "train" / "wav.scp", f"a {tmp_path / 'a.wav'}\n")
    write(tmp_path / "train" / "utt2spk", "a ann\n")
    write(tmp_path / "train" / "text", "a GO\nb NO\nc ON\n")
    with pytest.warns(LeftOut, match=r"train/text: 2 of 3 recordings are left out: 2 not in wav\.scp \(b, c\)"):
        splits = read("kaldi", tmp_path, train=["train"])
    assert splits["train"].column("text") == ["GO"]
