"""Readers of lists, on small trees and on small sets of real speech."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray import experiment
from fedray.data.corpora.formats.speechbrain import SpeechBrain
from fedray.data.corpora.table import Table
from tests.small_speech import small_speech
from tests.trees import read, tone, write

# ---- SpeechBrain


def test_speechbrain_csv(tmp_path: Path) -> None:
    path = tone(tmp_path / "audio" / "a.wav")
    write(
        tmp_path / "train.csv",
        f'ID,duration,wav,spk_id,wrd\nu1, 0.5, $data_root/a.wav, 84-121123, "SO, GO"\nu2,0.5,{path},84-9,NO\n',
    )
    splits = read(
        "speechbrain", tmp_path, train=["train.csv"], data_root="audio", speaker_separator="-", lower_case=True
    )
    assert splits["train"].column("path") == [str(path)] * 2
    assert splits["train"].column("speaker") == ["84", "84"]
    assert splits["train"].column("text") == ["so, go", "no"]
    with pytest.raises(
        ValueError, match=r"has no column 'emotion': set label_column in data.options to one of ID, duration, wav"
    ):
        read("speechbrain", tmp_path, train=["train.csv"], label_column="emotion")


def test_speechbrain_json(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 0.75)
    items = {
        "u1": {"wav": "{data_root}/a.wav", "length": 0.75, "spk_id": 7, "words": "go"},
        "u2": {"wav": "a.wav", "length": 0.75, "spk_id": "8"},
    }
    write(tmp_path / "test.json", json.dumps(items))
    with pytest.raises(ValueError, match=r"test\.json:u2: the text is empty"):
        read("speechbrain", tmp_path, test=["test.json"], text_column="words", duration_column="length")
    manifest = read("speechbrain", tmp_path, test=["test.json"], text_column=None, duration_column=None)["test"]
    assert manifest.column("speaker") == ["7", "8"] and manifest.array("seconds").tolist() == [0.75, 0.75]
    write(tmp_path / "test.json", "[")
    with pytest.raises(ValueError, match=r"test\.json:1: is not JSON"):
        read("speechbrain", tmp_path, test=["test.json"])


SEGMENTS = "ID,duration,wav,start,stop,spk_id,wrd\n"


def test_speechbrain_segments(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 2)
    write(
        tmp_path / "train.csv",
        SEGMENTS + "u1,0.5,a.wav,8000,16000,s,GO\nu2,2,a.wav,16000.0,24000,s,NO\nu3,1.5,a.wav,8000,,s,ON\n"
        "u4,2,a.wav,0,0,s,UP\n",
    )
    train = read("speechbrain", tmp_path, train=["train.csv"])["train"]
    assert train.array("offset").tolist() == [0.5, 1.0, 0.5, 0.0]
    assert train.array("seconds").tolist() == [0.5, 0.5, 1.5, 2.0], (
        "u2's duration is the file's, as in VoxCeleb's recipe"
    )
    write(tmp_path / "test.csv", SEGMENTS + "u1,0.5,a.wav,0.25,0.75,s,GO\n")
    test = read("speechbrain", tmp_path, test=["test.csv"], segment_unit="seconds")["test"]
    assert test.array("offset").tolist() == [0.25] and test.array("seconds").tolist() == [0.5]
    cut = {"file": "{data_root}/a.wav", "start": 8000, "stop": 12000}
    write(tmp_path / "dev.json", json.dumps({"u1": {"wav": cut, "duration": 0.25, "spk_id": "s", "wrd": "go"}}))
    dev = read("speechbrain", tmp_path, dev=["dev.json"])["dev"]
    assert dev.column("path") == [str(tmp_path / "a.wav")]
    assert dev.array("offset").tolist() == [0.5] and dev.array("seconds").tolist() == [0.25]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "u1,0.5,a.wav,0.5,1.0,s,GO",
            r"train\.csv:2: the segment starts or ends at '0\.5', which is not a whole number",
        ),
        (
            "u1,3,a.wav,0,3,s,GO",
            r"train\.csv:2: .* there are 0\.00 s, but the duration is 3 s: .*segment_unit to seconds",
        ),
        ("u1,0.5,a.wav,16000,8000,s,GO", r"train\.csv:2: the segment ends before it starts \(16000 to 8000\)"),
        ("u1,0.5,a.wav,48000,,s,GO", r"train\.csv:2: the segment ends before it starts \(48000 to the end\)"),
        ("u1,0.5,b.wav,0,8000,s,GO", r"train\.csv:2: .*b\.wav: missing\. Restore the file"),
    ],
)
def test_an_impossible_segment_is_named_by_file_and_line(tmp_path: Path, row: str, words: str) -> None:
    tone(tmp_path / "a.wav", 2)
    write(tmp_path / "train.csv", f"{SEGMENTS}{row}\n")
    with pytest.raises(ValueError, match=words):
        read("speechbrain", tmp_path, train=["train.csv"])


def test_an_unknown_unit_of_segments_is_refused() -> None:
    with pytest.raises(ValueError, match="segment_unit must be samples or seconds, not 'frames'"):
        SpeechBrain(segment_unit="frames")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("u2,0.5,$data_root/b.wav,s,GO", r"train\.csv:3: .*b\.wav: missing\. Restore the file, drop the row"),
        ("u1,0.5,$data_root/a.wav,s,GO", r"train\.csv:3: the id 'u1' is already in .*train\.csv:2"),
        ("u2,long,$data_root/a.wav,s,GO", r"train\.csv:3: seconds must be a number above 0, not 'long'"),
        ("u2,-1,$data_root/a.wav,s,GO", r"train\.csv:3: seconds must be a number above 0"),
        ("u2,0.5,$data_root/a.wav,,GO", r"train\.csv:3: the speaker is empty"),
        (
            "u2,0.5,$data_root/a.wav,s",
            r"train\.csv:3: the row has 4 fields, but the header names 5 \(ID, duration, wav, spk_id, wrd\)",
        ),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, row: str, words: str) -> None:
    tone(tmp_path / "a.wav")
    write(tmp_path / "train.csv", f"ID,duration,wav,spk_id,wrd\nu1,0.5,$data_root/a.wav,s,GO\n{row}\n")
    with pytest.raises(ValueError, match=words):
        read("speechbrain", tmp_path, train=["train.csv"])


# ---- NeMo


def test_nemo(tmp_path: Path) -> None:
    tone(tmp_path / "lists" / "a.wav", 2)
    line = {"audio_filepath": "a.wav", "text": "go", "speaker": "s"}
    rows = [line | {"duration": 0.5}, line | {"offset": 0.5, "duration": 1.5}]
    write(tmp_path / "lists" / "dev.json", "".join(json.dumps(row) + "\n" for row in rows))
    dev = read("nemo", tmp_path, dev=["lists/dev.json"])["dev"]
    assert dev.array("offset").tolist() == [0, 0.5] and dev.array("seconds").tolist() == [0.5, 1.5]
    assert dev.column("utterance") == ["a.wav@0.0", "a.wav@0.5"]
    write(tmp_path / "lists" / "dev.json", json.dumps(line) + "\n")
    assert read("nemo", tmp_path, dev=["lists/dev.json"])["dev"].array("seconds").tolist() == [2]
    write(tmp_path / "lists" / "dev.json", json.dumps(line) + "\n\n{\n")
    with pytest.raises(ValueError, match=r"dev\.json:3: is not JSON"):
        read("nemo", tmp_path, dev=["lists/dev.json"])
    write(tmp_path / "lists" / "dev.json", json.dumps({"audio_filepath": "a.wav", "text": "go", "who": "s"}) + "\n")
    with pytest.raises(
        ValueError,
        match=r"dev\.json:1: the key 'speaker' is missing: .*set speaker_key in data.options to one of .*, text, who",
    ):
        read("nemo", tmp_path, dev=["lists/dev.json"])


# ---- Kaldi


def kaldi(folder: Path) -> Path:
    tone(folder / "audio" / "r1.wav", 2)
    write(folder / "data" / "wav.scp", "r1 audio/r1.wav\n")
    write(folder / "data" / "segments", "u1 r1 0.25 1.0\nu2 r1 1.5 -1\n")
    write(folder / "data" / "text", "u2 Come  here\nu1 go\n")
    write(folder / "data" / "utt2spk", "u1 s\nu2\tt\n")
    return folder


def test_kaldi(tmp_path: Path) -> None:
    train = read("kaldi", kaldi(tmp_path), train=["data"])["train"]
    assert train.column("utterance") == ["u1", "u2"] and train.column("speaker") == ["s", "t"]
    assert train.column("text") == ["go", "Come  here"]
    assert train.array("offset").tolist() == [0.25, 1.5] and train.array("seconds").tolist() == [0.75, 0.5]
    (tmp_path / "data" / "segments").unlink()
    write(tmp_path / "data" / "text", "r1 go\n")
    write(tmp_path / "data" / "utt2spk", "r1 s\n")
    write(tmp_path / "data" / "utt2lang", "r1 fr\n")
    whole = read("kaldi", tmp_path, train=["data"], label_file="utt2lang")["train"]
    assert whole.array("seconds").tolist() == [2] and whole.column("label") == ["fr"]
    write(tmp_path / "data" / "utt2dur", "r1 1.9\n")
    assert read("kaldi", tmp_path, train=["data"])["train"].array("seconds").tolist() == [1.9]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("wav.scp", "r1 sph2pipe -f wav r1.sph |\n", r"wav\.scp:1: 'r1' is a pipe .* write a wav or flac file"),
        ("wav.scp", "r1 raw.ark:17\n", r"wav\.scp:1: 'r1' is a position in an archive"),
        ("wav.scp", "r1 audio/r2.wav\n", r"segments:1: .*r2\.wav: missing"),
        ("wav.scp", "r1 a\nr1 b\n", r"wav\.scp:2: 'r1' is already in line 1"),
        ("segments", "u1 r1 0.25 1.0\nu2 r9 0 1\n", r"segments:2: the recording 'r9' is not in wav\.scp"),
        ("segments", "u1 r1 0.25 1.0\nu2 r1 1.5\n", r"segments:2: the line must read"),
        ("segments", "u1 r1 0.25 1.0\nu2 r1 1.5 1.2\n", r"segments:2: seconds must be a number above 0, not -0\.3"),
        ("text", "u1 go\n", r"text has no line for 'u2' \(segments:2\)"),
        ("text", "u1 go\nu2\n", r"text:2: nothing follows 'u2'"),
        ("utt2spk", "u1 s\nu2 t\nu3 t\n", r"utt2spk:3: the utterance 'u3' is not in segments"),
    ],
)
def test_kaldi_names_file_and_line(tmp_path: Path, file: str, text: str, words: str) -> None:
    write(kaldi(tmp_path) / "data" / file, text)
    with pytest.raises(ValueError, match=words):
        read("kaldi", tmp_path, train=["data"])


def test_kaldi_names_audio_whose_end_is_unknown(tmp_path: Path) -> None:
    write(kaldi(tmp_path) / "audio" / "r1.wav", "no audio")
    with pytest.raises(ValueError, match=r"segments:1: .*r1\.wav: .*repair the file, or drop the segment"):
        read("kaldi", tmp_path, train=["data"])


def test_kaldi_names_a_channel_that_would_be_averaged(tmp_path: Path) -> None:
    both = kaldi(tmp_path) / "audio" / "r1.wav"
    write(tmp_path / "data" / "segments", "u1 r1 0.25 1.0 1\nu2 r1 1.5 -1 1\n")
    assert len(read("kaldi", tmp_path, train=["data"])["train"]) == 2, "a file of one channel"
    soundfile.write(both, np.zeros((32000, 2)), 16000)
    with pytest.raises(ValueError, match=r"segments:1: .*r1\.wav has several channels, .* save channel 1 to a file"):
        read("kaldi", tmp_path, train=["data"])


# ---- tables


def test_segments_of_a_table_without_ids_have_their_offset_in_the_id(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 2.0)
    write(tmp_path / "m.tsv", "path\tspeaker\tstart\tseconds\na.wav\ts\t0\t0.5\na.wav\ts\t1.5\t0.5\n")
    options = {"train": ["m.tsv"], "offset_column": "start"}
    assert read("tsv", tmp_path, **options)["train"].column("utterance") == ["a.wav@0", "a.wav@1.5"]


def test_the_table_of_the_configurations_of_translation_may_name_server_and_clients(tmp_path: Path) -> None:
    splits = ("server", "clients", "dev", "test")
    rows = [f"{split}.wav\ts\ta\tb\tc\t{split}\n" for split in splits]
    write(tmp_path / "manifest.tsv", "path\tspeaker\taccent\ttext\ttranslation\tsplit\n" + "".join(rows))
    for split in splits:
        tone(tmp_path / f"{split}.wav")
    for name in ("fedlora/translation", "fedmem/translation"):
        options = experiment.load(name)[0].data.options
        assert {split: len(part) for split, part in read("tsv", tmp_path, **options).items()} == dict.fromkeys(
            splits, 1
        )


def test_an_utterance_of_unknown_length_lasts_to_the_end_of_its_file(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 2.0)
    write(tmp_path / "m.tsv", "path\tspeaker\tid\tstart\na.wav\ts\tone\t0\na.wav\ts\ttwo\t1.5\n")
    options = {"train": ["m.tsv"], "id_column": "id", "offset_column": "start", "seconds_column": None}
    assert read("tsv", tmp_path, **options)["train"].array("seconds").tolist() == [2.0, 0.5]


def test_tsv_quotes_nothing_and_splits_by_column(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    rows = ['a.wav\ts\t0.5\t"Go", he said\ttrain', 'a.wav\tt\t0.5\t"unbalanced\tval', "a.wav\tt\t0.5\tx\tmine"]
    write(tmp_path / "m.tsv", "\ufeffpath\tspeaker\tseconds\ttext\tsplit\n" + "\n".join(rows[:2]) + "\n")
    with pytest.raises(ValueError, match=r"m\.tsv:3: the id 'a\.wav' is already in .*m\.tsv:2"):
        read("tsv", tmp_path, train=["m.tsv"], text_column="text")
    options = {"train": ["m.tsv"], "text_column": "text", "id_column": "text", "split_column": "split"}
    splits = read("tsv", tmp_path, **options)
    assert splits["train"].column("text") == ['"Go", he said'] and splits["dev"].column("text") == ['"unbalanced']
    write(tmp_path / "m.tsv", "path\tspeaker\tseconds\ttext\tsplit\n" + "\n".join(rows) + "\n")
    with pytest.raises(ValueError, match=r"m\.tsv:4: the split 'mine' is not known: add it to split_names"):
        read("tsv", tmp_path, **options)
    assert len(read("tsv", tmp_path, **options, split_names={"mine": "test-mine"})["test-mine"]) == 1


def test_listed_files_make_splits(tmp_path: Path) -> None:
    for name in "abcd":
        tone(tmp_path / f"{name}.wav")
        write(tmp_path / f"{name}.tsv", f"path\tspeaker\n{name}.wav\ts\n")
    splits = read("tsv", tmp_path, server=["a.tsv"], clients=["b.tsv"], test=["c.tsv", "d.tsv"], seconds_column=None)
    assert {split: manifest.column("utterance") for split, manifest in splits.items()} == {
        "server": ["a.wav"],
        "clients": ["b.wav"],
        "test": ["c.wav"],
        "test-d": ["d.wav"],
    }
    assert splits["server"].array("seconds").tolist() == [0.5]
    with pytest.raises(ValueError, match="1 utterances are in more than one row of train, dev, among them a.wav"):
        read("tsv", tmp_path, train=["a.tsv"], dev=["a.tsv"], seconds_column=None)
    with pytest.raises(ValueError, match="names no files"):
        read("tsv", tmp_path)
    with pytest.raises(ValueError, match=r"z.tsv does not exist: correct data.root, or 'z.tsv' in data.options.dev"):
        read("tsv", tmp_path, dev=["z.tsv"])
    (tmp_path / "a.wav").write_text("not audio")
    with pytest.raises(ValueError, match=r"a\.tsv:2: .*a\.wav: cannot be read as audio"):
        read("tsv", tmp_path, train=["a.tsv"], seconds_column=None)


def test_tables_of_real_speech() -> None:
    root = small_speech("speechocean-mini")
    manifest = read("tsv", root, train=["manifest.tsv"], text_column="transcript", lower_case=True)["train"]
    assert len(manifest) == 964 and len(set(manifest.column("speaker"))) == 95 and round(manifest.hours, 2) == 1.09
    assert manifest[0].text == "two six four eight"
    root = small_speech("arabic-commands")
    splits = read("tsv", root, train=["manifest.tsv"], label_column="keyword", split_column="official_split")
    assert {split: len(manifest) for split, manifest in splits.items()} == {"train": 360, "dev": 120}
    assert len(set(splits["train"].column("label"))) == 10


def test_a_table_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes("path\ttext\na.wav\tcafé\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"train\.tsv:2: is not UTF-8 text \(.*\): convert it, for instance with `iconv"
    ):
        Table.read(tmp_path / "train.tsv", "\t")
