"""Rules that prepare texts for scoring."""

from __future__ import annotations

import pytest

from fedray.data.text.error_rates import EditCounts, edit_counts
from fedray.data.text.scoring import SCORING


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
