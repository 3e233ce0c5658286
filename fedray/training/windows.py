"""Windows of one length from clips of any length: a random one of each clip for training, all of them for scoring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedray.data.features.dataset import Batch


def random_window(batch: Batch, frames: int, silence: float = 0.0) -> Batch:
    """A batch with one window of `frames` from each clip, at a place drawn from torch's global generator.

    A shorter clip is centred in `silence`.
    """
    if bool((batch.lengths == frames).all()) and batch.features.shape[1] == frames:
        return batch
    room = (batch.lengths - frames).clamp(min=0)
    starts = (torch.rand(len(batch)) * (room.cpu() + 1)).long()
    windows = cut(batch, range(len(batch)), starts.tolist(), frames, silence)
    return Batch(windows, torch.full_like(batch.lengths, frames), batch.positions)


def all_windows(
    batch: Batch, frames: int, silence: float = 0.0, hop: int | None = None
) -> tuple[Batch, npt.NDArray[np.int64]]:
    """Windows of `frames` of each clip, and each window's clip, int64 [windows].

    They start every `hop` frames, as far as the clip holds whole windows (FedAudio; FedSTAR, whose hop is a window); or
    without a hop they are the fewest that cover the clip, evenly spread. A window's clip is given by its place in the
    batch. A clip shorter than a window is centred in `silence`. The windows have the positions of their clips.
    """
    clips: list[int] = []
    starts: list[int] = []
    for clip, length in enumerate(batch.lengths.tolist()):
        last = max(0, length - frames)
        if hop is None:
            of_clip = np.linspace(0, last, max(1, -(-length // frames))).round().astype(int)
        else:
            of_clip = np.arange(0, last + 1, hop)
        clips += [clip] * len(of_clip)
        starts += of_clip.tolist()
    lengths = torch.full((len(clips),), frames, dtype=batch.lengths.dtype, device=batch.lengths.device)
    windows = cut(batch, clips, starts, frames, silence)
    return Batch(windows, lengths, batch.positions[clips]), np.asarray(clips, np.int64)


def cut(batch: Batch, clips: Sequence[int], starts: Sequence[int], frames: int, silence: float) -> Tensor:
    """Cut a window from each clip at the given start, [windows, frames, bins]; a shorter clip is centred in silence."""
    windows = batch.features.new_full((len(clips), frames, batch.features.shape[2]), silence)
    lengths = batch.lengths.tolist()
    for window, (clip, start) in enumerate(zip(clips, starts, strict=True)):
        length = min(lengths[clip], frames)
        before = (frames - length) // 2
        windows[window, before : before + length] = batch.features[clip, start : start + length]
    return windows
