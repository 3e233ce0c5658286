"""The normalisation of texts, by language: words, scores, and what the rules promise for any text."""

from __future__ import annotations

import unicodedata

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fedray.data.text.error_rates import edit_counts
from fedray.data.text.languages import RULES, base, is_code
from fedray.data.text.normalisation import Normaliser, nfc, watched
from tests.data.text.sentences import NUMERALS, SENTENCES
from tests.small_speech import small_speech


def test_forty_languages_in_ten_scripts() -> None:
    assert len({language for language, *_ in SENTENCES}) >= 40
    assert len({script for _, script, *_ in SENTENCES}) >= 10


@pytest.mark.parametrize(("language", "_", "said", "words"), SENTENCES, ids=[row[0] for row in SENTENCES])
def test_a_sentence_has_these_words(language: str, _: str, said: str, words: str) -> None:
    normalise = Normaliser(language)
    assert normalise(said) == unicodedata.normalize("NFC", words)
    # Whoever says the sentence, and whoever types it, makes no error: so do texts in NFD, and those read a second time.
    typed = [normalise(unicodedata.normalize("NFD", said)), normalise(normalise(said))]
    for unit in ("word", "character"):
        assert [count.errors for count in edit_counts([normalise(said)] * 2, typed, unit)] == [0, 0]
    (count,) = edit_counts([normalise(said)], [typed[0]])
    assert count.length == len(words.split())


@pytest.mark.parametrize(("language", "said", "words"), NUMERALS)
def test_numerals_stay_as_they_are(language: str, said: str, words: str) -> None:
    assert Normaliser(language)(said) == words


def test_words_do_not_depend_on_knowing_the_language() -> None:
    """Without a language, words are split where they are with one: only letters and edges of words may differ."""
    differ = [
        language
        for language, _, said, words in SENTENCES
        if len(Normaliser()(said).split()) != len(words.split()) and language not in ("ca", "sv-SE", "fi", "kbd", "ko")
    ]
    assert differ == []


def test_what_cannot_be_seen_goes_without_a_trace() -> None:
    hidden = "\u00ad\u200b\u2060\ufeff\u200e\u200f\u202a\u202c\u061c\ufe0f\u034f"
    text = hidden.join("word")
    assert Normaliser()(f"A {text}\u00a0here") == "a word here"
    assert (
        Normaliser(punctuation=True, lower_case=False)(f"A {text.replace(chr(0xFE0F), '')}.")
        == "A w\u034fo\u034fr\u034fd."
    )


@pytest.mark.parametrize("mark", "\x92\u2018\u2019\u201b\u02bc\u00b4\u0060\u2032\uff07'")
def test_apostrophes_of_all_kinds_are_one(mark: str) -> None:
    assert Normaliser("fr")(f"l{mark}eau {mark}pure{mark}") == "l'eau pure"
    assert Normaliser("uz")(f"o{mark}zbek sho{mark}ba tog{mark} san{mark}at") == "oʻzbek shoʻba togʻ san'at"


def test_marks_around_uzbek_words_are_no_letters() -> None:
    assert Normaliser("uz")("U ‘bog‘’ dedi, 'tog' deb") == "u bogʻ dedi tog deb"


def test_forms_of_letters_are_letters() -> None:
    assert Normaliser()("ｆｉｎｅ oﬃce 𝐛old ﷲ ﻻ") == "fine office bold الله لا"


def test_case_by_language() -> None:
    assert Normaliser("tr")("ISI İYİ") == "ısı iyi" and Normaliser("en")("ISI İYİ") == "isi iyi"
    assert Normaliser("de")("GRÖẞE Maß") == "größe maß" and Normaliser("el")("ΣΟΦΟΣ") == "σοφος"
    assert Normaliser("tr", lower_case=False)("ISI İyi") == "ISI İyi"


def test_languages_are_codes() -> None:
    assert [base(code) for code in ("uz", "zh-CN", "UZB", "cmn_hans_cn", "iw_il", "")] == [
        *("uz", "zh", "uz", "cmn", "he", ""),
    ]
    assert is_code("zh-CN") and is_code("nan-tw") and not is_code("Uzbek") and not is_code("cv-corpus-21.0")
    assert all(is_code(code) for rule in RULES for code in (*(rule.only or ()), *rule.never))
    assert Normaliser("zh-TW").in_characters and not Normaliser("ko").in_characters
    assert Normaliser("uz").name == "fedray's rules 2 for uz, lower case, without punctuation"


def test_what_is_normalised_can_be_watched() -> None:
    seen: list[tuple[str, list[str], list[str]]] = []
    column = pa.chunked_array([["Ja, so!"], ["Nu"]], pa.large_string())
    with watched(lambda by, before, after: seen.append((by.language, list(before), list(after)))):
        assert Normaliser("de").column(column).to_pylist() == ["ja so", "nu"]
    Normaliser("de").texts(["!"])
    assert seen == [("de", ["Ja, so!", "Nu"], ["ja so", "nu"])]


def test_texts_in_nfc() -> None:
    found = nfc(pa.chunked_array([["e\u0301", None], ["\xe9"]]))
    assert found.to_pylist() == ["\xe9", None, "\xe9"]


def before(sentences: list[str]) -> list[str]:
    """The rules 1, of fedray until November 2026."""
    texts = pc.utf8_lower(nfc(pa.chunked_array([sentences])))
    for pattern, becomes in (("[’ʼ´`]", "'"), (r"[^\p{L}\p{M}\p{N}']+", " "), (r"'+( |$)", r"\1"), (r"(^| )'+", r"\1")):
        texts = pc.replace_substring_regex(texts, pattern, becomes)
    found: list[str] = pc.utf8_trim(pc.replace_substring_regex(texts, r"[\s\p{Z}]+", " "), " ").to_pylist()
    return found


def test_nothing_changed_in_french_english_and_ukrainian() -> None:
    """The sentences of the table, and those of the small corpora of real speech."""
    mine = [(language, said) for language, _, said, _ in SENTENCES if language in ("en", "fr", "uk", "es", "pl", "ka")]
    for language, said in mine:
        assert [Normaliser(language)(said)] == before([said])


def test_nothing_changed_in_real_sentences() -> None:
    table = small_speech("common-voice-fr-mini") / "fr" / "validated.tsv"
    rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()]
    place = rows[0].index("sentence")
    said = [row[place] for row in rows[1:]]
    assert len(said) == 50 and Normaliser("fr").texts(said) == before(said)
