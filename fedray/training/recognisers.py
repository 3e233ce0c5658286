"""The interface of a speech recogniser, and teacher forcing of its decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss


class Recogniser(Protocol):
    """An encoder with CTC, with an attention decoder, or with both.

    A model without CTC has no `ctc`; `attend` and `decode` are never called on a model without a decoder. A decoder may
    offer `steps(hidden, lengths, beam) -> fedray.models.steps.Steps`, without which a search decodes the whole prefix
    at each step; `most_tokens` of a text; `text_limit`, the longest text of a search by default: tokens per encoder
    frame, and further ones; and `suppressed`: the tokens that begin no text, and those that no text has.
    """

    bos: int
    eos: int

    @property
    def attention_head(self) -> nn.Module:
        """The last layer of the decoder; its weights are in its linear layer `w`."""

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states [B, T', D] and their lengths [B]."""

    def ctc(self, hidden: Tensor) -> Tensor:
        """CTC's log-probabilities [B, T', V] of each frame; token 0 is the blank."""

    def attend(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """Log-probabilities [B, L, tokens] of the token after each prefix of `tokens_bos` [B, L]."""

    def decode(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """The inputs [B, L, D] of the attention head after each prefix."""


def frame_keys(model: Recogniser, hidden: Tensor) -> Tensor:
    """What a memory of frames stores of hidden states [B, T', D]: the states, or what the model says, [B, T', keys]."""
    keys = getattr(model, "frame_keys", None)
    return hidden if keys is None else keys(hidden)


def by_ctc(model: Recogniser, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """CTC's log-probabilities and their lengths."""
    hidden, lengths = model.encode(features, lengths)
    return model.ctc(hidden), lengths


def by_attention(model: Recogniser, features: Tensor, lengths: Tensor, tokens_bos: Tensor) -> tuple[Tensor]:
    """The decoder's log-probabilities."""
    hidden, lengths = model.encode(features, lengths)
    return (model.attend(hidden, lengths, tokens_bos),)


def by_both(model: Recogniser, features: Tensor, lengths: Tensor, tokens_bos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The decoder's log-probabilities, CTC's, and the lengths of CTC's."""
    hidden, lengths = model.encode(features, lengths)
    return model.attend(hidden, lengths, tokens_bos), model.ctc(hidden), lengths


def teacher_forced(
    targets: Sequence[Sequence[int]], bos: int, eos: int, device: str | torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """A decoder's input tokens, the tokens that follow them, and a mask of those that count, [B, longest + 1] each.

    Both kinds of tokens are padded with `eos`.
    """
    sizes = torch.tensor([len(target) for target in targets], device=device)
    width = int(sizes.max()) + 1
    before, after = torch.full((2, len(targets), width), eos, device=device)
    before[:, 0] = bos
    for row, target in enumerate(targets):
        before[row, 1 : len(target) + 1] = after[row, : len(target)] = torch.tensor(target, device=device)
    return before, after, torch.arange(width, device=device) <= sizes[:, None]


def decoder_losses(log_probs: Tensor, after: Tensor, smoothing: float) -> Tensor:
    """The cross-entropy of each token, [B, L], from log-probabilities [B, L, tokens].

    `smoothing`: the share of the label that is spread evenly over all tokens (Szegedy et al., 2016).
    """
    # One row for each token: with three dimensions torch copies all log-probabilities twice.
    losses = nll_loss(log_probs.flatten(0, 1), after.flatten(), reduction="none").view(after.shape)
    return losses if not smoothing else (1 - smoothing) * losses - smoothing * log_probs.mean(-1)
