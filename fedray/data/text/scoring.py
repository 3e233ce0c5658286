"""Scoring rules: they change references and hypotheses alike before errors are counted."""

from __future__ import annotations

from collections.abc import Callable

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


SCORING: dict[str, Callable[[str], str]] = {"plain": _plain, "gigaspeech": _gigaspeech}
