"""Decoding with a memory: the fusion of the model's distribution with the memory's at every frame or step.

Du et al. (ICASSP 2024), section 2.2.2. `memory.keys: frames` fuses CTC's distribution at each encoder frame, `states`
the decoder's distribution at each step.

Two variants need no training. With a radius rho, squared like the distances,

    R(q)      <- the pairs of R that lie within rho of the query q     # k follows the distances [ours]
    lambda(q) <- lambda max(0, 1 - d_1 / rho), d_1 the nearest one's distance

The second line is the share of Dai et al. (Simple and Scalable Nearest Neighbor Machine Translation, ICLR 2023), who
set lambda = 1. `skip_above` skips the look-up where the model's best token has a higher probability; He et al.
(Efficient Nearest Neighbor Language Models, EMNLP 2021) train a network to decide this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from fedray.core.types import Evaluation, Received
from fedray.data.features.dataset import Utterances
from fedray.models.memory import Memory, fused, p_mem
from fedray.training.decoding.search import GreedySearch, Hypothesis, Search, inside
from fedray.training.recognisers import Recogniser, frame_keys
from fedray.training.speech_to_text import SpeechToText

ROUNDING = 1e-6  # the rounding error of float32 probabilities
# The lowest log-probability of a decoder: a token that the memory rules out is no worse than the others.
LEAST = math.log(torch.finfo(torch.float32).tiny)


@dataclass(frozen=True)
class Retrieval:
    """The options of a look-up."""

    k: int
    share: float  # lambda, the memory's share of the distribution
    temperature: float
    radius: float | None = None  # rho, a squared distance; None: all k neighbours count, with the same lambda
    skip_above: float = 1.0  # the look-up is skipped where the model's best token is more probable than this

    @property
    def lead(self) -> float:
        """The lead over the second-best token beyond which no memory changes the best token.

        It follows from (1 - lambda) lead > lambda.
        """
        return self.share / (1 - self.share) + ROUNDING if self.share < 1 else math.inf

    def near(self, distances: Tensor) -> Tensor:
        """The distances of the k nearest pairs, [..., k], which are infinite beyond the radius."""
        nearest = distances[..., : self.k]
        return nearest if self.radius is None else nearest.masked_fill(nearest > self.radius, math.inf)

    def nearness(self, distances: Tensor) -> Tensor:
        """lambda(q) / lambda, [...], from distances [..., k]; 0 where a search found nothing."""
        nearest = distances[..., 0]
        if self.radius is None:
            return torch.isfinite(nearest).to(nearest.dtype)
        return (1 - nearest / self.radius).clamp(min=0)

    def unsure(self, probability: Tensor) -> Tensor:
        """Whether the memory is looked up, bool [...]. `probability`: of the model's best token, [...]."""
        return (probability <= self.skip_above) | (self.skip_above == 1)

    def __str__(self) -> str:
        text = f"k={self.k} lambda={self.share:g} T={self.temperature:g}"
        return text if self.radius is None else f"{text} rho={self.radius:g}"


class SearchWithMemory(Search):
    """A search over the fused distribution."""

    def __init__(self, search: Search, memory: Memory, retrieval: Retrieval) -> None:
        self.inner, self.memory, self.retrieval = search, memory, retrieval

    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        if self.retrieval.share == 0:
            return self.inner.transcribe(model, hidden, lengths)
        greedy = isinstance(self.inner, GreedySearch)
        fused_model = ModelWithMemory(model, self.memory, self.retrieval, lengths, greedy)
        return self.inner.transcribe(cast(Recogniser, fused_model), hidden, lengths)


class ModelWithMemory:
    """A model with the fused distribution: CTC's at each frame, or the decoder's at each step.

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
            log_probs[looked_up] = self._fused(log_probs[looked_up], frame_keys(self._model, hidden)[looked_up])
        return log_probs

    @property
    def fuse(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """(the decoder's log-probabilities, its states) -> the fused log-probabilities; None: the keys are frames."""
        if self._memory.settings.keys != "states":
            return None
        return lambda log_probs, states: self._fused(log_probs, states).clamp(min=LEAST)

    def _fused(self, log_probs: Tensor, states: Tensor) -> Tensor:
        """Log-probabilities [..., V] of states [..., D], mixed with the memory's where the model is unsure."""
        if self._retrieval.skip_above == 1:
            return self._looked_up(log_probs, states)
        asked = self._retrieval.unsure(log_probs.amax(-1).exp())
        if asked.any():
            log_probs = log_probs.clone()
            log_probs[asked] = self._looked_up(log_probs[asked], states[asked])
        return log_probs

    def _looked_up(self, log_probs: Tensor, states: Tensor) -> Tensor:
        one = self._retrieval
        found = self._memory.search(states.flatten(0, -2).cpu().numpy(), one.k)
        distances, tokens = (torch.from_numpy(part) for part in found)
        near = one.near(distances)
        of_memory = p_mem(near, tokens, one.temperature, log_probs.shape[-1])
        share: float | Tensor = one.share
        if one.radius is not None:
            share = (one.share * one.nearness(near)).view(*log_probs.shape[:-1], 1).to(log_probs.device)
        return fused(log_probs, of_memory.view_as(log_probs).to(log_probs.device), share)


def search_scores(
    task: SpeechToText, received: Received, data: Utterances, searches: Mapping[str, Search], final: bool
) -> Evaluation:
    """The task's score of each search, by its name, from one encoder pass; NaN without utterances.

    `final` adds a row for each utterance.
    """
    texts = task.found(received.params, data, searches, received.device)
    rows = task.rows(data, texts) if final else []
    return Evaluation(task.scores(task.texts(data), texts), rows)
