"""Any text of any language becomes words; they stay the same if they are normalised again."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from fedray.data.text.normalisation import Normaliser
from tests.data.text.sentences import SENTENCES

LANGUAGES = sorted({language for language, *_ in SENTENCES} | {""})
TRICKY = sorted(
    {c for _, _, said, _ in SENTENCES for c in said} | set("\u00ad\u200b\u200c\u200d\u2060\ufe0f'.,:·\u0301")
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.text(st.sampled_from(TRICKY), max_size=12)


@given(TEXTS, st.sampled_from(LANGUAGES))
def test_any_text_becomes_words(text: str, language: str) -> None:
    for punctuation in (False, True):
        normalise = Normaliser(language, punctuation=punctuation)
        found = normalise(text)
        assert found == " ".join(found.split()) and unicodedata.is_normalized("NFC", found)
        assert normalise(found) == found
        assert not any(unicodedata.category(c) == "Cf" for c in found if c not in "\u200c\u200d")
