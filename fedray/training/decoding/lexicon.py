"""The tokens that may continue a sequence of words from a lexicon."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# The places that the tokens so far lead to: (node of the trie, number of words begun).
LexiconState = tuple[tuple[int, int], ...]


class Lexicon:
    """A trie of the spellings of words, for sequences of `min_words` to `max_words` words."""

    def __init__(
        self, words: Sequence[str], encode: Callable[[str], Sequence[int]], min_words: int, max_words: int
    ) -> None:
        """`encode`: text -> token ids. ValueError without words."""
        if not words:
            raise ValueError("a lexicon search needs words: set decode.lexicon")
        self.counts = range(min_words, max_words + 1)
        self.children: list[dict[int, int]] = [{}, {}]  # node 0 begins the first word, node 1 every other word
        self.ends: set[int] = set()
        before = list(encode(words[0]))
        for word in words:
            # The tokeniser marks the start of a later word: characters with a space, sub-words within the first piece.
            for root, spelling in ((0, encode(word)), (1, encode(f"{words[0]} {word}")[len(before) :])):
                node = root
                for token in spelling:
                    if token not in self.children[node]:
                        self.children[node][token] = len(self.children)
                        self.children.append({})
                    node = self.children[node][token]
                self.ends.add(node)
        self._next: dict[LexiconState, dict[int, LexiconState]] = {}

    def start(self) -> LexiconState:
        """The state before the first token."""
        return ((0, 1),)

    def accepts(self, state: LexiconState) -> bool:
        """Whether a text may end here: after a whole word, with an allowed number of words."""
        return any(node in self.ends and count in self.counts for node, count in state)

    def next(self, state: LexiconState) -> dict[int, LexiconState]:
        """The tokens that may follow, each with the state after it."""
        following = self._next.get(state)
        if following is None:
            places: dict[int, set[tuple[int, int]]] = {}
            for node, count in state:
                for token, child in self.children[node].items():
                    places.setdefault(token, set()).add((child, count))
                if node in self.ends and count < self.counts[-1]:
                    for token, child in self.children[1].items():
                        places.setdefault(token, set()).add((child, count + 1))
            following = {token: tuple(sorted(reached)) for token, reached in sorted(places.items())}
            self._next[state] = following
        return following
