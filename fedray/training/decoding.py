"""From CTC log-probabilities to text: greedy, prefix beam search with a language model, and word sequences of a lexicon.

The beam search is the prefix search of Graves (2012), as in Hannun et al. (2014, "First-pass large vocabulary continuous speech
recognition using bi-directional recurrent DNNs"): a hypothesis is a prefix of the text, and all alignments of it are summed.
The score that is maximised is

    log p_ctc(tokens | x) + lm_weight log p_lm(tokens, end) + token_bonus |tokens|
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from speechbrain.dataio.dataio import length_to_mask
from torch import Tensor

from fedray.models.language_model import LanguageModel

BLANK = 0
WIDENINGS = 3  # times the beam is doubled when no hypothesis of a lexicon search has ended in a word


@dataclass(frozen=True)
class DecodeSettings:
    search: str = "ctc"  # greedy | ctc | lexicon | attention
    beam: int = 8
    lm_weight: float = 0.5
    token_bonus: float = 0.5  # natural log units a token; without a language model it is not applied
    prune: float = 7.0  # tokens further than this below the best of their frame (natural log) start no new hypothesis
    lexicon: tuple[str, ...] | None = None
    min_words: int = 1
    max_words: int = 100
    ctc_weight: float = 0.4  # attention search: share of CTC in the joint score
    max_tokens_per_frame: float = 1.0  # attention search: longest text, in tokens an encoder frame

    def __post_init__(self) -> None:
        if self.search not in ("greedy", "ctc", "lexicon", "attention"):
            raise ValueError(f"decode.search={self.search!r} is unknown: choose greedy, ctc, lexicon or attention")
        if self.beam < 1 or self.prune <= 0:
            raise ValueError(f"decode.beam={self.beam} must be at least 1 and decode.prune={self.prune} above 0")
        if self.search == "lexicon" and not self.lexicon:
            raise ValueError("decode.search=lexicon needs decode.lexicon, the list of words")
        if not 1 <= self.min_words <= self.max_words:
            raise ValueError(f"decode.min_words={self.min_words} must be at least 1 and at most decode.max_words={self.max_words}")


@dataclass(frozen=True)
class Hypothesis:
    """`score` is what the search maximised; `confidence` the natural log-probability of the tokens alone (no language model), a frame."""

    tokens: tuple[int, ...]
    text: str
    score: float
    confidence: float


def greedy(log_probs: Tensor, lengths: Tensor) -> list[list[int]]:
    """The best token of each frame [B, T, V], repetitions merged and blanks removed."""
    return collapsed(log_probs.argmax(-1), lengths)


def collapsed(best: Tensor, lengths: Tensor) -> list[list[int]]:
    """Tokens of frames [B, T], repetitions merged and blanks removed."""
    keep = best != BLANK
    keep[:, 1:] &= best[:, 1:] != best[:, :-1]
    keep &= inside(best, lengths)
    return [row[kept].tolist() for row, kept in zip(best.cpu(), keep.cpu(), strict=True)]


def inside(frames: Tensor, lengths: Tensor) -> Tensor:
    """Which of the frames [B, T, ...] are an utterance's own: [B, T]."""
    mask: Tensor = length_to_mask(lengths.to(frames.device), frames.shape[1], torch.bool)
    return mask


class Search(ABC):
    """Texts for encoded utterances. `decode` turns token ids into text."""

    reads: ClassVar[str] = "frames"  # of the encoder, by CTC | states: the decoder's

    def __init__(self, settings: DecodeSettings, decode: Callable[[Sequence[int]], str]) -> None:
        self.settings, self.decode = settings, decode

    @abstractmethod
    def transcribe(self, model: Any, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """From the hidden states [B, T, D] and lengths [B] that `model.encode` gave."""


class GreedySearch(Search):
    def transcribe(self, model: Any, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        return self(model.ctc(hidden), lengths)

    def __call__(self, log_probs: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """Here the confidence is that of the best alignment."""
        scores = (log_probs.amax(-1).double() * inside(log_probs, lengths)).sum(1).tolist()
        rows = zip(greedy(log_probs, lengths), scores, lengths.tolist(), strict=True)
        return [Hypothesis(tuple(tokens), self.decode(tokens), score, score / frames) for tokens, score, frames in rows]


class BeamSearch(Search):
    """CTC prefix beam search, with a language model if one is given."""

    def __init__(
        self, settings: DecodeSettings, decode: Callable[[Sequence[int]], str], language_model: LanguageModel | None = None
    ) -> None:
        super().__init__(settings, decode)
        self.language_model = language_model
        self.lexicon: Lexicon | None = None

    def transcribe(self, model: Any, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        return self(model.ctc(hidden), lengths)

    def __call__(self, log_probs: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """Log-probabilities [B, T, V] with lengths [B]; one best hypothesis each."""
        rows = log_probs.detach().to("cpu", torch.float64).numpy()
        return [self.search(row[:frames]) for row, frames in zip(rows, lengths.tolist(), strict=True)]

    def search(self, log_probs: np.ndarray) -> Hypothesis:
        """One utterance [T, V]. Without any hypothesis (a lexicon that does not fit) the text is empty and its score -inf."""
        for widening in range(WIDENINGS + 1):
            prefixes = _Prefixes(self.settings, self.language_model, self.lexicon)
            ends = sorted(prefixes.run(log_probs, self.settings.beam << widening), key=lambda end: (-end[0], end[2]))
            if ends:
                score, acoustic, prefix = ends[0]
                tokens = prefixes.tokens(prefix)
                return Hypothesis(tokens, self.decode(tokens), score, acoustic / max(1, len(log_probs)))
        return Hypothesis((), "", -math.inf, -math.inf)


class LexiconSearch(BeamSearch):
    """Sequences of min_words to max_words words of `settings.lexicon`, and nothing else; `encode` turns text into token ids."""

    def __init__(
        self,
        settings: DecodeSettings,
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        language_model: LanguageModel | None = None,
    ) -> None:
        super().__init__(settings, decode, language_model)
        self.lexicon = Lexicon(settings.lexicon or (), encode, settings.min_words, settings.max_words)


class Lexicon:
    """Which tokens may follow. A state is the set of places (node of the trie, number of words begun) that the tokens so far lead to."""

    State = tuple[tuple[int, int], ...]

    def __init__(self, words: Sequence[str], encode: Callable[[str], Sequence[int]], min_words: int, max_words: int) -> None:
        if not words:
            raise ValueError("a lexicon search needs words: set decode.lexicon")
        self.counts = range(min_words, max_words + 1)
        self.children: list[dict[int, int]] = [{}, {}]  # node 0 begins the first word, node 1 every other
        self.ends: set[int] = set()
        before = list(encode(words[0]))
        for word in words:
            # With characters a later word begins with a space, with sub-words its first piece tells: ask the tokeniser.
            for root, spelling in ((0, encode(word)), (1, encode(f"{words[0]} {word}")[len(before) :])):
                node = root
                for token in spelling:
                    if token not in self.children[node]:
                        self.children[node][token] = len(self.children)
                        self.children.append({})
                    node = self.children[node][token]
                self.ends.add(node)
        self._next: dict[Lexicon.State, dict[int, Lexicon.State]] = {}

    def start(self) -> State:
        return ((0, 1),)

    def accepts(self, state: State) -> bool:
        return any(node in self.ends and count in self.counts for node, count in state)

    def next(self, state: State) -> dict[int, State]:
        """The tokens that may follow, each with its state."""
        found = self._next.get(state)
        if found is None:
            places: dict[int, set[tuple[int, int]]] = {}
            for node, count in state:
                for token, child in self.children[node].items():
                    places.setdefault(token, set()).add((child, count))
                if node in self.ends and count < self.counts[-1]:
                    for token, child in self.children[1].items():
                        places.setdefault(token, set()).add((child, count + 1))
            found = {token: tuple(sorted(reached)) for token, reached in sorted(places.items())}
            self._next[state] = found
        return found


class _Prefixes:
    """The tree of prefixes of one search; prefix 0 is the empty one. What models say of a prefix is asked when it first has to grow."""

    def __init__(self, settings: DecodeSettings, language_model: LanguageModel | None, lexicon: Lexicon | None) -> None:
        self.settings, self.language_model, self.lexicon = settings, language_model, lexicon
        self.parent, self.last, self.fused = [-1], [BLANK], [0.0]
        self.children: list[dict[int, int]] = [{}]
        self.language: list[Hashable] = [language_model.start() if language_model else None]
        self.place: list[Any] = [lexicon.start() if lexicon else None]

    def child(self, prefix: int, token: int) -> int:
        known = self.children[prefix].get(token)
        if known is not None:
            return known
        fused = self.fused[prefix]
        if self.language_model:
            row = self.language_model.log_probs(self._language(prefix))
            fused += self.settings.lm_weight * float(row[token]) + self.settings.token_bonus
        child = self.children[prefix][token] = len(self.parent)
        self.parent.append(prefix)
        self.last.append(token)
        self.fused.append(fused)
        self.children.append({})
        self.language.append(None)
        self.place.append(self.lexicon.next(self.place[prefix])[token] if self.lexicon else None)
        return child

    def _language(self, prefix: int) -> Hashable:
        if self.language[prefix] is None:
            self.language[prefix] = self.language_model.step(self._language(self.parent[prefix]), self.last[prefix])
        return self.language[prefix]

    def tokens(self, prefix: int) -> tuple[int, ...]:
        path = []
        while prefix:
            path.append(self.last[prefix])
            prefix = self.parent[prefix]
        return tuple(reversed(path))

    def run(self, log_probs: np.ndarray, beam: int) -> Iterator[tuple[float, float, int]]:
        """(score, acoustic log-probability, prefix) of every prefix in the last beam that may end there.

        Probabilities are plain float64 numbers relative to `scale` (natural log), which is cheaper than adding in the log domain.
        """
        floor = log_probs.max(1, initial=-math.inf, keepdims=True) - self.settings.prune
        hopeful = [np.flatnonzero(row).tolist() for row in (log_probs >= floor)]
        live = {0: (1.0, 0.0)}  # prefix -> probability of its alignments that end in a blank, and in its last token
        scale = 0.0
        for probabilities, candidates in zip(np.exp(log_probs).tolist(), hopeful, strict=True):
            grown: dict[int, list[float]] = {}
            for prefix, (ending_blank, ending_token) in live.items():
                whole, last = ending_blank + ending_token, self.last[prefix]
                stay = grown.setdefault(prefix, [0.0, 0.0])
                stay[0] += whole * probabilities[BLANK]
                if prefix:
                    stay[1] += ending_token * probabilities[last]
                for token in self.lexicon.next(self.place[prefix]) if self.lexicon else candidates:
                    before = ending_blank if token == last else whole
                    if token != BLANK and before > 0.0:
                        grown.setdefault(self.child(prefix, token), [0.0, 0.0])[1] += before * probabilities[token]
            ranked = [(math.log(sum(pair)) + self.fused[prefix], -prefix) for prefix, pair in grown.items() if sum(pair) > 0.0]
            ranked = sorted(ranked, reverse=True)[:beam]
            if not ranked:
                return
            largest = max(sum(grown[-negative]) for _, negative in ranked)
            scale += math.log(largest)
            live = {-negative: (grown[-negative][0] / largest, grown[-negative][1] / largest) for _, negative in ranked}
        for prefix, pair in live.items():
            if self.lexicon and not self.lexicon.accepts(self.place[prefix]):
                continue
            acoustic = scale + math.log(sum(pair))
            ending = self.settings.lm_weight * self.language_model.end(self._language(prefix)) if self.language_model else 0.0
            yield acoustic + self.fused[prefix] + ending, acoustic, prefix
