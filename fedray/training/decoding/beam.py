"""CTC prefix beam search with a language model, free or over the word sequences of a lexicon.

The prefix search of Graves (2012), as in Hannun et al. (2014, "First-pass large vocabulary continuous speech
recognition using bi-directional recurrent DNNs"): a hypothesis is a prefix of the text, and the search sums over its
alignments. The search maximises

    log p_ctc(tokens | x) + lm_weight log p_lm(tokens, end) + token_bonus |tokens|
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedray.models.language_model import LanguageModel
from fedray.training.decoding.lexicon import Lexicon, LexiconState
from fedray.training.decoding.search import BLANK, DecodeSettings, Hypothesis, Search
from fedray.training.recognisers import Recogniser

WIDENINGS = 3  # how often the beam doubles while no hypothesis of a lexicon search ends in a word
LogProbs = npt.NDArray[np.float64]  # [T, V], of one utterance


class BeamSearch(Search):
    """CTC prefix beam search, with a language model if there is one."""

    def __init__(
        self,
        settings: DecodeSettings,
        decode: Callable[[Sequence[int]], str],
        language_model: LanguageModel | None = None,
    ) -> None:
        super().__init__(settings, decode)
        self.language_model = language_model
        self.lexicon: Lexicon | None = None

    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        return self(model.ctc(hidden), lengths)

    def __call__(self, log_probs: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """The best hypothesis of each utterance, from log-probabilities [B, T, V] and lengths [B]."""
        rows = log_probs.detach().to("cpu", torch.float64).numpy()
        return [self.search(row[:frames]) for row, frames in zip(rows, lengths.tolist(), strict=True)]

    def search(self, log_probs: LogProbs) -> Hypothesis:
        """The best hypothesis of one utterance. Where no text fits the lexicon, an empty one with score -inf."""
        for widening in range(WIDENINGS + 1):
            prefixes = PrefixTree(self.settings, self.language_model, self.lexicon)
            ends = sorted(prefixes.run(log_probs, self.settings.beam << widening), key=lambda end: (-end[0], end[2]))
            if ends:
                score, acoustic, prefix = ends[0]
                tokens = prefixes.tokens(prefix)
                return Hypothesis(tokens, self.decode(tokens), score, acoustic / max(1, len(log_probs)))
        return Hypothesis((), "", -math.inf, -math.inf)


class LexiconSearch(BeamSearch):
    """Beam search over sequences of `min_words` to `max_words` words of `settings.lexicon`."""

    def __init__(
        self,
        settings: DecodeSettings,
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        language_model: LanguageModel | None = None,
    ) -> None:
        """`encode`: text -> token ids."""
        super().__init__(settings, decode, language_model)
        self.lexicon = Lexicon(settings.lexicon or (), encode, settings.min_words, settings.max_words)


class PrefixTree:
    """The prefixes of one search, numbered; prefix 0 is the empty one.

    The states of the language model and of the lexicon are computed for the prefixes that grow.
    """

    def __init__(self, settings: DecodeSettings, language_model: LanguageModel | None, lexicon: Lexicon | None) -> None:
        self.settings, self.language_model, self.lexicon = settings, language_model, lexicon
        self.parent, self.last, self.fused = [-1], [BLANK], [0.0]
        self.children: list[dict[int, int]] = [{}]
        self.language_states: list[Hashable] = [language_model.start() if language_model else None]
        self.lexicon_states: list[LexiconState] = [lexicon.start() if lexicon else ()]

    def child(self, prefix: int, token: int) -> int:
        """The prefix with one more token."""
        known = self.children[prefix].get(token)
        if known is not None:
            return known
        fused = self.fused[prefix]
        if self.language_model:
            row = self.language_model.log_probs(self._language_state(prefix))
            fused += self.settings.lm_weight * float(row[token]) + self.settings.token_bonus
        child = self.children[prefix][token] = len(self.parent)
        self.parent.append(prefix)
        self.last.append(token)
        self.fused.append(fused)
        self.children.append({})
        self.language_states.append(None)
        self.lexicon_states.append(self.lexicon.next(self.lexicon_states[prefix])[token] if self.lexicon else ())
        return child

    def _language_state(self, prefix: int) -> Hashable:
        if self.language_states[prefix] is None:
            assert self.language_model is not None
            before = self._language_state(self.parent[prefix])
            self.language_states[prefix] = self.language_model.step(before, self.last[prefix])
        return self.language_states[prefix]

    def tokens(self, prefix: int) -> tuple[int, ...]:
        """The tokens of a prefix, in order."""
        path = []
        while prefix:
            path.append(self.last[prefix])
            prefix = self.parent[prefix]
        return tuple(reversed(path))

    def run(self, log_probs: LogProbs, beam: int) -> Iterator[tuple[float, float, int]]:
        """Yield (score, acoustic log-probability, prefix) for each prefix of the last beam that may end there.

        Probabilities are float64 numbers relative to `scale` (natural log): sums in the log domain would cost more.
        """
        floor = log_probs.max(1, initial=-math.inf, keepdims=True) - self.settings.prune
        likely = [np.flatnonzero(row).tolist() for row in (log_probs >= floor)]
        live = {0: (1.0, 0.0)}  # prefix -> probability of its alignments that end in a blank, and in its last token
        scale = 0.0
        for probabilities, candidates in zip(np.exp(log_probs).tolist(), likely, strict=True):
            grown: dict[int, list[float]] = {}
            for prefix, (ending_blank, ending_token) in live.items():
                whole, last = ending_blank + ending_token, self.last[prefix]
                stay = grown.setdefault(prefix, [0.0, 0.0])
                stay[0] += whole * probabilities[BLANK]
                if prefix:
                    stay[1] += ending_token * probabilities[last]
                for token in self.lexicon.next(self.lexicon_states[prefix]) if self.lexicon else candidates:
                    before = ending_blank if token == last else whole
                    if token != BLANK and before > 0.0:
                        grown.setdefault(self.child(prefix, token), [0.0, 0.0])[1] += before * probabilities[token]
            scored = ((prefix, sum(pair)) for prefix, pair in grown.items())
            ranked = [(math.log(total) + self.fused[prefix], -prefix) for prefix, total in scored if total > 0.0]
            ranked = sorted(ranked, reverse=True)[:beam]
            if not ranked:
                return
            largest = max(sum(grown[-negative]) for _, negative in ranked)
            scale += math.log(largest)
            live = {-negative: (grown[-negative][0] / largest, grown[-negative][1] / largest) for _, negative in ranked}
        for prefix, pair in live.items():
            if self.lexicon and not self.lexicon.accepts(self.lexicon_states[prefix]):
                continue
            acoustic = scale + math.log(sum(pair))
            ending = 0.0
            if self.language_model:
                ending = self.settings.lm_weight * self.language_model.end(self._language_state(prefix))
            yield acoustic + self.fused[prefix] + ending, acoustic, prefix
