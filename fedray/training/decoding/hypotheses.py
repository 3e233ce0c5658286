"""The beam search of a decoder: hypotheses that grow token by token, for a batch of utterances.

It finds the texts of SpeechBrain's searchers (`S2SGreedySearcher` for a beam of 1, else `S2SBeamSearcher` with length
normalisation and without a threshold for the end). An utterance leaves the batch when as many of its hypotheses have
ended as the beam is wide, or when it has as many tokens as it may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedray.models.steps import Steps, rows_of
from fedray.training.decoding.scorers import Scorer


class Found(NamedTuple):
    """A text that a search has found."""

    tokens: list[int]
    score: float  # the mean over the tokens and the end of what the search maximises
    log_prob: float  # the decoder's own log-probability of the tokens and the end


@dataclass
class Beams:
    """The best `width` hypotheses of each of B utterances, the best first."""

    width: int
    utterances: list[int]  # positions of the utterances in the batch that the search began with
    totals: Tensor  # sums of what the search maximises, [B, width]; -inf: no hypothesis
    log_probs: Tensor  # the decoder's own, [B, width], float64
    tokens: Tensor  # [B, width, L]

    @classmethod
    def empty(cls, utterances: int, width: int, device: torch.device) -> Beams:
        """Hypotheses without tokens, one for each utterance."""
        totals = torch.full((utterances, width), -math.inf, device=device)
        totals[:, 0] = 0
        tokens = torch.empty(utterances, width, 0, dtype=torch.long, device=device)
        return cls(width, list(range(utterances)), totals, totals.double(), tokens)

    def grow(self, scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Append a token to each hypothesis, and keep the best ones of each utterance.

        `scores` [B x width, V]: what each token adds to the total. `own`: the decoder's log-probabilities. Returns the
        row that each hypothesis continues, and its token, both [B x width].
        """
        best, tokens = _best(scores, self.width)
        totals = (self.totals.view(-1, 1) + best).view(len(self.utterances), -1)
        self.totals, which = _best(totals, self.width)
        beams = which // best.shape[1]
        rows = (torch.arange(len(beams), device=beams.device)[:, None] * self.width + beams).flatten()
        chosen = tokens.view(len(beams), -1).gather(1, which)
        said = self.tokens.gather(1, beams[..., None].expand(-1, -1, self.tokens.shape[2]))
        self.tokens = torch.cat([said, chosen[..., None]], 2)
        more = own[rows, chosen.flatten()].view_as(beams).double()
        self.log_probs = self.log_probs.gather(1, beams) + more
        return rows, chosen.flatten()

    def found(self, place: int, beam: int) -> Found:
        """A hypothesis whose last token is the end."""
        score = float(self.totals[place, beam]) / self.tokens.shape[2]
        return Found(self.tokens[place, beam, :-1].tolist(), score, float(self.log_probs[place, beam]))

    def keep(self, places: Sequence[int]) -> None:
        """Continue with the utterances in these places."""
        at = torch.tensor(places, device=self.tokens.device)
        self.utterances = [self.utterances[place] for place in places]
        self.totals, self.log_probs, self.tokens = self.totals[at], self.log_probs[at], self.tokens[at]


def _best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest values of each row, in order, and where they are; of equal values, the first if `count` is 1."""
    if count == 1:
        return values.max(-1, keepdim=True)
    return values.topk(min(count, values.shape[-1]))


def search(
    steps: Steps,
    next_scores: Callable[[Tensor], tuple[Tensor, Tensor]],
    scorers: Sequence[tuple[float, Scorer]],
    width: int,
    limits: Sequence[int],
    bos: int,
    eos: int,
    device: torch.device,
    report: Callable[[int], None] = lambda length: None,
) -> list[Found]:
    """The best text of each utterance.

    `next_scores`: (states [rows, D]) -> (what the search adds up, the decoder's own log-probabilities) of the next
    tokens, [rows, V]. `limits`: the most tokens of each text, without its end. `report` receives the number of tokens
    of the texts so far at each step.
    """
    beams, last = Beams.empty(len(limits), width, device), torch.full((len(limits) * width,), bos, device=device)
    ended: list[list[Found]] = [[] for _ in limits]
    while True:
        length, before = beams.tokens.shape[2], beams.log_probs.flatten()
        scores, own = next_scores(steps(last))
        for weight, scorer in scorers:
            scores = scores + weight * scorer(last)
        rows, last = beams.grow(scores, own)
        is_end = last.view_as(beams.totals) == eos
        for place, beam in is_end.nonzero().tolist():
            of_utterance = ended[beams.utterances[place]]
            if len(of_utterance) < width and beams.totals[place, beam] > -math.inf:
                of_utterance.append(beams.found(place, beam))
        full = [len(ended[utterance]) == width for utterance in beams.utterances]
        at_limit = [length == limits[utterance] for utterance in beams.utterances]
        for place, utterance in enumerate(beams.utterances):
            ends = is_end[place, 0] and ended[utterance]
            if at_limit[place] and not full[place] and not ends:  # its last token makes way for the end
                row = rows[place * width]
                end = float(before[row] + own[row, eos])
                ended[utterance].append(beams.found(place, 0)._replace(log_prob=end))
        beams.totals.masked_fill_(is_end, -math.inf)
        report(length)
        going = [not (one or other) for one, other in zip(full, at_limit, strict=True)]
        if not any(going):
            break
        if width > 1:
            steps.follow(rows)
        for _, scorer in scorers:
            scorer.follow(rows, last)
        if not all(going):
            places = compacted(going)
            kept = rows_of(places, width, device)
            beams.keep(places)
            steps.keep(places)
            for _, scorer in scorers:
                scorer.keep(torch.tensor(places, device=device), kept)
            last = last[kept]
    return [max(of_utterance, key=lambda found: found.score) for of_utterance in ended]


def compacted(going: Sequence[bool]) -> list[int]:
    """The places that go on, in an order that moves as few of them as possible: the last ones fill the gaps."""
    count = sum(going)
    moved = iter(place for place in range(count, len(going)) if going[place])
    return [place if going[place] else next(moved) for place in range(count)]
