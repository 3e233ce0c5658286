"""CTC prefix beam search with a language model, free or over the word sequences of a lexicon.

The prefix search of Graves (2012), as in Hannun et al. (2014, "First-pass large vocabulary continuous speech
recognition using bi-directional recurrent DNNs"): a hypothesis is a prefix of the text, and the search sums over its
alignments. The search maximises

    log p_ctc(tokens | x) + lm_weight log p_lm(tokens, end) + token_bonus |tokens|
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedray.core.pulse import long_work
from fedray.models.language_model import LanguageModel
from fedray.training.decoding.lexicon import Lexicon
from fedray.training.decoding.search import DecodeSettings, Hypothesis, Search
from fedray.training.recognisers import Recogniser

if TYPE_CHECKING:
    from fedray.training.decoding.prefixes import LogProbs

WIDENINGS = 3  # how often the beam may double while no hypothesis of a lexicon search ends in a word


class BeamSearch(Search):
    """CTC prefix beam search, with a language model if there is one."""

    lexicon: Lexicon | None = None

    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        return self(model.ctc(hidden), lengths)

    def __call__(self, log_probs: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """The best hypothesis of each utterance, from log-probabilities [B, T, V] and lengths [B]."""
        rows = log_probs.detach().to("cpu", torch.float64).numpy()
        found: list[Hypothesis] = []
        with long_work("decoding, utterances", len(rows)) as report:
            for row, frames in zip(rows, lengths.tolist(), strict=True):
                report(len(found))
                found.append(self.search(row[:frames]))
        return found

    def search(self, log_probs: LogProbs) -> Hypothesis:
        """The best hypothesis for one utterance; an empty one with score -inf if no text fits the lexicon."""
        from fedray.training.decoding.prefixes import PrefixTree  # imports numba, which takes half a second

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
