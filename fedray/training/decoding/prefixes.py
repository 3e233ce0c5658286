"""The prefixes of a beam search, which grow frame by frame."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

import numpy as np
import numpy.typing as npt

from fedray.models.kernels import switched_on
from fedray.models.kernels.prefixes import BLANK, COLUMNS, LAST, PARENT, grow, in_python
from fedray.models.language_model import LanguageModel
from fedray.training.decoding.lexicon import Lexicon, LexiconState
from fedray.training.decoding.search import DecodeSettings

LogProbs = npt.NDArray[np.float64]  # [T, V], of one utterance
Row = npt.NDArray[np.float64]  # [V]


class PrefixTree:
    """The prefixes of one search, numbered; prefix 0 is the empty one.

    The states of the language model and of the lexicon are computed only for prefixes that grow.
    """

    def __init__(self, settings: DecodeSettings, language_model: LanguageModel | None, lexicon: Lexicon | None) -> None:
        self.settings, self.language_model, self.lexicon = settings, language_model, lexicon
        # The first `size` rows: links as in `kernels/prefixes.py`, and the language model's part of the scores.
        self.links, self.fused, self.size = np.full((1, COLUMNS), -1, np.int32), np.zeros(1), 1
        self.links[0, LAST] = BLANK
        self.language_states: dict[int, Hashable] = {0: language_model.start()} if language_model else {}
        self.lexicon_states: dict[int, LexiconState] = {0: lexicon.start()} if lexicon else {}

    def tokens(self, prefix: int) -> tuple[int, ...]:
        """The tokens of a prefix, in order."""
        path = []
        while prefix:
            path.append(int(self.links[prefix, LAST]))
            prefix = int(self.links[prefix, PARENT])
        return tuple(reversed(path))

    def run(self, log_probs: LogProbs, beam: int) -> Iterator[tuple[float, float, int]]:
        """Yield (score, acoustic log-probability, prefix) for each prefix of the last beam that may end there.

        Probabilities are float64 numbers relative to `scale` (natural log): sums in the log domain would cost more.
        """
        vocabulary = log_probs.shape[1]
        likely = log_probs >= log_probs.max(1, initial=-math.inf, keepdims=True) - self.settings.prune
        live, masses = np.zeros(1, np.int32), np.array([[1.0, 0.0]])
        nothing, gains = np.zeros(vocabulary), dict[int, Row]()
        scale, grown = 0.0, grow if switched_on() else in_python()
        for probabilities, tokens in zip(np.exp(log_probs), likely, strict=True):
            prefixes = live.tolist()
            allowed = [self._continuing(prefix, vocabulary) for prefix in prefixes] if self.lexicon else [tokens]
            if self.language_model and any(row[1:].any() for row in allowed):
                gains = {prefix: self._gains(prefix) if prefix not in gains else gains[prefix] for prefix in prefixes}
                rows = list(gains.values())
            else:
                rows = [nothing]
            self._make_room(len(live) * vocabulary)
            self.size, live, masses, largest = grown(
                probabilities, np.stack(allowed), np.stack(rows), beam, self.links, self.fused, self.size, live, masses
            )
            if not len(live):
                return
            scale += math.log(largest)
        for prefix, pair in zip(live.tolist(), masses.tolist(), strict=True):
            if self.lexicon and not self.lexicon.accepts(self._lexicon_state(prefix)):
                continue
            acoustic = scale + math.log(sum(pair))
            ending = 0.0
            if self.language_model:
                ending = self.settings.lm_weight * self.language_model.end(self._language_state(prefix))
            yield acoustic + float(self.fused[prefix]) + ending, acoustic, prefix

    def _make_room(self, count: int) -> None:
        """Make room for `count` more prefixes."""
        if self.size + count > len(self.fused):
            more = self.size + count
            self.links = np.concatenate([self.links, np.empty((more, COLUMNS), np.int32)])
            self.fused = np.concatenate([self.fused, np.empty(more)])

    def _gains(self, prefix: int) -> Row:
        """The score that each token after a prefix adds, [V]."""
        assert self.language_model is not None
        row = np.asarray(self.language_model.log_probs(self._language_state(prefix)), np.float64)
        return self.settings.lm_weight * row + self.settings.token_bonus

    def _language_state(self, prefix: int) -> Hashable:
        if prefix not in self.language_states:
            assert self.language_model is not None
            before, last = self._language_state(int(self.links[prefix, PARENT])), int(self.links[prefix, LAST])
            self.language_states[prefix] = self.language_model.step(before, last)
        return self.language_states[prefix]

    def _continuing(self, prefix: int, vocabulary: int) -> npt.NDArray[np.bool_]:
        """Which tokens the lexicon allows after a prefix, bool [V]."""
        assert self.lexicon is not None
        row = np.zeros(vocabulary, np.bool_)
        row[list(self.lexicon.next(self._lexicon_state(prefix)))] = True
        return row

    def _lexicon_state(self, prefix: int) -> LexiconState:
        if prefix not in self.lexicon_states:
            assert self.lexicon is not None
            before, last = self._lexicon_state(int(self.links[prefix, PARENT])), int(self.links[prefix, LAST])
            self.lexicon_states[prefix] = self.lexicon.next(before)[last]
        return self.lexicon_states[prefix]
