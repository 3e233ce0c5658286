"""What is said: grammars of spoken commands, and lists of isolated words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedray.core import seeds
from fedray.data.corpora.synthesis import domains, english, french, german, italian, russian, spanish

SLOT = re.compile(r"\{(\w+)\}")
TRIES = 10_000
WORDS = (4, 8)  # of a text without grammar, the end included


@dataclass(frozen=True)
class Grammar:
    """Sentences as templates with slots: `{room}` becomes one of `slots["room"]`, whose phrases may hold slots themselves."""

    templates: tuple[str, ...]
    slots: Mapping[str, tuple[str, ...]]
    keywords: tuple[str, ...]

    def sentence(self, generator: np.random.Generator) -> str:
        text = pick(self.templates, generator)
        while SLOT.search(text):
            text = SLOT.sub(lambda slot: pick(self.slots[slot[1]], generator), text, count=1)
        return text

    def count(self) -> int:
        """The number of sentences (each as often as it can be derived)."""

        def ways(phrase: str) -> int:
            total = 1
            for slot in SLOT.findall(phrase):
                total *= sum(map(ways, self.slots[slot]))
            return total

        return sum(map(ways, self.templates))

    def vocabulary(self) -> set[str]:
        phrases = [*self.templates, *(phrase for choices in self.slots.values() for phrase in choices)]
        return {word for phrase in phrases for word in SLOT.sub(" ", phrase).split()}


GRAMMARS = {
    language: Grammar(module.TEMPLATES, module.SLOTS, module.KEYWORDS)
    for language, module in zip(("en", "fr", "it", "es", "de", "ru"), (english, french, italian, spanish, german, russian), strict=True)
}
DOMAIN_GRAMMARS = {domain: Grammar(templates, slots, ()) for domain, (templates, slots) in domains.DOMAINS.items()}


def pick(choices: tuple[str, ...], generator: np.random.Generator) -> str:
    return choices[int(generator.integers(len(choices)))]


def held_out(text: str, share: float, seed: int) -> bool:
    """Whether a sentence is kept from server and clients: decided by its own hash, so it holds for a corpus of any size."""
    return seeds.derive(seed, "held out", text) < share * 2**63


def draw(grammar: Grammar, held: bool, share: float, seed: int, generator: np.random.Generator) -> str:
    """A random sentence of those held out, or of the others."""
    for _ in range(TRIES):
        text = grammar.sentence(generator)
        if held_out(text, share, seed) == held:
            return text
    raise ValueError(f"{TRIES:,} random sentences brought none of the wanted ones: move data.options.held_out ({share}) away from 0 and 1")


def words_of(grammars: Iterable[Grammar], count: int, generator: np.random.Generator) -> list[str]:
    """`count` texts of words of these grammars that follow each other at random."""
    words = np.array(sorted(set().union(*(grammar.vocabulary() for grammar in grammars))))
    return [" ".join(generator.choice(words, int(generator.integers(WORDS[0], WORDS[1] + 1)))) for _ in range(count)]


def shuffled_words(words: tuple[str, ...], count: int, generator: np.random.Generator) -> list[str]:
    """`count` isolated words, every word equally often (to within one), in random order."""
    order = [word for _ in range(-(-count // len(words))) for word in generator.permutation(words).tolist()]
    return order[:count]


def skewed_words(words: tuple[str, ...], count: int, alpha: float, generator: np.random.Generator) -> list[str]:
    """`count` isolated words, each drawn by shares that Dirichlet(`alpha`) gives the words: the smaller, the more skewed."""
    shares = generator.dirichlet(np.full(len(words), alpha))
    return generator.choice(words, count, p=shares).tolist()
