"""Joint CTC/attention beam search for models with a decoder: SpeechBrain's searchers with its CTC scorer and our language model.

The score of a text is the mean over its tokens (Watanabe et al., 2017, "Hybrid CTC/attention architecture") of

    (1 - ctc_weight) log p_attention + ctc_weight log p_ctc + lm_weight log p_lm
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

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
from fedray.training.decoding import BLANK, DecodeSettings, Hypothesis, Search

NEVER = -1e20  # SpeechBrain's minus infinity, which stays finite when it is weighted and added


class AttentionSearch(Search):
    """With `beam` 1 greedy and by the decoder alone; `token_bonus` is not used, since scores are means over tokens.

    The confidence is the decoder's log-probability of the tokens and their end, a frame.
    """

    reads = "states"

    def __init__(
        self, settings: DecodeSettings, decode: Callable[[Sequence[int]], str], language_model: LanguageModel | None = None
    ) -> None:
        super().__init__(settings, decode)
        self.language_model = language_model if settings.lm_weight else None

    @torch.no_grad()
    def transcribe(self, model: Any, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        relative = lengths / hidden.shape[1]
        if hasattr(model, "transformer"):
            greedy, beam = S2STransformerGreedySearcher, S2STransformerBeamSearcher
            parts = {"modules": [model.transformer, model.attention_head]}
        else:
            greedy, beam = S2SRNNGreedySearcher, S2SRNNBeamSearcher
            parts = {"embedding": model.embedding, "decoder": model.decoder, "linear": model.attention_head}
        ends = {"bos_index": model.bos, "eos_index": model.eos}
        longest = min(self.settings.max_tokens_per_frame, getattr(model, "longest", math.inf) / hidden.shape[1])
        limits = {"min_decode_ratio": 0.0, "max_decode_ratio": longest}
        if self.settings.beam == 1:
            tokens, *_ = greedy(**parts, **ends, **limits)(hidden, relative)
            scores = None
        else:
            searcher = beam(
                **parts,
                beam_size=self.settings.beam,
                scorer=self._scorer(model),
                using_eos_threshold=False,
                length_normalization=True,
                **ends,
                **limits,
            )
            tokens, _, scores, _ = searcher(hidden, relative)
        # A decoder that has learnt little may utter a blank or another start, which are no text.
        silent = {model.bos, BLANK} if hasattr(model, "ctc_head") else {model.bos}
        tokens = [[token for token in row if token not in silent] for row in tokens]
        confidences = self._confidences(model, hidden, lengths, tokens)
        return [
            Hypothesis(tuple(row), self.decode(row), confidence * frames if scores is None else float(scores[at]), confidence)
            for at, (row, confidence, frames) in enumerate(zip(tokens, confidences, lengths.tolist(), strict=True))
        ]

    def _scorer(self, model: Any) -> ScorerBuilder | None:
        if not self.settings.ctc_weight and not self.language_model:
            return None
        weight = self.settings.ctc_weight
        ctc = CTCScorer(_SameSize(model.ctc_head, model.attention_head), BLANK, model.eos)
        scorer = ScorerBuilder(weights={"ctc": weight}, full_scorers=[ctc]) if weight else ScorerBuilder()
        if self.language_model:
            # The constructor knows the names of SpeechBrain's own scorers only.
            scorer.full_scorers["fused"] = FusedScorer(self.language_model, model.bos, model.eos)
            scorer.weights["fused"] = self.settings.lm_weight
        return scorer

    @staticmethod
    def _confidences(model: Any, hidden: Tensor, lengths: Tensor, tokens: list[list[int]]) -> list[float]:
        longest = max(map(len, tokens)) + 1
        inputs = torch.tensor([[model.bos, *row] + [model.eos] * (longest - 1 - len(row)) for row in tokens], device=hidden.device)
        targets = torch.tensor([row + [model.eos] * (longest - len(row)) for row in tokens], device=hidden.device)
        scores = model.attend(hidden, lengths, inputs).gather(-1, targets[..., None])[..., 0].double()
        inside = torch.arange(longest) <= torch.tensor([[len(row)] for row in tokens])
        return ((scores * inside.to(scores.device)).sum(1) / lengths).tolist()


class _SameSize(nn.Module):
    """The CTC head with as many outputs as the attention head, whose bos and eos have no CTC probability."""

    def __init__(self, ctc_head: nn.Module, attention_head: nn.Module) -> None:
        super().__init__()
        self.ctc_head, self.size = ctc_head, attention_head.w.out_features

    def forward(self, hidden: Tensor) -> Tensor:
        logits = self.ctc_head(hidden)
        return nn.functional.pad(logits, (0, self.size - logits.shape[-1]), value=NEVER)


class FusedScorer(BaseScorerInterface):
    """A `LanguageModel` as SpeechBrain's beam search asks it; its memory is one state a hypothesis."""

    def __init__(self, language_model: LanguageModel, bos: int, eos: int) -> None:
        self.language_model, self.bos, self.eos = language_model, bos, eos

    def score(
        self, inp_tokens: Tensor, memory: list[Hashable] | None, candidates: Tensor | None, attn: Tensor | None
    ) -> tuple[Tensor, list[Hashable]]:
        model = self.language_model
        tokens = inp_tokens.tolist()
        if memory is None:
            states = [model.start() for _ in tokens]
        else:
            # An ended hypothesis is out of the race: what follows its end does not matter.
            states = [state if token == self.eos else model.step(state, token) for state, token in zip(memory, tokens, strict=True)]
        rows = torch.stack([torch.from_numpy(model.log_probs(state)) for state in states]).float()
        scores = rows.new_full((len(states), max(rows.shape[1], self.bos + 1, self.eos + 1)), NEVER)
        scores[:, BLANK + 1 : rows.shape[1]] = rows[:, BLANK + 1 :]
        scores[:, self.bos] = NEVER
        scores[:, self.eos] = torch.tensor([model.end(state) for state in states])
        return scores.to(inp_tokens.device), states

    def permute_mem(self, memory: list[Hashable], index: Tensor) -> list[Hashable]:
        return [memory[place] for place in index.flatten().tolist()]

    def reset_mem(self, x: Tensor, enc_lens: Tensor) -> None:
        return None
