"""The convolutional recurrent networks of FedMLAC, table 3: convolutions over time, a GRU, its mean over time, one linear layer.

What this file adds is that padding does not count: a clip's result does not depend on how long the other clips of its batch are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedray.models.example import script
from fedray.models.padding import padding
from fedray.models.recurrent import gru


@dataclass(frozen=True)
class Size:
    filters: tuple[int, ...]  # of each convolution
    hidden: int  # of the GRU, in each direction
    bidirectional: bool = False


SIZES = {
    "tiny": Size((16,), 32),
    "lite": Size((32, 32), 64),
    "mid": Size((32, 32, 32), 64),
    "base": Size((64, 64), 128, True),
    "deep": Size((64, 128, 128), 128, True),  # the paper says 3 convolutions, 64 -> 128, not where it widens [ours]
}


@dataclass(frozen=True)
class CRNNSettings:
    size: str = "base"  # base | lite | tiny | mid | deep
    dropout: float = 0.1  # once, behind the convolutions
    init: str | None = None  # a file of weights to start from: a state dict of the same model

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"model.size={self.size!r} is unknown: choose one of {', '.join(SIZES)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout is a share from 0 to below 1, not {self.dropout}")


class CRNN(nn.Module):
    """`bins` log-mels a frame in, one logit a class out; each convolution halves the frames."""

    Settings: ClassVar[type] = CRNNSettings

    def __init__(self, settings: CRNNSettings, bins: int, classes: int) -> None:
        super().__init__()
        self.settings, self.bins, self.classes = settings, bins, classes
        size = SIZES[settings.size]
        self.shortest = 2 ** len(size.filters)  # frames: one must be left behind the last pooling
        layers: list[nn.Module] = []
        width = bins
        for filters in size.filters:
            layers += [nn.Conv1d(width, filters, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2)]
            width = filters
        self.conv = nn.Sequential(*layers, nn.Dropout(settings.dropout))
        self.rnn = nn.GRU(width, size.hidden, batch_first=True, bidirectional=size.bidirectional)
        self.out = nn.Linear(size.hidden * (2 if size.bidirectional else 1), classes)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Features [B, T, bins] and lengths [B] in frames -> logits [B, classes]."""
        shortest = int(lengths.min())
        if shortest < self.shortest:
            raise ValueError(f"a clip of {shortest} frames is too short: crnn {self.settings.size} needs {self.shortest}")
        if shortest == features.shape[1]:  # nothing is padded, so nothing need be masked
            frames = self.conv(features.transpose(1, 2)).transpose(1, 2)
            trains = torch.is_grad_enabled() and frames.device.type == "cpu"  # where PyTorch's own GRU is slow, most of all backwards
            return self.out((gru(self.rnn, frames) if trains else self.rnn(frames)[0]).mean(1))
        frames = _silenced(features.transpose(1, 2), lengths)
        for layer in self.conv:
            frames = layer(frames)
            if isinstance(layer, nn.MaxPool1d):
                lengths = lengths // 2  # as the pooling does, which drops an odd last frame
                frames = _silenced(frames, lengths)
        packed = pack_padded_sequence(frames.transpose(1, 2), lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)  # zeros behind each clip's end
        return self.out(hidden.sum(1) / lengths[:, None])


def _silenced(frames: Tensor, lengths: Tensor) -> Tensor:
    """Zeros behind each clip's end in [B, D, T]: what a convolution's own padding would be there."""
    return frames.masked_fill(padding(lengths, frames.shape[2])[:, None, :], 0.0)


EXAMPLE = """\
class CRNN(nn.Module):
    def __init__(self, bins, filters, hidden, bidirectional, classes):
        super().__init__()
        widths = [bins, *filters]
        pairs = zip(widths, filters)
        self.conv = nn.Sequential(*(p for i, o in pairs for p in (nn.Conv1d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2))))
        self.rnn = nn.GRU(widths[-1], hidden, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(hidden * (2 if bidirectional else 1), classes)

    def forward(self, mels):
        return self.out(self.rnn(self.conv(mels.transpose(1, 2)).transpose(1, 2))[0].mean(1))
"""


def example(settings: CRNNSettings, features: Mapping[str, Any], frames: int | None) -> str:
    """The script of `fedray.models.example` for this network."""
    size = SIZES[settings.size]
    make = f"CRNN({features['bins']}, {size.filters}, {size.hidden}, {size.bidirectional}, len(classes))"
    return script(EXAMPLE, make, features, frames)
