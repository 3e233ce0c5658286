"""The convolutional network of FedSTAR (section 5.2; after Tagliasacchi et al., 2019): time and frequency convolved apart, then joined.

    x: [B, 1, frames, bins]
    for filters F in 24, 32, 64, 128:
        t <- convolution (4, 1) of x, F filters                       # over time
        f <- convolution (1, 4) of x, F filters                       # over frequency; both keep the size
        h <- ReLU(group norm([t, f]))                                 # 4 groups of each
        x <- ReLU(max-pool 2 x 2(group norm(convolution 1 x 1 of h, F filters)))
        x <- spatial dropout(x)                                       # whole maps
    logits <- linear(largest of x over time and frequency)

136,196 parameters for 12 classes, 129 a class more; frames and bins do not count. Pooling before the last ReLU is the same as after it, and
a quarter of the work; so is one group norm of 8 groups for the two of 4.

CPU time of a forward and backward pass of 64 windows of 98 x 64 on one thread of a busy AMD EPYC, PyTorch 2.11, best of 3, 2026-11-21:
1.08 s as one batch, 0.75 s channels_last, 0.48 s in pieces of 8 clips (`PIECE`; channels_last then costs more than it brings, 0.55 s):
the maps of 64 clips take 38 MB each, which no cache holds and the allocator gives back to the system every time. Of 49 x 32, 1.9 ms a clip
in pieces of 32, 2.2 ms in pieces of 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad

from fedray.models.example import script

FILTERS = (24, 32, 64, 128)
KERNEL = 4
GROUPS = 4
SHORTEST = 2 ** len(FILTERS)  # frames, and bins: one must be left behind the last pooling
PIECE = 8 * 98 * 64  # frames times bins that go through the network together on a CPU


@dataclass(frozen=True)
class AudioCNNSettings:
    dropout: float = 0.1  # share of the maps that are dropped behind each block
    init: str | None = None  # a file of weights to start from: a state dict of the same model, with or without its last layer `out`

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout is a share from 0 to below 1, not {self.dropout}")


class Block(nn.Module):
    def __init__(self, channels: int, filters: int, dropout: float) -> None:
        super().__init__()
        self.time = nn.Conv2d(channels, filters, (KERNEL, 1))
        self.frequency = nn.Conv2d(channels, filters, (1, KERNEL))
        self.norm = nn.GroupNorm(2 * GROUPS, 2 * filters)
        self.joint = nn.Conv2d(2 * filters, filters, 1)
        self.joint_norm = nn.GroupNorm(GROUPS, filters)
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, channels, T, D] -> [B, filters, T // 2, D // 2]."""
        before, after = (KERNEL - 1) // 2, KERNEL // 2  # "same" padding of an even kernel, as TensorFlow's
        time, frequency = pad(maps, (0, 0, before, after)), pad(maps, (before, after, 0, 0))
        both = torch.cat([self.time(time), self.frequency(frequency)], 1)
        joint = self.joint_norm(self.joint(self.norm(both).relu_()))
        return self.dropout(max_pool2d(joint, 2).relu_())


class AudioCNN(nn.Module):
    """`bins` log-mels a frame in, one logit a class out; for windows of one length (`task.window`).

    Clips of several lengths in one batch go through it length by length: right, since nothing of a padding is read, but slow.
    """

    Settings: ClassVar[type] = AudioCNNSettings
    head: ClassVar[str] = "out"  # what weights to start from may lack (see `load_weights`): pre-training knows no classes
    width: ClassVar[int] = FILTERS[-1]  # of `embed`

    def __init__(self, settings: AudioCNNSettings, bins: int, classes: int) -> None:
        super().__init__()
        if bins < SHORTEST:
            raise ValueError(f"features.bins={bins} are too few: audio_cnn needs {SHORTEST}")
        self.settings, self.bins, self.classes = settings, bins, classes
        self.blocks = nn.Sequential(*(Block(c, f, settings.dropout) for c, f in zip((1, *FILTERS), FILTERS, strict=False)))
        self.out = nn.Linear(self.width, classes)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Features [B, T, bins] and lengths [B] in frames -> logits [B, classes]."""
        logits: Tensor = self.out(self.embed(features, lengths))
        return logits

    def embed(self, features: Tensor, lengths: Tensor) -> Tensor:
        """What the last layer reads, [B, width]. ValueError for a clip of fewer than 16 frames."""
        shortest = int(lengths.min())
        if shortest < SHORTEST:
            raise ValueError(f"a clip of {shortest} frames is too short: audio_cnn needs {SHORTEST}; set task.window")
        if shortest == features.shape[1]:
            return self._embed(features)
        found = features.new_empty(len(features), self.width)
        for length in lengths.unique().tolist():
            same = lengths == length
            found[same] = self._embed(features[same, :length])
        return found

    def _embed(self, windows: Tensor) -> Tensor:
        """[B, T, bins], nothing of it padding -> [B, width]."""
        clips = PIECE // windows[0].numel() if windows.device.type == "cpu" else len(windows)
        pieces = windows.unsqueeze(1).split(max(1, clips))
        return torch.cat([self.blocks(piece).amax((2, 3)) for piece in pieces])


EXAMPLE = """\
class Block(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.time = nn.Conv2d(channels, filters, (%(kernel)d, 1))
        self.frequency = nn.Conv2d(channels, filters, (1, %(kernel)d))
        self.norm = nn.GroupNorm(2 * %(groups)d, 2 * filters)
        self.joint = nn.Conv2d(2 * filters, filters, 1)
        self.joint_norm = nn.GroupNorm(%(groups)d, filters)

    def forward(self, maps):
        before, after = %(before)d, %(after)d
        both = torch.cat([self.time(pad(maps, (0, 0, before, after))), self.frequency(pad(maps, (before, after, 0, 0)))], 1)
        return nn.functional.max_pool2d(self.joint_norm(self.joint(self.norm(both).relu())), 2).relu()


class AudioCNN(nn.Module):
    def __init__(self, filters, classes):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(c, f) for c, f in zip((1, *filters), filters)))
        self.out = nn.Linear(filters[-1], classes)

    def forward(self, mels):
        return self.out(self.blocks(mels[:, None]).amax((2, 3)))
"""


def example(features: Mapping[str, Any], frames: int | None) -> str:
    """The script of `fedray.models.example` for this network."""
    shape = {"kernel": KERNEL, "groups": GROUPS, "before": (KERNEL - 1) // 2, "after": KERNEL // 2}
    return script(EXAMPLE % shape, f"AudioCNN({FILTERS}, len(classes))", features, frames)
