"""Normalise texts to words, so that the same words said are the same text. docs/corpora.md has the rules.

A word keeps its letters, marks and digits, in Unicode NFC, and what stands inside it: apostrophes, middle dots, visible
joiners. What cannot be seen (soft hyphens, zero-width spaces, marks of direction) goes without a trace. Anything else
is a space.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import pyarrow as pa

from fedray.data.text.languages import AT_EDGES, DOTLESS, IN_CHARACTERS, RULES, SPACED, SPACELESS, SPECIAL, base

VERSION = 2  # of the rules; 1 split words at every character that is no letter, mark, digit or apostrophe
# \x91 and \x92 are the apostrophes of Windows-1252 in a text that was read as Latin-1.
APOSTROPHES = "\x91\x92\u2018\u2019\u201b\u02bc\u02bd\u00b4\u0060\u2032\u055a\u1fbd\u1fbf\u0384\uff07"
# Marks of Armenian questions, exclamations and abbreviations, which stand inside words; the tatweel and its like, which
# stretch words; variation selectors and other marks without a sound.
SILENT = "\u055b\u055c\u055e\u055f\u0640\u07fa\u034f\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f"
COMPATIBLE = re.compile(r"<(wide|narrow|initial|medial|final|isolated|font)> ")
LIGATURES = {*range(0xFB00, 0xFB18), *range(0x1C4, 0x1CD), *range(0x1F1, 0x1F4), 0x132, 0x133, 0x13F, 0x140, 0x149}
INSIDE = "'\u00b7\u05f3\u05f4\u200c\u200d"  # part of a word between two letters
OF_NUMBERS = ".,\u066b\u066c"  # part of a word between two digits
COLONS = frozenset(("fi", "sv"))  # languages with colons inside inflected abbreviations: USA:n, k:a
DIGIT = re.compile(r"\d")
BETWEEN_DIGITS = re.compile(rf"(?<!\d)[{OF_NUMBERS}]|[{OF_NUMBERS}](?!\d)")
BETWEEN_LETTERS = re.compile("(?<![^ '])[:\u00b7]+|[:\u00b7]+(?![^ ':\u00b7])")
IN_NAMES = re.compile(f"(?<=[{SPACELESS}])\u00b7|\u00b7(?=[{SPACELESS}])")  # between the parts of a foreign name
BETWEEN_CHARACTERS = re.compile(f"(?<=[{SPACELESS}]) | (?=[{SPACELESS}])")
MARKS = "".join(chr(code) for code in range(0x300, 0x1E95B) if unicodedata.category(chr(code))[0] == "M")
MARK = frozenset(MARKS)
FIRST_SPECIAL, FIRST_SPACELESS = "\u0591", "\u0e01"  # no need to look for them in texts of lower code points


class _Table(dict[int, str]):
    """A table for str.translate whose entries are made when they are first needed."""

    def __init__(self, become: Callable[[str], str]) -> None:
        self.become = become

    def __missing__(self, code: int) -> str:
        self[code] = self.become(chr(code))
        return self[code]


def _seen(character: str) -> str:
    """Nothing for what cannot be seen, except joiners, which can be seen beside some letters."""
    return "" if unicodedata.category(character) == "Cf" and character not in INSIDE else character


def _letter(character: str) -> str:
    """The letter of which this is a form, ' for an apostrophe, nothing for what is silent or cannot be seen."""
    if character in APOSTROPHES:
        return "'"
    if character in SILENT or unicodedata.name(character, "").startswith("VARIATION SELECTOR"):
        return ""
    is_form = COMPATIBLE.match(unicodedata.decomposition(character)) or ord(character) in LIGATURES
    if is_form and unicodedata.category(character)[0] in "LMS":
        return "".join(map(_letter, unicodedata.normalize("NFKC", character).strip()))
    return _seen(character)


@functools.cache
def _words(inside: str) -> _Table:
    """The table by which letters, marks, digits and the characters of `inside` stay, and others become spaces."""
    return _Table(lambda c: c if unicodedata.category(c)[0] in "LMN" or c in inside else " ")


LETTERS, SEEN = _Table(_letter), _Table(_seen)


@dataclass(frozen=True)
class Normaliser:
    """The normalisation of a language's texts.

    language     a code such as uz or zh-CN; "" if it is not known: then the rules that hold for all languages
    lower_case   converts texts to lower case, by the language's rules
    punctuation  keeps texts as they are, but for single spaces, NFC, and characters that cannot be seen
    """

    language: str = ""
    lower_case: bool = True
    punctuation: bool = False
    _code: str = field(init=False, repr=False, compare=False)
    _inside: str = field(init=False, repr=False, compare=False)
    _rules: list[tuple[re.Pattern[str], str, bool]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        code = base(self.language)
        object.__setattr__(self, "_code", code)
        object.__setattr__(self, "_inside", INSIDE + ":" * (code in COLONS))
        mine = sorted((rule for rule in RULES if rule.holds(code)), key=lambda rule: rule.only is None)
        rules = [(re.compile(rule.pattern), rule.replacement, rule.only is None) for rule in mine]
        object.__setattr__(self, "_rules", rules)

    @property
    def name(self) -> str:
        """The normalisation in words, for results."""
        case = "lower case" if self.lower_case else "case kept"
        marks = "with punctuation" if self.punctuation else "without punctuation"
        return f"fedray's rules {VERSION} for {self.language or 'any language'}, {case}, {marks}"

    @property
    def in_characters(self) -> bool:
        """Whether the language writes no spaces between words, so that characters are counted instead."""
        return self._code in IN_CHARACTERS

    def __call__(self, text: str) -> str:
        """The normalised text; it stays the same if it is normalised again."""
        if self.punctuation:
            return unicodedata.normalize("NFC", " ".join(self.lower(text.translate(SEEN)).split()))
        text = unicodedata.normalize("NFC", text.translate(LETTERS))
        special = max(text, default="") >= FIRST_SPECIAL and SPECIAL.search(text) is not None
        for pattern, replacement, general in self._rules:
            if special or not general:
                text = pattern.sub(replacement, text)
        text, inside = self.lower(text), self._inside
        if DIGIT.search(text) is not None:
            text, inside = BETWEEN_DIGITS.sub(" ", text), inside + OF_NUMBERS
        text = text.translate(_words(inside))
        if "\u00b7" in text or ":" in text:
            text = BETWEEN_LETTERS.sub(" ", IN_NAMES.sub(" ", text))
        words = text.split()
        edge = "" if self._code in AT_EDGES else "'"
        if not MARK.isdisjoint(text):
            words = [
                word.lstrip(MARKS + INSIDE[1:] + edge).rstrip(edge or None) for word in words
            ]  # marks of no letter
        elif "'" in text:
            words = [word.strip(edge or None) for word in words if word.strip("'")]
        text = " ".join(filter(None, words))
        if max(text, default="") >= FIRST_SPACELESS and self._code not in SPACED:
            text = BETWEEN_CHARACTERS.sub("", text)
        return unicodedata.normalize("NFC", text)

    def column(self, texts: pa.ChunkedArray) -> pa.ChunkedArray:
        """The normalised texts of an Arrow column. `watched` sees them."""
        before: list[str] = texts.to_pylist()
        after = self.texts(before)
        return pa.chunked_array([pa.array(after, texts.type)], texts.type)

    def texts(self, texts: Sequence[str]) -> list[str]:
        """The normalised texts of a list. `watched` sees them."""
        after = list(map(self, texts))
        if (watching := _WATCHING.get()) is not None:
            watching(self, texts, after)
        return after

    def lower(self, text: str) -> str:
        """The text in lower case, if the settings say so."""
        if not self.lower_case:
            return text
        if self._code in DOTLESS:
            text = text.replace("I", "\u0131")
        return text.replace("\u0130", "i").lower()


Watching = Callable[[Normaliser, Sequence[str], Sequence[str]], None]
_WATCHING: ContextVar[Watching | None] = ContextVar("watching", default=None)


@contextmanager
def watched(by: Watching) -> Iterator[None]:
    """Within the context, call `by` with the normaliser, the texts before and the texts after, once for each table."""
    token = _WATCHING.set(by)
    try:
        yield
    finally:
        _WATCHING.reset(token)


def nfc(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts in Unicode NFC; null stays. pyarrow's own `utf8_normalize` gives NFD until version 25."""
    found = [None if text is None else unicodedata.normalize("NFC", text) for text in texts.to_pylist()]
    return pa.chunked_array([found], texts.type)
