"""Padding without effect: an utterance's output must not depend on the other utterances of its batch.

SpeechBrain's convolutions read the padding of a batch; where they reflect, they reflect the end of the batch, not of
the utterance. Hooks on the convolutions fill the padding with what an utterance without a batch would have there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_SHORTEST: list[int] = []


@contextmanager
def shortest_known(length: int) -> Iterator[None]:
    """While open, models run under `torch.func.vmap`, which hides lengths; `length` is the shortest of all clients."""
    _SHORTEST.append(length)
    try:
        yield
    finally:
        _SHORTEST.pop()


def several_clients() -> bool:
    """Whether models compute the outputs of several clients at once."""
    return bool(_SHORTEST)


def shortest_of(lengths: Tensor) -> int:
    """The smallest of lengths [B], or of all clients' lengths if there are several clients."""
    return _SHORTEST[-1] if _SHORTEST else int(lengths.min())


class Reflect:
    """A hook before a convolution over 3 frames: the first padding frame becomes the utterance's last frame but one."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths

    def __call__(self, module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        (x,) = inputs  # [B, T, ...]
        behind = torch.arange(x.shape[1], device=x.device) == self.lengths[:, None]
        return torch.where(behind.view(*behind.shape, *[1] * (x.dim() - 2)), x.roll(2, dims=1), x)


class Silence:
    """A hook before a convolution that pads with zeros: the padding becomes zeros."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths

    def __call__(self, module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        (x,) = inputs  # [B, D, T]
        return x.masked_fill(padding(self.lengths, x.shape[2])[:, None, :], 0.0)


def padding(lengths: Tensor, size: int) -> Tensor:
    """bool [B, size]: true where a frame is padding."""
    return torch.arange(size, device=lengths.device) >= lengths[:, None]
