"""Parts of transformers' encoders that read no padding, with the names and weights of theirs.

Padding changes an utterance's output in transformers where a group norm averages over time (wav2vec 2.0, HuBERT and
WavLM in their base sizes), and where a convolution reads what an earlier layer has written into the padding
(data2vec-audio's positions, wav2vec2-conformer's and the adapters' convolutions). In training, batch norm
(wav2vec2-conformer) averages over padding too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from fedray.models.padding import padding
from fedray.models.unpacked import norm_of_speech


class Speech:
    """The lengths of the utterances that a model encodes now, by what is counted; empty: there is no padding."""

    def __init__(self) -> None:
        self._lengths: dict[str, Tensor] = {}

    @contextmanager
    def of(self, lengths: dict[str, Tensor]) -> Iterator[None]:
        """While open, the parts read no padding. `lengths`: what is counted -> lengths [B]."""
        before, self._lengths = self._lengths, lengths
        try:
            yield
        finally:
            self._lengths = before

    def as_now(self) -> AbstractContextManager[None]:
        """`of` with the present lengths, for layers that are computed again when gradients need them."""
        return self.of(self._lengths)

    def lengths(self, counted: str, size: int, longest: int, device: torch.device) -> Tensor:
        """The lengths of `size` utterances, int64 [size]: `longest` each if there is no padding."""
        found = self._lengths.get(counted)
        return torch.full((size,), longest, device=device) if found is None else found

    def outside(self, counted: str, size: int) -> Tensor | None:
        """Which of `size` places are padding, bool [B, size]; None: there is no padding."""
        lengths = self._lengths.get(counted)
        return None if lengths is None else padding(lengths, size)


class GroupNorm(nn.GroupNorm):
    """Group norm with one group a channel, over the frames of each utterance alone."""

    def __init__(self, norm: nn.GroupNorm, speech: Speech, counted: str) -> None:
        assert norm.num_groups == norm.num_channels
        super().__init__(norm.num_groups, norm.num_channels, norm.eps)
        self.speech, self._counted = speech, counted

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, T] -> the same shape."""
        outside = self.speech.outside(self._counted, x.shape[2])
        if outside is None:
            return super().forward(x)
        inside = ~outside[:, None]
        count = inside.sum(2, keepdim=True)
        mean = x.where(inside, 0.0).sum(2, keepdim=True) / count
        centred = x - mean
        variance = centred.where(inside, 0.0).square().sum(2, keepdim=True) / count
        return centred * torch.rsqrt(variance + self.eps) * self.weight[:, None] + self.bias[:, None]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm whose statistics in training are those of the utterances' frames."""

    def __init__(self, norm: nn.BatchNorm1d, speech: Speech, counted: str) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self.speech, self._counted = speech, counted

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, T] -> the same shape."""
        if not self.training:
            return super().forward(x)
        outside = self.speech.outside(self._counted, x.shape[2])
        inside = x.new_ones(x.shape[0], x.shape[2], dtype=torch.bool) if outside is None else ~outside
        return norm_of_speech(self, x.transpose(1, 2), inside).transpose(1, 2)


class WeightNorm(nn.Module):
    """torch's weight norm over one dimension, in operations that `torch.func.vmap` runs for many models."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self._dim = dim

    def forward(self, lengths: Tensor, directions: Tensor) -> Tensor:
        """The weight of these lengths and directions, of the directions' shape."""
        others = [dim for dim in range(directions.ndim) if dim != self._dim % directions.ndim]
        return directions * (lengths / directions.square().sum(others, keepdim=True).sqrt())


def silence_before(conv: nn.Module, speech: Speech, counted: str) -> None:
    """Make a convolution over [B, channels, T] read zeros in place of padding."""

    def silenced(module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        (x,) = inputs
        outside = speech.outside(counted, x.shape[2])
        return x if outside is None else x.masked_fill(outside[:, None], 0.0)

    conv.speech = speech  # type: ignore[assignment]
    conv.register_forward_pre_hook(silenced)


def spans(lengths: Tensor, size: int, share: float, width: int, fewest: int) -> Tensor:
    """Random spans of `width` places in about a `share` of each row, bool [B, size], from torch's global generator.

    As in wav2vec 2.0's fine-tuning: share * length / width spans, rounded up or down at random, at least `fewest`; they
    may overlap. `lengths` [B]: of the rows; a row shorter than a span has none.
    """
    at = torch.arange(size, device=lengths.device)
    starts = (lengths - width + 1).clamp(min=0)[:, None]  # how many places a span can begin at
    scores = torch.rand(len(lengths), size, device=lengths.device).masked_fill(at >= starts, -1.0)
    wanted = (share * lengths / width + torch.rand((), device=lengths.device)).floor().clamp(min=fewest)[:, None]
    rank = scores.argsort(1, descending=True).argsort(1)
    begun = (rank < torch.minimum(wanted, starts)).cumsum(1)
    return begun - nn.functional.pad(begun, (width, 0))[:, :size] > 0
