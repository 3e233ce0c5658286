"""The convolutional recurrent networks of FedMLAC, table 3, and two larger ones.

Convolutions over time are followed by a GRU, its mean over time and a linear layer.

Padding has no effect: a clip's result does not depend on the lengths of the other clips in its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedray.core.ranges import Part, Ranged, one_of
from fedray.models.export_classifier import script
from fedray.models.export_recogniser import FeatureDescription
from fedray.models.kernels import on_cpu
from fedray.models.padding import padding, several_clients, shortest_of
from fedray.models.unpacked import recurrent


@dataclass(frozen=True)
class Size:
    """The layers of one network."""

    filters: tuple[int, ...]  # of each convolution
    hidden: int  # units of the GRU in each direction
    bidirectional: bool = False


SIZES = {
    "tiny": Size((16,), 32),
    "lite": Size((32, 32), 64),
    "mid": Size((32, 32, 32), 64),
    "base": Size((64, 64), 128, True),
    "deep": Size((64, 128, 128), 128, True),  # the paper says 3 convolutions, 64 -> 128; which one widens is our choice
    "wide": Size((256, 256), 512, True),  # [ours]: 2.6 million parameters
    "large": Size((512, 512), 1024, True),  # [ours]: 10 million
}


@dataclass(frozen=True)
class CRNNSettings(Ranged):
    """The section `model` for kind `crnn`."""

    size: str = one_of(SIZES, "base")  # base | lite | tiny | mid | deep | wide | large
    dropout: Part = 0.1  # share of the convolutions' outputs that training drops
    init: str | None = None  # a file with initial weights: a state dict of the same model


class CRNN(nn.Module):
    """A classifier: log-mels [frames, bins] in, one logit for each class out. Each convolution halves the frames."""

    Settings: ClassVar[type] = CRNNSettings
    clients_together: ClassVar[str] = "any shapes"

    def __init__(self, settings: CRNNSettings, bins: int, classes: int) -> None:
        super().__init__()
        self.settings, self.bins, self.classes = settings, bins, classes
        size = SIZES[settings.size]
        self.shortest = 2 ** len(size.filters)  # frames: each convolution halves them, and one must be left
        self.longest = 10 * self.shortest  # frames of a trace
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
        shortest = shortest_of(lengths)
        if shortest < self.shortest:
            raise ValueError(
                f"a clip of {shortest} frames is too short: crnn {self.settings.size} needs {self.shortest}"
            )
        logits: Tensor
        if on_cpu(features):
            states, lengths = self._compiled(features, lengths)
            if shortest < features.shape[1]:
                states = states.masked_fill(padding(lengths, states.shape[1])[..., None], 0.0)
            logits = self.out(states.sum(1) / lengths[:, None])
            return logits
        if shortest == features.shape[1] and not several_clients():  # without padding, no masks are needed
            frames = self.conv(features.transpose(1, 2)).transpose(1, 2)
            logits = self.out(self.rnn(frames)[0].mean(1))
            return logits
        frames = _silenced(features.transpose(1, 2), lengths)
        for layer in self.conv:
            frames = layer(frames)
            if isinstance(layer, nn.MaxPool1d):
                lengths = lengths // 2  # pooling drops an odd last frame
                frames = _silenced(frames, lengths)
        frames = frames.transpose(1, 2)
        if several_clients():
            behind = padding(lengths, frames.shape[1])[..., None]
            hidden = recurrent(self.rnn, frames, lengths).masked_fill(behind, 0.0)
        else:
            packed = pack_padded_sequence(frames, lengths.cpu(), batch_first=True, enforce_sorted=False)
            hidden, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)  # zeros after each clip's end
        logits = self.out(hidden.sum(1) / lengths[:, None])
        return logits

    def _compiled(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The GRU's states and their lengths. The states of padding frames mean nothing."""
        from fedray.models.kernels.pooled import halved
        from fedray.models.kernels.recurrent import recurrent

        convolutions = [layer for layer in self.conv if isinstance(layer, nn.Conv1d)]
        frames = halved(convolutions, features, lengths)
        frames = self.conv[-1](frames.transpose(1, 2).contiguous()).transpose(1, 2)  # dropout in the modules' order
        lengths = lengths // 2 ** len(convolutions)
        return recurrent(self.rnn, frames, lengths), lengths

    def unpadded(self, features: Tensor) -> Tensor:
        """Features [B, T, bins] of clips of one length -> logits [B, classes]."""
        frames = self.conv(features.transpose(1, 2)).transpose(1, 2)
        logits: Tensor = self.out(self.rnn(frames)[0].mean(1))
        return logits


def _silenced(frames: Tensor, lengths: Tensor) -> Tensor:
    """Put zeros after each clip's end in [B, D, T]: a convolution pads a single clip with the same values."""
    return frames.masked_fill(padding(lengths, frames.shape[2])[:, None, :], 0.0)


EXAMPLE = """\
class CRNN(nn.Module):
    def __init__(self, bins, filters, hidden, bidirectional, classes):
        super().__init__()
        widths = [bins, *filters]
        pairs = zip(widths, filters)
        blocks = [[nn.Conv1d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2)] for i, o in pairs]
        self.conv = nn.Sequential(*sum(blocks, []))
        self.rnn = nn.GRU(widths[-1], hidden, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(hidden * (2 if bidirectional else 1), classes)

    def forward(self, mels):
        return self.out(self.rnn(self.conv(mels.transpose(1, 2)).transpose(1, 2))[0].mean(1))
"""


def example(settings: CRNNSettings, features: FeatureDescription, frames: int | None, hop: int | None) -> str:
    """The text of example.py for this network; see `fedray.models.export_classifier.script`."""
    size = SIZES[settings.size]
    make = f"CRNN({features['bins']}, {size.filters}, {size.hidden}, {size.bidirectional}, len(classes))"
    return script(EXAMPLE, make, features, frames, hop)
