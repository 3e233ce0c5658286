"""What `fedray data` says about the normalisation of texts, and about texts that no one said."""

from __future__ import annotations

import pytest
from rich.console import Console

from fedray.cli.cleaning import tables
from fedray.data.analysis.cleaning import SAMPLE, Cleaning, Cleanings, odd_texts
from fedray.data.manifest import Manifest
from fedray.data.text.normalisation import Normaliser, watched


def counted(language: str, *texts: str) -> Cleaning:
    found = Cleanings()
    with watched(found.add):
        Normaliser(language).texts(texts)
    (cleaning,) = found.found.values()
    return cleaning


def test_splits_joins_and_changes_are_counted() -> None:
    """Six words are told apart by spaces, and "-" is none: two of them are split, one in two and one in three."""
    cleaning = counted("fr", "L’eau vient-elle ?", "De Brive-la-Gaillarde - oui.")
    assert (cleaning.texts, cleaning.before, cleaning.splits, cleaning.joins) == (2, 5, 3, 0)
    assert cleaning.commonest() == [
        ("capital letters → small letters", 3, "L’eau → l'eau"),
        ("- (U+002D HYPHEN-MINUS) → space", 3, "vient-elle → vient elle"),
        ("’ (U+2019 RIGHT SINGLE QUOTATION MARK) → ' (U+0027 APOSTROPHE)", 1, "L’eau → l'eau"),
        ("? (U+003F QUESTION MARK) → nothing", 1, "? → nothing"),
        ("- (U+002D HYPHEN-MINUS) → nothing", 1, "- → nothing"),
        (". (U+002E FULL STOP) → nothing", 1, "oui. → oui"),
    ]


def test_words_of_one_kind_are_kept_whole() -> None:
    assert counted("uz", "yo‘l uzoq bo‘lsa ham").splits == counted("fa", "می\u200cخواهم بروم").splits == 0
    joined = counted("zh-CN", "你好， 世界 ！")
    assert (joined.before, joined.joins) == (2, 1)
    hidden = counted("de", "Auf\u00adgabe")
    assert ("U+00AD SOFT HYPHEN → nothing", 1, "Auf\u00adgabe → aufgabe") in hidden.commonest()


def test_of_many_texts_some_are_compared() -> None:
    cleaning = counted("en", *["a-b"] * (SAMPLE + 1))
    assert (cleaning.texts, cleaning.compared, cleaning.splits) == (SAMPLE + 1, SAMPLE, SAMPLE)


def test_the_table_names_the_rules() -> None:
    found = Cleanings()
    with watched(found.add):
        Normaliser("ja").texts(["犬、猫"])
        Normaliser("en").texts(["well-known [bold]"])
    console = Console(width=200, record=True, file=None)
    with console.capture() as said:
        console.print(*tables(found))
    text = said.get()
    assert "Texts: fedray's rules 2 for ja, lower case, without punctuation" in text
    assert "read cer, or set task.scoring=characters" in text
    assert "500.0 splits and 0.0 joins in a thousand words (2 words of all texts)" in text and "[bold]" in text


@pytest.mark.parametrize(("text", "told"), [
    ("caf\ufffd noir", "U+FFFD"),
    ("cafÃ© noir", "read as Latin-1"),
    ("Tom &amp; Jerry", "HTML"),
    ("so <br/> what", "HTML"),
    ("caf\\u00e9", "escaped characters"),
    ("super\u00admarket", "cannot be seen"),
    ("zero\u200bwidth", "cannot be seen"),
    ("cafe\u0301", "Unicode NFC"),
    ("\ue000 noir", "private use"),
    ('"She said ""no"" twice"', "another's way of quoting"),
])  # fmt: skip
def test_texts_that_no_one_said(text: str, told: str) -> None:
    rows = [{"utterance": f"u{row}", "path": "/a.wav", "seconds": 1.0, "speaker": "s", "text": said}
            for row, said in enumerate(["“Déjà vu,” d’ÃO…", text, None, "<COMMA> می\u200cخواهم"])]  # fmt: skip
    (problem,) = odd_texts({"clients": Manifest.from_rows(rows, "list.tsv")})
    assert problem.text.startswith("clients: 1 of 4 transcripts hold ") and told in problem.text
    assert "first u1: " in problem.text and not problem.stops
