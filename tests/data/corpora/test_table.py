"""Tables whose quotation marks mean what another format would mean by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.data.corpora.assembly import Told
from fedray.data.corpora.table import Table, is_quoted
from tests.trees import read, tone, write

HEAD = "path\ttext\n"


@pytest.mark.parametrize(("quoted", "rows"), [
    (True, 'a\t"He said ""no"""\nb\tyes\n'),  # a doubled mark
    (True, 'a\t"a tab \t inside"\nb\tyes\n'),  # a delimiter
    (True, 'a\t"one"\nb\t"two"\n'),  # around each text of a column
    (False, 'a\t"Oui, dit-il\nb\t"two"\n'),  # Common Voice
    (False, 'a\t"Oui" dit-il\nb\t"non"\n'),
    (False, 'a\t"Oui"\nb\tnon\n'),
    (False, 'a\til dit "oui"\nb\tnon\n'),
    (False, 'a\t"Ah "" oh"\nb\tsay "x" now "\n'),
    (False, 'a\t"Oui"\n'),
    (False, 'a\tno marks\n'),
])  # fmt: skip
def test_a_tsv_is_quoted_only_without_doubt(quoted: bool, rows: str) -> None:
    assert is_quoted(HEAD + rows, "\t", usual=False) == quoted


def test_names_in_marks_leave_no_doubt() -> None:
    assert is_quoted('"path"\t"text"\na\tb\n', "\t", usual=False)


@pytest.mark.parametrize(("quoted", "rows"), [
    (True, 'a,"yes, sir"\nb,no\n'),
    (True, 'a,"yes"\nb,no\n'),
    (True, 'a,say "yes"\nb,no\n'),
    (True, 'a,"yes sir\nb,no\n'),  # not closed: an error
    (False, 'a,"yes" sir\nb,no\n'),
    (True, 'a,"yes" sir, no\nb,no\n'),  # without quoting, there is a field too many
])  # fmt: skip
def test_a_csv_is_quoted_but_for_marks_that_make_no_sense(quoted: bool, rows: str) -> None:
    assert is_quoted(f"path,text\n{rows}", ",", usual=True) == quoted


def test_what_is_read_in_the_other_way_is_told(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    options = {"train": ["all.tsv"], "text_column": "text", "seconds_column": None}
    write(tmp_path / "all.tsv", 'path\tspeaker\ttext\na.wav\tann\t"She said ""go"""\n')
    with pytest.warns(Told, match=r"all\.tsv: quotation marks are read as in CSV"):
        assert read("tsv", tmp_path, **options)["train"].column("text") == ['She said "go"']
    write(tmp_path / "all.tsv", 'path\tspeaker\ttext\na.wav\tann\t"Go", she said\n')
    assert read("tsv", tmp_path, **options)["train"].column("text") == ['"Go", she said']
    write(tmp_path / "all.csv", 'path,text\na,"Go" she said\n')
    with pytest.warns(Told, match="and not as in CSV, so they are part of the text"):
        assert Table.read(tmp_path / "all.csv").columns["text"] == ['"Go" she said']


def test_a_comma_inside_marks_is_no_delimiter(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    write(tmp_path / "all.csv", 'path,text\na.wav,"Go, she said"\n')
    with pytest.warns(Told, match="as in CSV"):
        splits = read("tsv", tmp_path, train=["all.csv"], delimiter=",", text_column="text", speaker_column=None,
                      seconds_column=None)  # fmt: skip
    assert splits["train"].column("text") == ["Go, she said"]


def test_texts_by_the_rules_of_a_language(tmp_path: Path) -> None:
    tone(tmp_path / "x.wav")
    write(tmp_path / "words.tsv", "path\tspeaker\ttext\nx.wav\ts1\tYo‘l uzoq, bo‘lsa ham!\n")
    options = {"train": ["words.tsv"], "text_column": "text", "seconds_column": None}
    for more, text in (
        ({}, "Yo‘l uzoq, bo‘lsa ham!"),
        ({"lower_case": True}, "yo‘l uzoq, bo‘lsa ham!"),
        ({"punctuation": False, "language": "uz"}, "Yoʻl uzoq boʻlsa ham"),
        ({"punctuation": False, "lower_case": True}, "yo'l uzoq bo'lsa ham"),
    ):
        assert read("tsv", tmp_path, **options, **more)["train"].column("text") == [text]
    with pytest.raises(ValueError, match="data.options.language must be a code such as uz or zh-CN, not 'Uzbek'"):
        read("tsv", tmp_path, **options, language="Uzbek")
