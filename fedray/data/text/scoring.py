"""Scoring rules: they change references and hypotheses alike before errors are counted."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from fedray.data.text.languages import SPACELESS

# Tags in GigaSpeech's transcripts: for punctuation marks, and for utterances without speech.
PUNCTUATION = {"<COMMA>": ",", "<PERIOD>": ".", "<QUESTIONMARK>": "?", "<EXCLAMATIONPOINT>": "!"}
GARBAGE = frozenset(("<SIL>", "<MUSIC>", "<NOISE>", "<OTHER>"))
FILLERS = ("UH", "UHH", "UM", "EH", "MM", "HM", "AH", "HUH", "HA", "ER", "OOF", "HEE", "ACH", "EEE", "EW")
UNSCORED = frozenset((*PUNCTUATION, *GARBAGE, *FILLERS, "<UNK>"))


def _plain(text: str) -> str:
    """The text as it is."""
    return text


def _gigaspeech(text: str) -> str:
    """GigaSpeech's rules (Chen et al., Interspeech 2021).

    Upper case; hyphens become spaces; fillers, punctuation tags, garbage tags and <UNK> are left out.
    """
    return " ".join(word for word in text.upper().replace("-", " ").split() if word not in UNSCORED)


def _characters(text: str) -> str:
    """Each character of a script without spaces between words becomes a word; words of other scripts stay."""
    return " ".join(re.sub(f"([{SPACELESS}])", r" \1 ", text).split())


def _whisper_english(text: str) -> str:
    """Whisper's rules for English (Radford et al., 2022, appendix C), but for its list of British spellings.

    Lower case; no punctuation and no fillers; contractions are written out, and numbers in digits.
    """
    return str(_english_rules()(text))


@functools.cache
def _english_rules() -> Callable[[str], str]:
    try:
        from transformers.models.whisper.english_normalizer import EnglishTextNormalizer
    except ImportError as error:
        message = 'task.scoring=whisper_english needs transformers: pip install "fedray[whisper]"'
        raise ValueError(message) from error
    rules: Callable[[str], str] = EnglishTextNormalizer({})  # type: ignore[no-untyped-call]
    return rules


SCORING: dict[str, Callable[[str], str]] = {
    "plain": _plain,
    "gigaspeech": _gigaspeech,
    "characters": _characters,
    "whisper_english": _whisper_english,
}
