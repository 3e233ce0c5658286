"""The interface of a search from encoder states to text, its settings, and greedy search on CTC."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from speechbrain.dataio.dataio import length_to_mask
from torch import Tensor

from fedray.core.ranges import Amount, Count, Positive, Ranged, Share, one_of
from fedray.models.language_model import LanguageModel
from fedray.training.recognisers import Recogniser

BLANK = 0


@dataclass(frozen=True)
class DecodeSettings(Ranged):
    """A search and its options."""

    search: str = one_of(("greedy", "ctc", "lexicon", "attention"), "ctc")  # greedy | ctc | lexicon | attention
    beam: Count = 8  # hypotheses that a beam search keeps
    lm_weight: Amount = 0.5  # weight of the language model's log-probability; 0: no language model
    token_bonus: float = 0.5  # natural log units added for each token; no effect without a language model or weight
    # tokens further than this below the best of their frame (natural log) start no new hypothesis
    prune: Positive = 7.0
    lexicon: tuple[str, ...] | None = None  # the words of the lexicon search
    min_words: Count = 1  # lexicon search: words in the shortest text
    max_words: Count = 100  # lexicon search: words in the longest text
    ctc_weight: Share = 0.4  # attention search: share of CTC in the joint score
    temperature: Positive = 1.0  # attention search: beam search divides the decoder's log-probabilities by it
    # Attention search: longest text, in tokens per encoder frame of speech. null: 1; for Whisper, 10 tokens a second of
    # speech and 10 more.
    max_tokens_per_frame: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search == "lexicon" and not self.lexicon:
            raise ValueError("decode.search=lexicon needs decode.lexicon, the list of words")
        if self.min_words > self.max_words:
            raise ValueError(f"decode.min_words={self.min_words} is above decode.max_words={self.max_words}")


@dataclass(frozen=True)
class Hypothesis:
    """A decoded text."""

    tokens: tuple[int, ...]
    text: str
    score: float  # the score that the search maximises
    confidence: float  # natural log-probability of the tokens per frame, without a language model


def greedy(log_probs: Tensor, lengths: Tensor) -> list[list[int]]:
    """The best token of each frame [B, T, V], with repetitions merged and blanks removed."""
    return collapsed(log_probs.argmax(-1), lengths)


def collapsed(best: Tensor, lengths: Tensor) -> list[list[int]]:
    """The tokens of frames [B, T], with repetitions merged and blanks removed."""
    keep = best != BLANK
    keep[:, 1:] &= best[:, 1:] != best[:, :-1]
    keep &= inside(best, lengths)
    return [row[kept].tolist() for row, kept in zip(best.cpu(), keep.cpu(), strict=True)]


def inside(frames: Tensor, lengths: Tensor) -> Tensor:
    """Which of the frames [B, T, ...] belong to their utterance and not to the padding, bool [B, T]."""
    mask: Tensor = length_to_mask(lengths.to(frames.device), frames.shape[1], torch.bool)
    return mask


class Search(ABC):
    """Finds texts for encoded utterances."""

    reads: ClassVar[str] = "frames"  # the distribution that it searches: CTC's frames | the decoder's states

    def __init__(
        self,
        settings: DecodeSettings,
        decode: Callable[[Sequence[int]], str],
        language_model: LanguageModel | None = None,
    ) -> None:
        """`decode`: token ids -> text."""
        self.settings, self.decode = settings, decode
        self.language_model = language_model if settings.lm_weight else None

    @abstractmethod
    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """The best hypothesis of each utterance, from the output of `model.encode`: states [B, T, D], lengths [B]."""


class GreedySearch(Search):
    """Takes the best token of each CTC frame."""

    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        return self(model.ctc(hidden), lengths)

    def __call__(self, log_probs: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """Search log-probabilities [B, T, V] of lengths [B]. The confidence is that of the best alignment."""
        scores = (log_probs.amax(-1).double() * inside(log_probs, lengths)).sum(1).tolist()
        rows = zip(greedy(log_probs, lengths), scores, lengths.tolist(), strict=True)
        return [Hypothesis(tuple(tokens), self.decode(tokens), score, score / frames) for tokens, score, frames in rows]
