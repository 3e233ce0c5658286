"""Connectionist temporal classification (Graves et al., 2006): the loss and its gradient in one pass over the frames.

torch computes three exponentials and a logarithm for each state of each frame. Here compilers vectorise them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedray.models.kernels.rows import Part, arrays
from fedray.models.kernels.scalars import INLINE, OPTIONS, F, exponential

NEVER = F(-1e30)  # the log-probability of an impossible state


class CTC(Part):
    """The loss of each utterance [B], from log-probabilities [B, T, V], in which token 0 is the blank.

    `tokens` int64 [sum of sizes] are those of all utterances, `sizes` and `lengths` int64 [B] their numbers of tokens
    and of frames. An utterance with too few frames for its tokens has loss 0, as with torch's `zero_infinity`.
    """

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, tokens: Tensor, lengths: Tensor, sizes: Tensor) -> Tensor:
        losses, gradient = log_probs.new_empty(len(log_probs)), torch.zeros_like(log_probs)
        align(*arrays(log_probs.contiguous(), tokens, lengths, sizes, losses, gradient))
        unknown(*arrays(log_probs, lengths, losses))
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (to_log_probs,) = ctx.saved_tensors
        return to_log_probs * gradient[:, None, None], None, None, None


def ctc_loss(log_probs: Tensor, tokens: Tensor, lengths: Tensor, sizes: Tensor) -> Tensor:
    """The mean over utterances of the loss of `CTC` per token of the utterance.

    ValueError: tokens or lengths exceed those of `log_probs`; the loops would read other memory.
    """
    _, frames, vocabulary = log_probs.shape
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise ValueError(f"CTC has {vocabulary} tokens, and the labels go from {tokens.min()} to {tokens.max()}")
    if not 0 < int(lengths.min()) <= int(lengths.max()) <= frames:
        raise ValueError(f"CTC has {frames} frames, and utterances of {lengths.min()} to {lengths.max()}")
    losses: Tensor = CTC.apply(log_probs, tokens.long(), lengths, sizes)  # an empty tensor is float by default
    return (losses / sizes.clamp(min=1)).mean()


@njit(**OPTIONS)
def align(log_probs, tokens, lengths, sizes, losses, gradient):
    """Set the losses [B]; subtract from `gradient` [B, T, V] the share of the alignments with the token in the frame.

    The states of an utterance are its tokens with a blank before each, and one after the last.
    """
    longest = 2 * sizes.max() + 1
    states, skips = np.zeros(longest, np.int64), np.empty(longest + 2, np.float32)
    before, spoken = np.full((2, log_probs.shape[1], longest + 2), NEVER)
    after = np.empty((2, longest + 2), np.float32)
    work = np.empty((4, longest), np.float32)
    start = 0
    for b in range(len(log_probs)):
        time, size = lengths[b], 2 * sizes[b] + 1
        skips[:] = NEVER
        for k in range(sizes[b]):
            states[2 * k + 1] = tokens[start + k]
            if k and tokens[start + k] != tokens[start + k - 1]:
                skips[2 * k + 1] = F(0)
        start += sizes[b]
        for t in range(time):
            for s in range(size):
                spoken[t, s] = log_probs[b, t, states[s]]
        # Log-probabilities of the frames so far, ending in each state; two impossible states come first.
        before[0, 2:] = NEVER
        before[0, 2 : 2 + min(2, size)] = spoken[0, : min(2, size)]
        for t in range(1, time):
            last = before[t - 1]
            _together(last[2:], last[1:], last, skips, spoken[t], before[t, 2:], size, work)
        ends = before[time - 1, size : size + 2]  # of the last token, if there is one, and of the last blank
        most = max(ends[0], ends[1])
        loss = -(most + np.log(np.exp(ends[0] - most) + np.exp(ends[1] - most)))
        losses[b] = loss
        if loss > F(1e29):
            losses[b] = F(0)
            continue
        # Log-probabilities of the remaining frames, starting in each state; two impossible states come last.
        now, later = after[0], after[1]
        now[:] = NEVER
        later[:] = NEVER
        for s in range(max(0, size - 2), size):
            now[s] = spoken[time - 1, s]
        for t in range(time - 1, -1, -1):
            if t < time - 1:
                now, later = later, now
                _together(later, later[1:], later[2:], skips[2:], spoken[t], now, size, work)
            _shares(before[t, 2:], now, spoken[t], states, size, work, gradient[b, t])


@njit(**OPTIONS | {"fastmath": False})
def unknown(log_probs, lengths, losses):
    """Set the loss to NaN where a frame's probabilities are NaN: `align` may take a NaN for a number."""
    for b in range(len(losses)):
        for t in range(lengths[b]):
            if log_probs[b, t, 0] != log_probs[b, t, 0]:
                losses[b] = F(np.nan)


@njit(**INLINE)
def _together(stays, steps, jumps, skips, spoken, out, size, work):
    """`out` = log(exp(stays) + exp(steps) + exp(jumps + skips)) + spoken, of `size` states."""
    most, one, other, powers = work[0], work[1], work[2], work[3]
    for s in range(size):  # loops over few arrays: compilers vectorise no others
        most[s] = max(stays[s], steps[s])
        other[s] = min(stays[s], steps[s])
    for s in range(size):
        one[s] = jumps[s] + skips[s]
    for s in range(size):
        high = max(most[s], one[s])
        one[s] = min(most[s], one[s]) - high
        other[s] -= high
        most[s] = high
    exponential(one, size, powers, powers.view(np.int32))
    exponential(other, size, powers, powers.view(np.int32))
    for s in range(size):
        total = F(1) + one[s] + other[s]  # from 1 to 3
        far = F(1) if total > F(1.7) else F(0)
        z = (total * (F(1) - F(0.5) * far) - F(1)) / (total * (F(1) - F(0.5) * far) + F(1))
        q = z * z  # up to 0.07: the series of log((1 + z) / (1 - z)) ends soon
        p = F(1 / 11) * q + F(1 / 9)
        p = p * q + F(1 / 7)
        p = p * q + F(1 / 5)
        p = p * q + F(1 / 3)
        p = p * q + F(1)
        one[s] = F(2) * z * p + F(0.6931471805599453) * far
    for s in range(size):
        out[s] = one[s] + most[s] + spoken[s]


@njit(**INLINE)
def _shares(before, after, spoken, states, size, work, gradient):
    """Subtract the shares of the states in a frame, which add up to 1, from the gradient [V]."""
    shares, powers = work[0], work[3]
    most = F(-3e38)
    for s in range(size):
        shares[s] = before[s] + after[s] - spoken[s]
        most = max(most, shares[s])
    for s in range(size):
        shares[s] -= most
    exponential(shares, size, powers, powers.view(np.int32))
    total = F(0)
    for s in range(size):
        total += shares[s]
    for s in range(size):
        gradient[states[s]] -= shares[s] / total
