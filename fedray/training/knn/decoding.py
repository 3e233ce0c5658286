"""Decoding with a memory: the fusion of the model's distribution with the memory's at every frame or step.

Du et al. (ICASSP 2024), section 2.2.2. `memory.keys: frames` fuses CTC's distribution of each encoder frame, `states`
the decoder's distribution of each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedray.core.types import Evaluation, Received
from fedray.data.features.dataset import Utterances
from fedray.models.memory import Memory, fused, p_mem
from fedray.training.decoding.search import GreedySearch, Hypothesis, Search, inside
from fedray.training.recognisers import Recogniser
from fedray.training.speech_to_text import SpeechToText

ROUNDING = 1e-6  # the error of float32 probabilities
# The lowest log-probability of a decoder: SpeechBrain's beam search fails on infinities.
LEAST = math.log(torch.finfo(torch.float32).tiny)


@dataclass(frozen=True)
class Retrieval:
    """The options of a look-up."""

    k: int
    share: float  # lambda, the memory's share of the distribution
    temperature: float

    @property
    def lead(self) -> float:
        """The lead of the best token over the second one beyond which no memory changes it.

        From (1 - lambda) lead > lambda.
        """
        return self.share / (1 - self.share) + ROUNDING if self.share < 1 else math.inf

    def __str__(self) -> str:
        return f"k={self.k} lambda={self.share:g} T={self.temperature:g}"


class SearchWithMemory(Search):
    """A search on the fused distribution."""

    def __init__(self, search: Search, memory: Memory, retrieval: Retrieval) -> None:
        self.inner, self.memory, self.retrieval = search, memory, retrieval

    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        if self.retrieval.share == 0:
            return self.inner.transcribe(model, hidden, lengths)
        greedy = isinstance(self.inner, GreedySearch)
        fused_model = ModelWithMemory(model, self.memory, self.retrieval, lengths, greedy)
        return self.inner.transcribe(cast(Recogniser, fused_model), hidden, lengths)


class ModelWithMemory:
    """A model with the fused distribution: CTC's of each frame, or the decoder's of each step.

    All other attributes are the model's. Padding is not looked up, and frames without a look-up keep the model's
    distribution.
    """

    def __init__(
        self, model: Recogniser, memory: Memory, retrieval: Retrieval, lengths: Tensor, greedy: bool = False
    ) -> None:
        """`lengths` [B]: frames of each utterance.

        `greedy`: the caller reads only the best token of each frame, so a frame whose best token no memory can change
        needs no look-up.
        """
        self._model, self._memory, self._retrieval = model, memory, retrieval
        self._lengths, self._greedy = lengths, greedy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def ctc(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [B, T, V], mixed with the memory's at frames that a memory can change."""
        log_probs = self._model.ctc(hidden)
        if self._memory.settings.keys != "frames":
            return log_probs
        looked_up = inside(hidden, self._lengths)
        if self._greedy:
            best, second = log_probs.topk(2).values.exp().unbind(-1)
            looked_up &= best - second <= self._retrieval.lead
        if looked_up.any():
            log_probs[looked_up] = self._fused(log_probs[looked_up], hidden[looked_up])
        return log_probs

    @property
    def attention_head(self) -> nn.Module:
        head = self._model.attention_head
        return HeadWithMemory(head, self._fused) if self._memory.settings.keys == "states" else head

    def _fused(self, log_probs: Tensor, states: Tensor) -> Tensor:
        k, share, temperature = self._retrieval.k, self._retrieval.share, self._retrieval.temperature
        distances, tokens = self._memory.search(states.flatten(0, -2).cpu().numpy(), k)
        of_memory = p_mem(torch.from_numpy(distances), torch.from_numpy(tokens), temperature, log_probs.shape[-1])
        return fused(log_probs, of_memory.view_as(log_probs).to(log_probs.device), share)


class HeadWithMemory(nn.Module):
    """The decoder's linear layer with the memory, for SpeechBrain's searchers: outputs normalised log-probabilities."""

    def __init__(self, head: nn.Module, fuse: Callable[[Tensor, Tensor], Tensor]) -> None:
        """`fuse`: (log-probabilities, states) -> the fused log-probabilities."""
        super().__init__()
        self.w, self._head, self._fuse = head.w, head, fuse

    def forward(self, states: Tensor) -> Tensor:
        """The fused log-probabilities of states [B, D], or of the last step of states [B, L, D]."""
        last = states[:, -1:] if states.ndim == 3 else states
        return self._fuse(self._head(last).log_softmax(-1), last).clamp(min=LEAST)


def search_scores(
    task: SpeechToText, received: Received, data: Utterances, searches: Mapping[str, Search], final: bool
) -> Evaluation:
    """The task's score of each search, by its name, from one encoder pass; NaN without utterances.

    `final`: with a row for each utterance.
    """
    texts = task.found(received.params, data, searches, received.device)
    rows = task.rows(data, texts) if final else []
    return Evaluation(task.scores(task.texts(data), texts), rows)
