"""Translate the embedded corpus' sentences by corresponding templates and slots.

A sentence is parsed into the template and the phrases that it was made of, and these are translated. Most phrases have
several translations. A dialect prefers one of them, so that the clients of a dialect have something to learn.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from fedray.core import seeds
from fedray.data.corpora.synthesis import lexicon
from fedray.data.corpora.synthesis.sentences import SLOT, Grammar

FOLDER = Path(__file__).parent / "translations"
PLACE = re.compile(r"\{(\w+)(?:\.(\d+))?\}")  # {city}, or {city.2}: the second city of the source
FAITHFUL = 0.85  # share of a dialect's phrases that get its preferred translation

Choose = Callable[[str, int], int]  # (phrase, number of its translations) -> which of them


@dataclass(frozen=True)
class Phrase:
    """A template, or a phrase of a slot, with the phrases in its own slots, in order."""

    text: str
    slot: str | None
    parts: tuple[Phrase, ...]


@dataclass(frozen=True)
class Translator:
    """A grammar, and the translations of its templates and phrases."""

    grammar: Grammar
    templates: Mapping[str, tuple[str, ...]]
    slots: Mapping[str, Mapping[str, tuple[str, ...]]]

    def translate(self, sentence: str, choose: Choose) -> str:
        """Translate a sentence. Raises ValueError for a sentence that the grammar does not make."""
        return self._rendered(self.parse(sentence), choose)

    def parse(self, sentence: str) -> Phrase:
        """Find the first derivation of a sentence. Raises ValueError if the grammar does not make it."""
        words = sentence.split()
        for template in self.grammar.templates:
            for end, parts in self._matches(template.split(), words, 0):
                if end == len(words):
                    return Phrase(template, None, parts)
        raise ValueError(f"{sentence!r} is not one of the commands' sentences, so it has no translation")

    def _matches(
        self, pattern: Sequence[str], words: Sequence[str], start: int
    ) -> Iterator[tuple[int, tuple[Phrase, ...]]]:
        """Yield where a pattern that begins at word `start` may end, with the phrases in its slots."""
        if not pattern:
            yield start, ()
            return
        slot = SLOT.fullmatch(pattern[0])
        if slot is None:
            if start < len(words) and words[start] == pattern[0]:
                yield from self._matches(pattern[1:], words, start + 1)
            return
        for text in self.grammar.slots[slot[1]]:
            for middle, inner in self._matches(text.split(), words, start):
                for end, rest in self._matches(pattern[1:], words, middle):
                    yield end, (Phrase(text, slot[1], inner), *rest)

    def _rendered(self, phrase: Phrase, choose: Choose) -> str:
        options = self.templates[phrase.text] if phrase.slot is None else self.slots[phrase.slot][phrase.text]
        chosen = options[choose(phrase.text, len(options))]

        def fill(place: re.Match[str]) -> str:
            alike = [part for part in phrase.parts if part.slot == place[1]]
            return self._rendered(alike[int(place[2] or 1) - 1], choose)

        return PLACE.sub(fill, chosen)


def translated(sentence: str, language: str, dialect: str | None, utterance: str) -> str:
    """Translate an English command. With `dialect` None, no translation of a phrase is preferred.

    The same utterance of the same dialect has the same translation everywhere.
    """

    def choose(phrase: str, count: int) -> int:
        if dialect is not None and seeds.derive("faithful", utterance, phrase) < FAITHFUL * 2**63:
            return seeds.derive("dialect", dialect, phrase) % count
        return seeds.derive("translation", utterance, phrase) % count

    return translator(language).translate(sentence, choose)


@functools.cache
def translator(language: str) -> Translator:
    """The translator of English commands into a language."""
    return read(FOLDER / f"{language}.yaml", lexicon.commands("en"))


def read(path: Path, grammar: Grammar) -> Translator:
    """Read the translations for a grammar. Raises ValueError if one is missing, superfluous, or fills other slots."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    templates = {source: _options(text) for source, text in content["templates"].items()}
    slots = {
        slot: {source: _options(text) for source, text in found.items()} for slot, found in content["slots"].items()
    }
    wanted: list[tuple[str, Sequence[str], Mapping[str, tuple[str, ...]]]] = [
        ("templates", grammar.templates, templates),
        *((f"slots.{slot}", phrases, slots.get(slot, {})) for slot, phrases in grammar.slots.items()),
    ]
    for key, sources, found in wanted:
        if different := set(sources) ^ set(found):
            raise ValueError(f"{path}: {key}: translate each phrase of the grammar: {min(different)!r} differs")
        for source, options in found.items():
            there = sorted(SLOT.findall(source))
            for option in options:
                if sorted(name for name, _ in PLACE.findall(option)) != there:
                    raise ValueError(f"{path}: {key}: {option!r} must fill the slots of {source!r}, each once")
    return Translator(grammar, templates, slots)


def _options(text: str) -> tuple[str, ...]:
    return tuple(option.strip() for option in text.split("|"))
