"""CoVoST 2: the join of its list with Common Voice 4, its escapes, bad clips and accents."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.federation.partition import PartitionSettings, partition
from tests.speech_trees import client, covost2
from tests.trees import LFS_STUB, read, write

FOUR = {"accents": ["England", "austral", "indian"]}
pytestmark = pytest.mark.filterwarnings("ignore::fedray.data.corpora.official.layout.LeftOut")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return covost2(tmp_path_factory.mktemp("covost2"))


def test_the_official_splits(made: Path) -> None:
    with pytest.warns(LeftOut) as said:
        splits = read("covost2", made)
    assert {split: len(manifest) for split, manifest in splits.items()} == {"train": 12, "dev": 6, "test": 6}
    train = splits["train"]
    for manifest in splits.values():
        manifest.check()
    assert train.column("utterance")[:2] == ["common_voice_en_ann0", "common_voice_en_ann1"]
    assert train.column("speaker")[2] == client("bob")[:16] and train.column("label")[0] is None
    assert splits["test"].column("translation")[0] == "是3。" and splits["test"].column("text")[0] == "It is 3."
    (text,) = [str(warning.message) for warning in said]
    assert "3 of 27 recordings are left out" in text
    for part in (
        "1 not in validated.tsv (common_voice_en_unknown.mp3)",
        "1 known to be bad (common_voice_en_19817845.mp3)",
        "1 without audio in clips/ (common_voice_en_gone.mp3)",
    ):
        assert part in text
    home = made / "en"
    assert [len(part) for part in read("covost2", home).values()] == [12, 6, 6], "data.root is the language's folder"


def test_escapes_are_those_of_the_official_script(made: Path) -> None:
    """Escapes are read as in get_covost_splits.py, which uses pandas without quoting and with a backslash as escape."""
    train = read("covost2", made)["train"]
    assert train.column("text")[0] == '"Yes," she said. "No' and train.column("translation")[1] == '"好"，N\\A'
    for name, column in (("validated", "sentence"), ("covost_v2.en_zh-CN", "translation")):
        path = made / "en" / f"{name}.tsv"
        table = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, escapechar="\\", na_filter=False).set_index("path")
        ours = train.column("text" if column == "sentence" else column)
        assert ours == [table[column][f"{utterance}.mp3"] for utterance in train.column("utterance")]


def test_accents_are_clients_and_dev_and_test_are_cut_for_each(made: Path) -> None:
    splits = read("covost2", made, **FOUR, held_out=1)
    # The toy repeats four sentences, and train has none of those in dev or test.
    for split, counts in (("train", (2, 2, 1)), ("dev", (1, 1, 1)), ("test", (1, 1, 1))):
        assert Counter(splits[split].column("label")) == dict(zip(FOUR["accents"], counts, strict=True))
    clients = partition(splits["train"], PartitionSettings(by="label"), seed=0)
    assert {name: len(rows) for name, rows in clients.items()} == {"England": 2, "austral": 2, "indian": 1}
    ids = [utterance for manifest in splits.values() for utterance in manifest.column("utterance")]
    assert len(set(ids)) == len(ids) == 11
    again, other = (read("covost2", made, **FOUR, held_out=1, lower_case=True), read("covost2", made, seed=1, **FOUR))
    assert again["dev"].column("utterance") == splits["dev"].column("utterance")
    assert len(other["train"]) == 10, "the official splits, of three accents"
    drawn = {
        tuple(read("covost2", made, seed=seed, **FOUR, held_out=1)["dev"].column("utterance")) for seed in range(5)
    }
    assert len(drawn) > 1, "the seed of the data draws"
    with pytest.raises(ValueError, match="held_out: 'indian' has 4 utterances, too few to hold out 2 for dev"):
        read("covost2", made, **FOUR, held_out=2)
    with pytest.raises(ValueError, match="cuts dev and test for each accent: set data.options.accents"):
        read("covost2", made, held_out=2)


def test_texts_can_be_cleaned_and_long_clips_left_out(made: Path) -> None:
    train = read("covost2", made, lower_case=True, punctuation=False)["train"]
    assert train.column("text")[0] == "yes she said no" and train.column("translation")[0] == "是0。"
    with pytest.raises(ValueError, match="no recording is left for train"):
        read("covost2", made, max_seconds=0.1)
    with pytest.raises(ValueError, match="no recording is left of 27: unpack Common Voice 4"):
        read("covost2", made, max_seconds=0.1, **FOUR, held_out=1)


def test_rows_outside_the_official_splits_are_left_out(tmp_path: Path) -> None:
    path = covost2(tmp_path) / "en" / "covost_v2.en_zh-CN.tsv"
    write(path, path.read_text("utf-8").replace("\ttest\n", "\ttest_covost\n", 1).replace("\tdev\n", "\tdev_dup\n", 1))
    with pytest.warns(LeftOut, match=r"2 in no official split"):
        splits = read("covost2", tmp_path)
    assert {split: len(manifest) for split, manifest in splits.items()} == {"train": 12, "dev": 5, "test": 5}


def test_no_sentence_of_held_out_speech_is_trained_on(tmp_path: Path) -> None:
    validated = covost2(tmp_path) / "en" / "validated.tsv"
    table = pd.read_csv(validated, sep="\t", quoting=csv.QUOTE_NONE, na_filter=False)
    table["sentence"] = [f"Sentence {row % 6}" for row in range(len(table))]
    table.to_csv(validated, sep="\t", index=False, quoting=csv.QUOTE_NONE)
    with pytest.warns(LeftOut, match="whose sentence is in dev or test"):
        splits = read("covost2", tmp_path, **FOUR, held_out=1)
    scored = {*splits["dev"].column("text"), *splits["test"].column("text")}
    assert len(splits["dev"]) == len(splits["test"]) == 3 and not scored & set(splits["train"].column("text"))


def test_what_is_missing_or_wrong_is_named(tmp_path: Path) -> None:
    home = covost2(tmp_path) / "en"
    pairs, validated = home / "covost_v2.en_zh-CN.tsv", home / "validated.tsv"
    whole, rows = pairs.read_text("utf-8"), validated.read_text("utf-8")
    with pytest.raises(ValueError, match=r"holds no language 'fr' \(found: en\): set data.options.source"):
        read("covost2", tmp_path, source="fr", target="en")
    with pytest.raises(ValueError, match=r"covost_v2.en_de.tsv is missing: unpack .*\.tar\.gz .*there \(zh-CN\)"):
        read("covost2", tmp_path, target="de")
    write(pairs, whole.replace("\tdev\n", "\tvalid\n", 1))
    with pytest.raises(ValueError, match=r"zh-CN.tsv, row 3: the split must be train, dev, .*not 'valid': restore"):
        read("covost2", tmp_path)
    write(pairs, whole + "common_voice_en_bob2.mp3\t二\tdev\n")
    with pytest.raises(ValueError, match=r"row 28: common_voice_en_bob2.mp3 is in an earlier row too: restore CoVoST"):
        read("covost2", tmp_path)
    write(pairs, whole + "common_voice_en_x.mp3\t二\n")
    with pytest.raises(ValueError, match=r"zh-CN.tsv: CSV parse error: Row #29: Expected 3 columns, got 2.*: restore"):
        read("covost2", tmp_path)
    write(pairs, whole.replace("split", "part"))
    with pytest.raises(ValueError, match=r"zh-CN.tsv has no column 'split', only path, translation, part: restore"):
        read("covost2", tmp_path)
    write(pairs, LFS_STUB)
    with pytest.raises(ValueError, match="Git LFS stub"):
        read("covost2", tmp_path)
    write(pairs, whole.replace("\ttest\n", "\tdev\n"))
    with pytest.raises(ValueError, match="no recording is left for test"):
        read("covost2", tmp_path)
    write(pairs, whole)
    write(validated, rows + rows.splitlines()[1] + "\n")
    with pytest.raises(ValueError, match=r"validated.tsv: common_voice_en_ann0.mp3 is in several rows: restore"):
        read("covost2", tmp_path)
    write(validated, rows + "cut\toff\n")
    with pytest.warns(LeftOut, match=r"1 with fields missing in validated.tsv \(line 29\)"):
        read("covost2", tmp_path)
    validated.unlink()
    with pytest.raises(ValueError, match=r"validated.tsv is missing: unpack it from Common Voice 4's archive of en"):
        read("covost2", tmp_path)
