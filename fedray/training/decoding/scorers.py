"""What a search adds to the decoder's score of a next token: CTC's and a language model's, and tokens ruled out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

import torch
from speechbrain.decoders.ctc import CTCPrefixScore
from torch import Tensor
from torch.nn.functional import pad

from fedray.models.language_model import LanguageModel
from fedray.training.decoding.search import BLANK

NEVER = -1e20  # SpeechBrain's minus infinity, which stays finite after weights and sums


class Scorer(ABC):
    """Scores the next tokens of hypotheses, which are rows as in `fedray.models.steps`."""

    @abstractmethod
    def __call__(self, last: Tensor) -> Tensor:
        """Log-probabilities [rows, tokens] of each next token after the last ones [rows], of which the first is bos."""

    @abstractmethod
    def follow(self, rows: Tensor, tokens: Tensor) -> None:
        """Each row continues the hypothesis of the row given for it, [rows], by a token [rows]."""

    @abstractmethod
    def keep(self, utterances: Tensor, rows: Tensor) -> None:
        """Continue with these utterances and their rows."""


class Suppressed(Scorer):
    """Rules tokens out, as transformers' `generate` does by a checkpoint's `suppress_tokens`."""

    def __init__(self, first: Sequence[int], always: Sequence[int], tokens: int, device: torch.device) -> None:
        """`first`: the tokens that begin no text. `always`: those that no text has. `tokens`: of the decoder."""
        self._later = torch.zeros(1, tokens, device=device)
        self._later[:, list(always)] = -math.inf
        self._next = self._later.clone()
        self._next[:, list(first)] = -math.inf

    def __call__(self, last: Tensor) -> Tensor:
        scores, self._next = self._next, self._later
        return scores

    def follow(self, rows: Tensor, tokens: Tensor) -> None:
        """The same tokens are ruled out in all rows."""

    def keep(self, utterances: Tensor, rows: Tensor) -> None:
        """The same tokens are ruled out in all rows."""


class CTC(Scorer):
    """SpeechBrain's CTC prefix score (Watanabe et al., 2017, algorithm 2)."""

    def __init__(self, log_probs: Tensor, lengths: Tensor, tokens: int, eos: int) -> None:
        """`log_probs` [B, T, V]: CTC's. `tokens`: of the decoder, which may have others than CTC, such as `eos`."""
        padded = pad(log_probs, (0, tokens - log_probs.shape[-1]), value=NEVER)
        self._prefixes = CTCPrefixScore(padded, lengths, BLANK, eos)
        self._state: tuple[Tensor, ...] | None = None

    def __call__(self, last: Tensor) -> Tensor:
        scores: Tensor
        scores, self._state = self._prefixes.forward_step(last, self._state)
        return scores

    def follow(self, rows: Tensor, tokens: Tensor) -> None:
        beam, size = len(rows) // self._prefixes.batch_size, self._prefixes.vocab_size
        candidates = (rows % beam * size + tokens).view(-1, beam)
        self._state = self._prefixes.permute_mem(self._state, candidates)

    def keep(self, utterances: Tensor, rows: Tensor) -> None:
        prefixes = self._prefixes
        prefixes.batch_size, prefixes.batch_index = len(utterances), prefixes.batch_index[: len(utterances)]
        prefixes.x, prefixes.last_frame_index = prefixes.x[:, :, utterances], prefixes.last_frame_index[utterances]
        assert self._state is not None
        self._state = self._state[0][..., rows], self._state[1][rows]


class Fused(Scorer):
    """A `LanguageModel`, with one state for each hypothesis."""

    def __init__(self, language_model: LanguageModel, rows: int, tokens: int, bos: int, eos: int) -> None:
        """`tokens`: of the decoder."""
        self._model, self._size, self._bos, self._eos = language_model, tokens, bos, eos
        self._states: list[Hashable] = [language_model.start()] * rows

    def __call__(self, last: Tensor) -> Tensor:
        model, states = self._model, self._states
        rows = torch.stack([torch.from_numpy(model.log_probs(state)) for state in states]).float()
        scores = rows.new_full((len(states), self._size), NEVER)
        scores[:, BLANK + 1 : rows.shape[1]] = rows[:, BLANK + 1 :]
        scores[:, self._bos] = NEVER
        scores[:, self._eos] = torch.tensor([model.end(state) for state in states])
        return scores.to(last.device)

    def follow(self, rows: Tensor, tokens: Tensor) -> None:
        # A hypothesis that has ended keeps its state: the search ignores tokens after the end.
        pairs = zip([self._states[row] for row in rows.tolist()], tokens.tolist(), strict=True)
        self._states = [state if token == self._eos else self._model.step(state, token) for state, token in pairs]

    def keep(self, utterances: Tensor, rows: Tensor) -> None:
        self._states = [self._states[row] for row in rows.tolist()]
