"""What the normalisation of texts did to a corpus: words that it split or joined, its commonest changes, odd texts."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from fedray.core.seeds import numpy_generator
from fedray.data.analysis.inspection import TEXTS, Problem, first_of
from fedray.data.manifest import Manifest
from fedray.data.text.normalisation import Normaliser, nfc

SAMPLE = 20_000  # texts that are compared; of a larger table, this many random ones
COMMONEST = 10  # changes that are shown
CAPITAL = "capital letters", "small letters"
INVISIBLE = "[\\x{ad}\\x{61c}\\x{180e}\\x{200b}\\x{200e}\\x{200f}\\x{202a}-\\x{202e}\\x{2060}-\\x{206f}\\x{feff}]"
# What texts should not hold -> its pattern (RE2), and what to do.
ODD = {
    "U+FFFD, which stands for a character lost in a wrong encoding": (
        "\\x{fffd}",
        "Write the table again from the original, as UTF-8",
    ),
    "letters of UTF-8 that were read as Latin-1 (Ã© for é)": (
        "[ÃÂ][\\x{80}-\\x{bf}]|â\\x{20ac}|[ÐÑ][\\x{80}-\\x{bf}]|à[¤¥¦]",
        "Convert them: text.encode('cp1252').decode() in Python",
    ),
    "HTML": (
        r"&(?:#\d+|#[xX][0-9a-fA-F]+|amp|quot|apos|lt|gt|nbsp);|</?(?:b|br|em|font|i|p|span|strong|u)\s*/?>",
        "Convert it: html.unescape(text) in Python, and remove tags",
    ),
    "escaped characters (such as \\u00e9 or \\n)": (
        r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrt](?:[^a-zA-Z]|$))",
        "Write the characters themselves",
    ),
    "characters that cannot be seen (soft hyphens, zero-width spaces, marks of direction)": (
        INVISIBLE,
        "Texts that look alike differ. Remove them, or set data.options.punctuation=false",
    ),
    "characters for private use, which only one font knows": ("\\p{Co}", "Replace them by letters of Unicode"),
    'fields of a table in another\'s way of quoting ("" inside quotation marks)': (
        '^".*""[^"].*"$',
        "Write the table again with the quoting that its reader expects",
    ),
}


@dataclass
class Cleaning:
    """Counts of what one normaliser did; `add` has the form that `watched` calls."""

    by: Normaliser
    texts: int = 0
    compared: int = 0  # of the texts
    before: int = 0  # words of the compared texts, as spaces divide them
    splits: int = 0  # words that more than one word came out of, less one
    joins: int = 0  # spaces between words that went
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def add(self, before: Sequence[str], after: Sequence[str]) -> None:
        """Count the changes of some texts."""
        chosen = numpy_generator(0, "cleaning").permutation(len(before))[:SAMPLE].tolist()
        tokens: Counter[str] = Counter()
        came_out = 0
        for place in chosen:
            tokens.update(before[place].split())
            came_out += len(after[place].split())
        apart = 0
        for token, count in tokens.items():
            cleaned = self.by(token)
            words = len(cleaned.split())
            apart += count * words
            self.before += count * (words > 0)
            self.splits += count * max(0, words - 1)
            for change in _changes(token, cleaned, self.by):
                self.changes[change] += count
                self.examples.setdefault(change, (token, cleaned))
        self.joins += max(0, apart - came_out)
        self.texts += len(before)
        self.compared += len(chosen)

    def commonest(self) -> list[tuple[str, int, str]]:
        """(change, how often, an example) of the commonest changes."""
        return [
            (f"{_named(was)} → {_named(now)}", count, f"{token} → {cleaned or 'nothing'}")
            for (was, now), count in self.changes.most_common(COMMONEST)
            for token, cleaned in [self.examples[was, now]]
        ]


class Cleanings:
    """What each normaliser did, in the order in which they were first used."""

    def __init__(self) -> None:
        self.found: dict[Normaliser, Cleaning] = {}

    def add(self, by: Normaliser, before: Sequence[str], after: Sequence[str]) -> None:
        """Count what a normaliser did to some texts."""
        self.found.setdefault(by, Cleaning(by)).add(before, after)


def odd_texts(parts: Mapping[str, Manifest], column: str = "text") -> list[Problem]:
    """Find texts that hold what no one said: damaged characters, HTML, characters that cannot be seen.

    `column`: text | translation.
    """
    problems = []
    for name, manifest in parts.items():
        texts = manifest.table[column].fill_null("")
        found = [(what, pc.match_substring_regex(texts, pattern), remedy) for what, (pattern, remedy) in ODD.items()]
        apart = pc.not_equal(nfc(texts), texts)
        advice = "é may be one character or two: write all in Unicode NFC, or set data.options.punctuation=false"
        for what, mask, remedy in [*found, ("letters in other forms than Unicode NFC", apart, advice)]:
            if count := pc.sum(mask).as_py():
                where = f"{name}: {count:,} of {len(manifest):,} {TEXTS[column]}s"
                problems.append(Problem(f"{where} hold {what}, first {first_of(manifest, mask, column)}. {remedy}"))
    return problems


def _changes(token: str, cleaned: str, by: Normaliser) -> Iterator[tuple[str, str]]:
    """(characters of the token, what they become), from left to right."""
    lowered = by.lower(token)
    if lowered != token:
        yield CAPITAL
    inside = lowered.find(cleaned) if cleaned else -1
    if inside >= 0:  # most often, only marks around a word went
        for character in lowered[:inside] + lowered[inside + len(cleaned) :]:
            yield character, ""
        return
    for kind, i, j, k, m in difflib.SequenceMatcher(None, lowered, cleaned, autojunk=False).get_opcodes():
        if kind == "replace" and j - i == m - k:
            yield from zip(lowered[i:j], cleaned[k:m], strict=True)
        elif kind == "delete":
            yield from ((character, "") for character in lowered[i:j])
        elif kind != "equal":
            yield lowered[i:j], cleaned[k:m]


def _named(characters: str) -> str:
    """Characters in words: `’ (U+2019 RIGHT SINGLE QUOTATION MARK)`; letters and digits as they are."""
    if characters in ("", " "):
        return "space" if characters else "nothing"
    if len(characters) != 1 or characters.isalnum():
        return characters
    code = f"U+{ord(characters):04X} {unicodedata.name(characters, '')}".rstrip()
    kind = unicodedata.category(characters)
    return code if kind[0] in "CZ" else f"{'◌' if kind[0] == 'M' else ''}{characters} ({code})"
