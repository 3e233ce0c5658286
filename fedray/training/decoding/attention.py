"""Joint CTC/attention beam search for models with a decoder, with SpeechBrain's CTC scores and a language model.

The score of a text is the mean over its tokens (Watanabe et al., 2017, "Hybrid CTC/attention architecture") of

    (1 - ctc_weight) log p_attention + ctc_weight log p_ctc + lm_weight log p_lm
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedray.core.pulse import long_work
from fedray.models.steps import Steps, WholePrefixes
from fedray.training.decoding.hypotheses import Found, search
from fedray.training.decoding.scorers import CTC, Fused, Scorer, Suppressed
from fedray.training.decoding.search import BLANK, Hypothesis, Search
from fedray.training.recognisers import Recogniser, teacher_forced


class AttentionSearch(Search):
    """Beam search or, with `beam` 1, greedy search with the decoder alone.

    `token_bonus` has no effect, since scores are means over tokens. The confidence is the decoder's log-probability of
    the tokens and their end, per frame.
    """

    reads = "states"

    @torch.no_grad()
    def transcribe(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[Hypothesis]:
        width, limits, scorers = self.settings.beam, self.limits(model, lengths), self._scorers(model, hidden, lengths)
        # An adapted weight is computed once, not at each step.
        with parametrize.cached(), long_work(f"decoding {len(limits)} utterances, tokens", max(limits)) as report:
            steps, scores = steps_of(model, hidden, lengths, width), self._scores(model)
            found = search(steps, scores, scorers, width, limits, model.bos, model.eos, hidden.device, report)
        found = without_commands(model, hidden, lengths, found)
        hypotheses = []
        for (tokens, score, log_prob), frames in zip(found, lengths.tolist(), strict=True):
            of_beam = log_prob if width == 1 else score
            hypotheses.append(Hypothesis(tuple(tokens), self.decode(tokens), of_beam, log_prob / frames))
        return hypotheses

    def limits(self, model: Recogniser, lengths: Tensor) -> list[int]:
        """The most tokens of each text, from the encoder frames of its speech [B]."""
        a_frame, more = self.settings.max_tokens_per_frame, 0
        if a_frame is None:
            a_frame, more = getattr(model, "text_limit", (1.0, 0))
        most = getattr(model, "most_tokens", math.inf)
        aligned = self.settings.beam > 1 and self.settings.ctc_weight > 0  # CTC aligns at most a token a frame
        return [int(min(a_frame * frames + more, most, frames if aligned else math.inf)) for frames in lengths.tolist()]

    def _scores(self, model: Recogniser) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The function from a decoder's states to the scores of the next tokens and the decoder's log-probabilities."""
        head, fuse = model.attention_head, getattr(model, "fuse", None)  # of a memory
        joint = self.settings.beam > 1
        temperature, share = (self.settings.temperature, 1 - self.settings.ctc_weight) if joint else (1.0, 1.0)

        def scores(states: Tensor) -> tuple[Tensor, Tensor]:
            logits = head(states)
            own = found = logits.log_softmax(-1)
            if fuse is not None:
                found = (fuse(own, states) / temperature).log_softmax(-1)
            elif temperature != 1:
                found = (logits / temperature).log_softmax(-1)
            return found if share == 1 else share * found, own

        return scores

    def _scorers(self, model: Recogniser, hidden: Tensor, lengths: Tensor) -> list[tuple[float, Scorer]]:
        """Further scores of the next tokens, each with its weight: CTC's and a language model's are for beams alone."""
        scorers: list[tuple[float, Scorer]] = []
        if (suppressed := getattr(model, "suppressed", None)) is not None:
            first, always = suppressed
            scorers.append((1.0, Suppressed(first, always, outputs(model), hidden.device)))
        width, ctc_weight, lm_weight = self.settings.beam, self.settings.ctc_weight, self.settings.lm_weight
        if width == 1 or not (ctc_weight or self.language_model):
            return scorers
        tokens = outputs(model)
        if ctc_weight:
            scorers.append((ctc_weight, CTC(model.ctc(hidden), lengths, tokens, model.eos)))
        if self.language_model:
            rows = len(hidden) * width
            scorers.append((lm_weight, Fused(self.language_model, rows, tokens, model.bos, model.eos)))
        return scorers


def outputs(model: Recogniser) -> int:
    """The number of the decoder's tokens."""
    head = model.attention_head
    return cast(nn.Linear, getattr(head, "w", head)).out_features


def steps_of(model: Recogniser, hidden: Tensor, lengths: Tensor, beam: int) -> Steps:
    """The model's decoder at work, with a cache if the model offers one."""
    if (steps := getattr(model, "steps", None)) is not None:
        return cast(Steps, steps(hidden, lengths, beam))
    return WholePrefixes(model.decode, hidden, lengths, beam)


def without_commands(model: Recogniser, hidden: Tensor, lengths: Tensor, hypotheses: Sequence[Found]) -> list[Found]:
    """The texts without blanks and start tokens, which a decoder that has learnt little may emit, scored anew."""
    commands = {model.bos, BLANK} if hasattr(model, "ctc_head") else {model.bos}
    texts = [[token for token in one.tokens if token not in commands] for one in hypotheses]
    changed = [row for row, one in enumerate(hypotheses) if one.tokens != texts[row]]
    results = list(hypotheses)
    if changed:
        log_probs = decoder_log_probs(model, hidden[changed], lengths[changed], [texts[row] for row in changed])
        for row, log_prob in zip(changed, log_probs, strict=True):
            results[row] = Found(texts[row], hypotheses[row].score, log_prob)
    return results


def decoder_log_probs(
    model: Recogniser, hidden: Tensor, lengths: Tensor, texts: Sequence[Sequence[int]]
) -> list[float]:
    """The decoder's log-probability of each text and its end."""
    before, after, counted = teacher_forced(texts, model.bos, model.eos, hidden.device)
    scores = model.attend(hidden, lengths, before).gather(-1, after[..., None])[..., 0].double()
    log_probs: list[float] = (scores * counted).sum(1).tolist()
    return log_probs
