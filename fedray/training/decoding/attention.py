"""Joint CTC/attention beam search for models with a decoder: SpeechBrain's searchers with CTC and a language model.

The score of a text is the mean over its tokens (Watanabe et al., 2017, "Hybrid CTC/attention architecture") of

    (1 - ctc_weight) log p_attention + ctc_weight log p_ctc + lm_weight log p_lm
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, cast

import torch
from speechbrain.decoders.scorer import BaseScorerInterface, CTCScorer, ScorerBuilder
from speechbrain.decoders.seq2seq import (
    S2SRNNBeamSearcher,
    S2SRNNGreedySearcher,
    S2STransformerBeamSearcher,
    S2STransformerGreedySearcher,
)
from torch import Tensor, nn

from fedray.models.language_model import LanguageModel
from fedray.training.decoding.search import BLANK, DecodeSettings, Hypothesis, Search
from fedray.training.recognisers import Recogniser

NEVER = -1e20  # SpeechBrain's minus infinity, which stays finite after weights and sums


class RecurrentDecoder(Protocol):
    """The decoder of a CRDNN."""

    embedding: nn.Module
    decoder: nn.Module


class AttentionSearch(Search):
    """Beam search or, with `beam` 1, greedy search with the decoder alone.

    `token_bonus` has no effect, since scores are means over tokens. The confidence is the decoder's log-probability of
    the tokens and their end, per frame.
    """

    reads = "states"

    def __init__(
        self,
        settings: DecodeSettings,
        decode: Callable[[Sequence[int]], str],
        language_model: LanguageModel | None = None,
    ) -> None:
        super().__init__(settings, decode)
        self.language_model = language_model if settings.lm_weight else None

    @torch.no_grad()
    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        relative = lengths / hidden.shape[1]
        if hasattr(model, "transformer"):
            greedy, beam = S2STransformerGreedySearcher, S2STransformerBeamSearcher
            parts: dict[str, Any] = {"modules": [model.transformer, model.attention_head]}
        else:
            greedy, beam = S2SRNNGreedySearcher, S2SRNNBeamSearcher
            recurrent = cast(RecurrentDecoder, model)
            parts = {
                "embedding": recurrent.embedding,
                "decoder": recurrent.decoder,
                "linear": model.attention_head,
            }
        longest = getattr(model, "most_tokens", math.inf)
        most = min(self.settings.max_tokens_per_frame, longest / hidden.shape[1])
        common = parts | {
            "bos_index": model.bos,
            "eos_index": model.eos,
            "min_decode_ratio": 0.0,
            "max_decode_ratio": most,
        }
        if self.settings.beam == 1:
            tokens, *_ = greedy(**common)(hidden, relative)
            # The searcher's limit is that of the longest utterance in the batch.
            limits = [int(min(self.settings.max_tokens_per_frame * frames, longest)) for frames in lengths.tolist()]
            tokens, scores = [row[:limit] for row, limit in zip(tokens, limits, strict=True)], None
        else:
            searcher = beam(
                **common,
                beam_size=self.settings.beam,
                temperature=self.settings.temperature,
                scorer=self._scorer(model),
                using_eos_threshold=False,
                length_normalization=True,
            )
            tokens, _, scores, _ = searcher(hidden, relative)
        # A decoder that has learnt little may emit the blank or another start token, which are not text.
        not_text = {model.bos, BLANK} if hasattr(model, "ctc_head") else {model.bos}
        tokens = [[token for token in row if token not in not_text] for row in tokens]
        confidences = self._confidences(model, hidden, lengths, tokens)
        hypotheses = []
        for at, (row, confidence, frames) in enumerate(zip(tokens, confidences, lengths.tolist(), strict=True)):
            score = confidence * frames if scores is None else float(scores[at])
            hypotheses.append(Hypothesis(tuple(row), self.decode(row), score, confidence))
        return hypotheses

    def _scorer(self, model: Recogniser) -> ScorerBuilder | None:
        weight = self.settings.ctc_weight
        if not weight and not self.language_model:
            return None
        scorer = ScorerBuilder()
        if weight:
            assert hasattr(model, "ctc_head")
            ctc = CTCScorer(PaddedCTCHead(model.ctc_head, model.attention_head), BLANK, model.eos)
            scorer = ScorerBuilder(weights={"ctc": weight}, full_scorers=[ctc])
        if self.language_model:
            # The constructor accepts only the names of SpeechBrain's own scorers.
            scorer.full_scorers["fused"] = FusedScorer(self.language_model, model.bos, model.eos)
            scorer.weights["fused"] = self.settings.lm_weight
        return scorer

    @staticmethod
    def _confidences(model: Recogniser, hidden: Tensor, lengths: Tensor, tokens: list[list[int]]) -> list[float]:
        """The decoder's log-probability of each text and its end, per frame."""
        bos, eos, longest = model.bos, model.eos, max(map(len, tokens)) + 1
        inputs = torch.tensor([[bos, *row] + [eos] * (longest - 1 - len(row)) for row in tokens], device=hidden.device)
        targets = torch.tensor([row + [eos] * (longest - len(row)) for row in tokens], device=hidden.device)
        scores = model.attend(hidden, lengths, inputs).gather(-1, targets[..., None])[..., 0].double()
        inside = torch.arange(longest) <= torch.tensor([[len(row)] for row in tokens])
        confidences: list[float] = ((scores * inside.to(scores.device)).sum(1) / lengths).tolist()
        return confidences


class PaddedCTCHead(nn.Module):
    """The CTC head with as many outputs as the attention head, whose bos and eos have no CTC probability."""

    def __init__(self, ctc_head: nn.Module, attention_head: nn.Module) -> None:
        super().__init__()
        self.ctc_head, self.size = ctc_head, cast(nn.Linear, attention_head.w).out_features

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [B, T, V]; tokens that CTC lacks get columns so low that no search picks them."""
        logits = self.ctc_head(hidden)
        return nn.functional.pad(logits, (0, self.size - logits.shape[-1]), value=NEVER)


class FusedScorer(BaseScorerInterface):
    """A `LanguageModel` as a scorer for SpeechBrain's beam search; its memory is one state for each hypothesis."""

    def __init__(self, language_model: LanguageModel, bos: int, eos: int) -> None:
        self.language_model, self.bos, self.eos = language_model, bos, eos

    def score(
        self, inp_tokens: Tensor, memory: list[Hashable] | None, candidates: Tensor | None, attn: Tensor | None
    ) -> tuple[Tensor, list[Hashable]]:
        """Log-probabilities of all next tokens, and the language model's new states."""
        model = self.language_model
        tokens = inp_tokens.tolist()
        if memory is None:
            states = [model.start() for _ in tokens]
        else:
            # A hypothesis that has ended keeps its state: the search ignores tokens after the end.
            pairs = zip(memory, tokens, strict=True)
            states = [state if token == self.eos else model.step(state, token) for state, token in pairs]
        rows = torch.stack([torch.from_numpy(model.log_probs(state)) for state in states]).float()
        scores = rows.new_full((len(states), max(rows.shape[1], self.bos + 1, self.eos + 1)), NEVER)
        scores[:, BLANK + 1 : rows.shape[1]] = rows[:, BLANK + 1 :]
        scores[:, self.bos] = NEVER
        scores[:, self.eos] = torch.tensor([model.end(state) for state in states])
        return scores.to(inp_tokens.device), states

    def permute_mem(self, memory: list[Hashable], index: Tensor) -> list[Hashable]:
        """The states of the hypotheses that the beam keeps."""
        return [memory[place] for place in index.flatten().tolist()]

    def reset_mem(self, x: Tensor, enc_lens: Tensor) -> None:
        """Return None: `score` makes the first states."""
        return None
