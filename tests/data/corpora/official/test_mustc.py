"""MuST-C: each entry of a YAML list is a stretch of a talk and belongs to a line of each of two texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.features import audio
from tests.speech_trees import must_line, mustc
from tests.trees import LFS_STUB, read, write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mustc(tmp_path_factory.mktemp("mustc"))


def test_the_official_splits(made: Path) -> None:
    splits = read("mustc", made, test=["tst-COMMON", "tst-HE"])
    assert {split: len(part) for split, part in splits.items()} == {"train": 6, "dev": 3, "test": 3, "tst-HE": 3}
    for part in splits.values():
        part.check()
    train = splits["train"]
    assert train.column("speaker") == ["spk.1"] * 3 + ["spk.767"] * 3
    assert train.column("text")[:2] == ["Sentence 0", "Sentence 1"] and train.column("translation")[5] == "句子 5"
    assert train.array("offset")[:3].tolist() == [10.5, 9.5, 0.0] and set(train.array("seconds")) == {0.25}
    first = train[0]
    assert len(audio.read(first.path, 16000, first.offset, first.seconds)) == 4000
    inside = read("mustc", made / "en-zh", test=[], dev=[], lower_case=True)
    assert list(inside) == ["train"] and inside["train"].column("text")[0] == "sentence 0"


def test_offsets_are_numbers(made: Path) -> None:
    """Segments are numbered by their offsets as numbers; as text, 10.5 would come before 9.5."""
    names = read("mustc", made)["train"].column("utterance")
    assert names == ["ted_1_2", "ted_1_1", "ted_1_0", "ted_767_2", "ted_767_1", "ted_767_0"]


def test_lists_without_counts_of_words(tmp_path: Path) -> None:
    """Lists of version 2, which have no rW and uW, are read."""
    folder = mustc(tmp_path) / "en-zh" / "data" / "dev" / "txt"
    lines = [must_line(2, offset, more="") for offset in ("7.5", "8.000", "9")]
    write(folder / "dev.yaml", "".join(lines))
    assert read("mustc", tmp_path)["dev"].array("offset").tolist() == [7.5, 8, 9]


def test_a_line_of_text_ends_at_a_line_feed_only(tmp_path: Path) -> None:
    folder = mustc(tmp_path) / "en-zh" / "data" / "dev" / "txt"
    write(folder / "dev.en", "One\u2028two\x85three\nFour\x0cfive\n six \n")
    assert read("mustc", tmp_path)["dev"].column("text") == ["One\u2028two\x85three", "Four\x0cfive", "six"]


def test_what_cannot_train_is_left_out(tmp_path: Path) -> None:
    folder = mustc(tmp_path) / "en-zh" / "data" / "train" / "txt"
    spans = [("0", "0.000000"), ("1", "0.5"), ("2", "0.5"), ("3", "0.5"), ("4", "3.5"), ("5", "0.5")]
    write(folder / "train.yaml", "".join(must_line(1, *span) for span in spans))
    write(folder / "train.en", "a\n\nc\nd\ne\nf\n")
    write(folder / "train.zh", "一\n二\n \n四\n五\n六\n")
    with pytest.warns(LeftOut) as said:
        train = read("mustc", tmp_path, max_seconds=3.0)["train"]
    assert train.column("utterance") == ["ted_1_3", "ted_1_5"] and train.column("translation") == ["四", "六"]
    (text,) = [str(warning.message) for warning in said]
    assert "4 of 6 recordings are left out: 1 without length (ted_1_0); 1 without a text (ted_1_1); " in text
    assert "1 without a translation (ted_1_2); 1 longer than 3.0 s (ted_1_4)" in text


def test_scores_are_of_the_whole_official_sets(tmp_path: Path) -> None:
    folder = mustc(tmp_path) / "en-zh" / "data" / "train" / "txt"
    lines = [
        must_line(1, str(row), duration) for row, duration in enumerate(("0.1", "0.3", "0.1", "0.1", "0.1", "0.1"))
    ]
    write(folder / "train.yaml", "".join(lines))
    with pytest.warns(LeftOut, match=r"train.yaml: 1 of 6 recordings are left out: 1 longer than 0.2 s"):
        splits = read("mustc", tmp_path, max_seconds=0.2)
    assert {split: len(part) for split, part in splits.items()} == {"train": 5, "dev": 3, "test": 3}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("- {duration: 1.0, offset: 2.0, wav: ted_2.wav}\n", "dev.yaml:2: the entry has no speaker_id; it must read"),
        (must_line(2, "'soon'"), "dev.yaml:2: the offset must be a number of seconds, not 'soon': restore the file"),
        (must_line(2, "nan"), "dev.yaml:2: the offset must be a number of seconds, not 'nan'"),
        (must_line(2, "-1.0"), "dev.yaml:2: offset must be a number that is 0 or more, not -1.0"),
        (must_line(2, "[1, 2]"), "dev.yaml:2: the entry must read '- {duration: 3.5, offset: 16.08, "),
        (must_line(2, "*there"), "dev.yaml:2: the entry must read"),
        ("- ted_2.wav\n", "dev.yaml:2: the entry must read"),
        ("- {duration: 1.0, offset\n", "dev.yaml:3: is not YAML .*: restore the file"),
        ("- {duration: \x07}\n", "dev.yaml: is not YAML .*: restore the file"),
        (f"- {'[' * 20_000}\n", "dev.yaml: a line has 20,002 characters; lines must read"),
        (must_line(9, "1.0"), "dev.yaml:2: .*ted_9.wav: missing. Restore the file"),
        (must_line(2, "1.0") * 2, r"dev.en has 3 lines, but .*dev.yaml has 4 entries: restore"),
    ],
)
def test_a_bad_entry_is_named(entry: str, words: str, tmp_path: Path) -> None:
    folder = mustc(tmp_path) / "en-zh" / "data" / "dev" / "txt"
    write(folder / "dev.yaml", must_line(2, "0.0") + entry + must_line(2, "5.0"))
    with pytest.raises(ValueError, match=words):
        read("mustc", tmp_path)


def test_nothing_in_a_list_is_executed(tmp_path: Path) -> None:
    folder = mustc(tmp_path) / "en-zh" / "data" / "dev" / "txt"
    attack = must_line(2, f"!!python/object/apply:pathlib.Path.touch [{tmp_path / 'touched'}]")
    write(folder / "dev.yaml", attack)
    with pytest.raises(ValueError, match="dev.yaml:1: the entry must read"):
        read("mustc", tmp_path)
    assert not (tmp_path / "touched").exists()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    home = mustc(tmp_path) / "en-zh" / "data"
    with pytest.raises(ValueError, match=r"en-de/data/train is missing: unpack MuST-C's archive of en-de, .*: none\)"):
        read("mustc", tmp_path, target="de")
    with pytest.raises(ValueError, match=r"data/test is missing: .*splits found: dev, train, tst-COMMON, tst-HE\)"):
        read("mustc", tmp_path, test=["test"])
    write(home / "dev" / "txt" / "dev.zh", LFS_STUB)
    with pytest.raises(ValueError, match="Git LFS stub"):
        read("mustc", tmp_path)
    (home / "dev" / "txt" / "dev.zh").write_bytes("好\n".encode("gb18030"))
    with pytest.raises(ValueError, match="dev.zh:1: is not UTF-8 text"):
        read("mustc", tmp_path)
    (home / "dev" / "txt" / "dev.zh").unlink()
    with pytest.raises(ValueError, match="dev.zh is missing: restore the file from MuST-C's archive"):
        read("mustc", tmp_path)
    write(home / "dev" / "txt" / "dev.yaml", "")
    for language in ("en", "zh"):
        write(home / "dev" / "txt" / f"dev.{language}", "")
    with pytest.raises(ValueError, match="dev.yaml: no utterance is left of 0"):
        read("mustc", tmp_path)
