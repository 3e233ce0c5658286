"""What speakers say: sentences of a grammar, and lists of isolated words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedray.core import seeds

SLOT = re.compile(r"\{(\w+)\}")
TRIES = 10_000
WORDS = (4, 8)  # in a text without grammar, both ends included


@dataclass(frozen=True)
class Grammar:
    """Templates with slots: `{room}` becomes one of the phrases `slots["room"]`, which may have slots too."""

    templates: tuple[str, ...]
    slots: Mapping[str, tuple[str, ...]]
    keywords: tuple[str, ...]

    def sentence(self, generator: np.random.Generator) -> str:
        """A random sentence."""
        text = pick(self.templates, generator)
        while SLOT.search(text):
            text = SLOT.sub(lambda slot: pick(self.slots[slot[1]], generator), text, count=1)
        return text

    def count(self) -> int:
        """The number of sentences; a sentence with two derivations counts twice."""

        def ways(phrase: str) -> int:
            total = 1
            for slot in SLOT.findall(phrase):
                total *= sum(map(ways, self.slots[slot]))
            return total

        return sum(map(ways, self.templates))

    def vocabulary(self) -> set[str]:
        """The words of all sentences."""
        phrases = [*self.templates, *(phrase for choices in self.slots.values() for phrase in choices)]
        return {word for phrase in phrases for word in SLOT.sub(" ", phrase).split()}


def pick(choices: tuple[str, ...], generator: np.random.Generator) -> str:
    """A random choice, each with the same probability."""
    return choices[int(generator.integers(len(choices)))]


def held_out(text: str, share: float, seed: int) -> bool:
    """Whether server and clients never say a sentence. Its hash decides, so the size of the corpus does not matter."""
    return seeds.derive(seed, "held out", text) < share * 2**63


def draw(grammar: Grammar, held: bool, share: float, seed: int, generator: np.random.Generator) -> str:
    """A random sentence: held out if `held`, else not held out. Raises ValueError if no draw finds one."""
    for _ in range(TRIES):
        text = grammar.sentence(generator)
        if held_out(text, share, seed) == held:
            return text
    wanted = "held-out" if held else "other"
    raise ValueError(
        f"data.options.held_out: {TRIES:,} random sentences include no {wanted} one: move {share} away from 0 and 1"
    )


def words_of(grammars: Iterable[Grammar], count: int, generator: np.random.Generator) -> list[str]:
    """`count` texts without grammar: words of all grammars in random order."""
    words = np.array(sorted(set().union(*(grammar.vocabulary() for grammar in grammars))))
    lengths = (WORDS[0], WORDS[1] + 1)
    return [" ".join(generator.choice(words, int(generator.integers(*lengths)))) for _ in range(count)]


def shuffled_words(words: tuple[str, ...], count: int, generator: np.random.Generator) -> list[str]:
    """`count` isolated words in random order, each word equally often (to within one)."""
    order = [word for _ in range(-(-count // len(words))) for word in generator.permutation(words).tolist()]
    return order[:count]


def skewed_words(words: tuple[str, ...], count: int, alpha: float, generator: np.random.Generator) -> list[str]:
    """`count` isolated words, with shares drawn from Dirichlet(`alpha`): a smaller alpha makes them more uneven."""
    shares = generator.dirichlet(np.full(len(words), alpha))
    return list(map(str, generator.choice(words, count, p=shares)))
