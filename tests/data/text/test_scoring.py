"""Rules that prepare texts for scoring."""

from __future__ import annotations

import sys

import pytest

from fedray.data.text.error_rates import EditCounts, edit_counts
from fedray.data.text.scoring import SCORING, _english_rules


@pytest.mark.parametrize(
    ("text", "scored"),
    [
        ("so <COMMA> uh e-commerce <PERIOD>", "SO E COMMERCE"),
        ("STATE-OF-THE-ART <UNK> <unk> WORK <EXCLAMATIONPOINT>", "STATE OF THE ART WORK"),
        ("Um- HM, ha", "HM,"),
        ("<MUSIC>", ""),
        ("UMBRELLA  HERE", "UMBRELLA HERE"),
    ],
)
def test_gigaspeech(text: str, scored: str) -> None:
    assert SCORING["gigaspeech"](text) == scored and SCORING["plain"](text) == text


def test_characters_count_as_words_where_no_spaces_do() -> None:
    rule = SCORING["characters"]
    assert rule("你好iphone手机 pro") == "你 好 iphone 手 机 pro"
    assert edit_counts([rule("你好世界")], [rule("你号 世界")]) == [EditCounts(1, 4)]
    assert rule("two words") == "two words"


def test_fillers_and_hyphens_are_no_errors() -> None:
    rule = SCORING["gigaspeech"]
    said, heard = "WELL <COMMA> UH THE HOW-TO <PERIOD>", "well the how to um"
    assert edit_counts([rule(said)], [rule(heard)]) == [EditCounts(0, 4)]
    assert edit_counts([said], [heard])[0].errors > 4


def test_whisper_english() -> None:
    rule = SCORING["whisper_english"]
    assert rule("TWENTY-ONE houses, it's said.") == rule("21 houses it is said") == "21 houses it is said"
    assert rule("I can't, um, see Mr. Smith!") == "i can not see mister smith"
    assert rule("") == ""


def test_whisper_english_needs_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    _english_rules.cache_clear()
    monkeypatch.setitem(sys.modules, "transformers.models.whisper.english_normalizer", None)
    with pytest.raises(ValueError, match=r'task.scoring=whisper_english needs .* "fedray\[whisper\]"'):
        SCORING["whisper_english"]("")
