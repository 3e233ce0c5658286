"""Language models over token ids, for the beam searches of `fedray.training`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

Probabilities = npt.NDArray[np.float64]  # [V], or p and log p [2, V]
Level = dict[str, npt.NDArray[np.integer]]

# The id of the CTC blank, which no text contains. It marks the start of a sequence in contexts, and its end in
# predictions.
BOUNDARY = 0
CACHE_BYTES = 32 << 20


class LanguageModel(Protocol):
    """What a beam search needs of a language model.

    The state of a neural model may be the history, from which the model looks up its tensors.
    """

    def start(self) -> Hashable:
        """The state before the first token."""

    def step(self, state: Any, token: int) -> Hashable:
        """The state after a further token."""

    def log_probs(self, state: Any) -> Probabilities:
        """Natural log-probabilities [V] of the next token; index 0, the blank, is not read."""

    def end(self, state: Any) -> float:
        """Natural log-probability that the sequence ends here."""


@dataclass(frozen=True)
class NGramSettings:
    """The section `task.language_model` for kind `ngram`."""

    order: int = 6  # tokens, including the predicted one


class NGram:
    """Interpolated Witten-Bell n-grams (Witten and Bell, 1991; Chen and Goodman, 1998, section 2.6).

        p(w | h) = (c(h, w) + n(h) p(w | h')) / (c(h) + n(h))

    c counts, n(h) is the number of different tokens after h, and h' is h without its first token. The empty context
    is interpolated with the uniform distribution. Witten-Bell discards no counts, and so suits characters: their
    n-grams are frequent, and Kneser-Ney would have no rare ones to estimate its discounts from.

    A level holds the contexts of one length: `contexts` sorted int64 (the tokens as digits in base V), and for context
    i the followers `tokens[starts[i]:starts[i + 1]]` with their `counts`.
    """

    Settings: ClassVar[type] = NGramSettings

    def __init__(self, vocabulary: int, levels: list[Level]) -> None:
        self.vocabulary = vocabulary
        self.levels = levels
        self._cache: OrderedDict[tuple[int, ...], Probabilities] = OrderedDict()
        self._rows = max(256, CACHE_BYTES // (16 * vocabulary))  # a row holds p and log p

    @classmethod
    def train(cls, sequences: Iterable[Sequence[int]], order: int = 6, *, vocabulary: int) -> NGram:
        """Count the n-grams in sequences of token ids 1..vocabulary-1.

        ValueError without sequences, for an id out of range, or for too high an order.
        """
        if order < 1 or vocabulary**order >= 2**63:
            what = f"an n-gram of order {order} over {vocabulary} tokens"
            raise ValueError(f"{what} is not supported: lower task.language_model.order (at least 1)")
        padded = [np.array([BOUNDARY, *sequence, BOUNDARY], dtype=np.int64) for sequence in sequences]
        if not padded:
            raise ValueError("a language model needs at least one sequence of tokens")
        stream = np.concatenate(padded)
        position = np.concatenate([np.arange(len(sequence)) for sequence in padded])
        inner = np.concatenate([sequence[1:-1] for sequence in padded])
        if len(inner) and not (inner.min() > BOUNDARY and inner.max() < vocabulary):
            raise ValueError(f"token ids must be 1..{vocabulary - 1}, found {inner.min()}..{inner.max()}")
        levels = []
        for length in range(order):
            at = np.flatnonzero(position >= max(length, 1))
            context = np.zeros(len(at), dtype=np.int64)
            for back in range(length, 0, -1):
                context = context * vocabulary + stream[at - back]
            pairs, counts = np.unique(context * vocabulary + stream[at], return_counts=True)
            contexts, starts = np.unique(pairs // vocabulary, return_index=True)
            levels.append(
                {
                    "contexts": contexts,
                    "starts": np.append(starts, len(pairs)).astype(np.int32),
                    "tokens": (pairs % vocabulary).astype(np.int32),
                    "counts": counts.astype(np.int32),
                }
            )
        return cls(vocabulary, levels)

    @property
    def order(self) -> int:
        """Tokens of the longest n-gram."""
        return len(self.levels)

    @property
    def nbytes(self) -> int:
        """Bytes of all counts."""
        return sum(array.nbytes for level in self.levels for array in level.values())

    def start(self) -> tuple[int, ...]:
        """The context before the first token."""
        return self._suffix((BOUNDARY,))

    def step(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The context after a further token."""
        return self._suffix((*state, token))

    def log_probs(self, state: tuple[int, ...]) -> Probabilities:
        """Natural log-probabilities [V] of the next token; index 0 is the end of the sequence."""
        found: Probabilities = self._cached(state)[1]
        return found

    def end(self, state: tuple[int, ...]) -> float:
        """Natural log-probability that the sequence ends here."""
        return float(self.log_probs(state)[BOUNDARY])

    def _suffix(self, history: tuple[int, ...]) -> tuple[int, ...]:
        return history[max(0, len(history) - self.order + 1) :]

    def _cached(self, state: tuple[int, ...]) -> Probabilities:
        """p and log p, [2, V], from a cache that drops the least recently used context."""
        row = self._cache.get(state)
        if row is None:
            shorter = self._cached(state[1:])[0] if state else np.full(self.vocabulary, 1 / self.vocabulary)
            row = self._interpolate(state, shorter)
            self._cache[state] = row
            if len(self._cache) > self._rows:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(state)
        return row

    def _interpolate(self, state: tuple[int, ...], shorter: Probabilities) -> Probabilities:
        """p and log p, [2, V]. `shorter`: p after the context without its first token."""
        level = self.levels[len(state)]
        key = 0
        for token in state:
            key = key * self.vocabulary + token
        at = int(level["contexts"].searchsorted(key))
        if at == len(level["contexts"]) or level["contexts"][at] != key:
            return np.stack([shorter, np.log(shorter)])
        followers = slice(level["starts"][at], level["starts"][at + 1])
        counts = level["counts"][followers]
        probabilities = shorter * len(counts)
        probabilities[level["tokens"][followers]] += counts
        probabilities /= counts.sum() + len(counts)
        return np.stack([probabilities, np.log(probabilities)])

    def __getstate__(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary, "levels": self.levels}  # without the cache

    def __setstate__(self, state: dict[str, Any]) -> None:
        NGram.__init__(self, state["vocabulary"], state["levels"])


LANGUAGE_MODELS: dict[str, type[NGram]] = {"ngram": NGram}
