"""FedSTAR's network (section 5.2; after Tagliasacchi et al., 2019): separate convolutions over time and frequency.

    x: [B, 1, frames, bins]
    for filters F in 24, 32, 64, 128:
        t <- convolution (4, 1) of x, F filters                       # over time
        f <- convolution (1, 4) of x, F filters                       # over frequency; both keep the size
        h <- ReLU(group norm([t, f]))                                 # 4 groups of each
        x <- ReLU(max-pool 2 x 2(group norm(convolution 1 x 1 of h, F filters)))
        x <- spatial dropout(x)                                       # drops whole maps
    logits <- linear(maximum of x over time and frequency)

It has 136,196 parameters for 12 classes and 129 per further class, for any number of frames and bins. Pooling
before the last ReLU gives the same result as pooling after it, for a quarter of the work. One group norm of 8 groups
equals two of 4 groups.

On CPUs its blocks run as compiled loops (`fedray/models/kernels/separable.py`), over pieces of a batch (`PIECE`),
because the maps of 64 clips fit in no cache. CPU time of the forward and backward pass of a clip in ms, on one thread
of a busy AMD EPYC with two other processes on its core, medians of three, 2026-11-25:

    window    clips in a batch   modules   compiled
    49 x 32                  4       3.9        2.4
                            32       3.1        1.8
    98 x 64                  4      13.7        8.4
                            64      11.8        7.9
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad

from fedray.core.ranges import Part, Ranged
from fedray.models.export_classifier import script
from fedray.models.export_recogniser import FeatureDescription
from fedray.models.kernels import on_cpu
from fedray.models.padding import shortest_of

FILTERS = (24, 32, 64, 128)
KERNEL = 4
GROUPS = 4
SHORTEST = 2 ** len(FILTERS)  # frames, and bins: each block halves both, and one must be left
PIECE = 8 * 98 * 64  # frames times bins that a CPU processes together


@dataclass(frozen=True)
class AudioCNNSettings(Ranged):
    """The section `model` for kind `audio_cnn`."""

    dropout: Part = 0.1  # share of the maps that each block drops
    # A file with initial weights: a state dict of the same model, with or without its last layer `out`.
    init: str | None = None


class Block(nn.Module):
    """Convolutions over time and over frequency, joined by a 1 x 1 convolution. Halves frames and bins."""

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
        pooled: Tensor = self.dropout(max_pool2d(joint, 2).relu_())
        return pooled


class AudioCNN(nn.Module):
    """A classifier: log-mels [frames, bins] in, one logit for each class out.

    It is made for clips of one length (`task.window`). A batch of several lengths is slow: it is processed one length
    after the other, without reading any padding.
    """

    Settings: ClassVar[type] = AudioCNNSettings
    # The layer that initial weights may lack (see `load_weights`): pre-training knows no classes.
    head: ClassVar[str] = "out"
    width: ClassVar[int] = FILTERS[-1]  # dimensions of `embed`
    shortest: ClassVar[int] = SHORTEST
    clients_together: ClassVar[str] = "equal lengths"
    longest: ClassVar[int] = 10 * SHORTEST  # frames of a trace

    def __init__(self, settings: AudioCNNSettings, bins: int, classes: int) -> None:
        super().__init__()
        if bins < SHORTEST:
            raise ValueError(f"features.bins={bins} are too few: audio_cnn needs {SHORTEST}")
        self.settings, self.bins, self.classes = settings, bins, classes
        self.blocks = nn.Sequential(
            *(Block(c, f, settings.dropout) for c, f in zip((1, *FILTERS), FILTERS, strict=False))
        )
        self.out = nn.Linear(self.width, classes)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Features [B, T, bins] and lengths [B] in frames -> logits [B, classes]."""
        logits: Tensor = self.out(self.embed(features, lengths))
        return logits

    def embed(self, features: Tensor, lengths: Tensor) -> Tensor:
        """The inputs of the last layer, [B, width]. ValueError for a clip of fewer than 16 frames."""
        shortest = shortest_of(lengths)
        if shortest < SHORTEST:
            raise ValueError(f"a clip of {shortest} frames is too short: audio_cnn needs {SHORTEST}; set task.window")
        if shortest == features.shape[1]:
            return self._embed(features)
        found = features.new_empty(len(features), self.width)
        for length in sorted(set(lengths.tolist())):
            same = lengths == length
            found[same] = self._embed(features[same, :length]).to(found.dtype)  # bf16 under autocast
        return found

    def unpadded(self, features: Tensor) -> Tensor:
        """Features [B, T, bins] of clips of one length -> logits [B, classes]."""
        logits: Tensor = self.out(self.blocks(features.unsqueeze(1)).amax((2, 3)))
        return logits

    def _embed(self, windows: Tensor) -> Tensor:
        """Windows [B, T, bins] without padding -> [B, width]."""
        clips = PIECE // windows[0].numel() if windows.device.type == "cpu" else len(windows)
        compiled = on_cpu(windows)
        pieces = torch.split(windows, max(1, clips))
        return torch.cat([self._compiled(piece) if compiled else self._maxima(piece) for piece in pieces])

    def _maxima(self, windows: Tensor) -> Tensor:
        """The greatest value of each map of the last block."""
        maps: Tensor = self.blocks(windows.unsqueeze(1))
        return maps.amax((2, 3))

    def _compiled(self, windows: Tensor) -> Tensor:
        """`_maxima` by compiled loops."""
        from fedray.models.kernels.separable import block

        maps = windows.contiguous().unsqueeze(3)
        for module in self.blocks:
            maps = block(module, maps, GROUPS)
        return maps.amax((1, 2))


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
        time, frequency = pad(maps, (0, 0, before, after)), pad(maps, (before, after, 0, 0))
        both = torch.cat([self.time(time), self.frequency(frequency)], 1)
        return nn.functional.max_pool2d(self.joint_norm(self.joint(self.norm(both).relu())), 2).relu()


class AudioCNN(nn.Module):
    def __init__(self, filters, classes):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(c, f) for c, f in zip((1, *filters), filters)))
        self.out = nn.Linear(filters[-1], classes)

    def forward(self, mels):
        return self.out(self.blocks(mels[:, None]).amax((2, 3)))
"""


def example(features: FeatureDescription, frames: int | None, hop: int | None) -> str:
    """The text of example.py for this network; see `fedray.models.export_classifier.script`."""
    shape = {"kernel": KERNEL, "groups": GROUPS, "before": (KERNEL - 1) // 2, "after": KERNEL // 2}
    return script(EXAMPLE % shape, f"AudioCNN({FILTERS}, len(classes))", features, frames, hop)
