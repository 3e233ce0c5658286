"""Windows of one length cut from clips of many: a random one a clip to train on, all of them side by side to judge a clip by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedray.data.dataset import Batch


def random_window(batch: Batch, frames: int) -> Batch:
    """One window of `frames` a clip, drawn from torch's global generator; a shorter clip is centred between zeros. A new batch."""
    if bool((batch.lengths == frames).all()) and batch.features.shape[1] == frames:
        return batch
    room = (batch.lengths - frames).clamp(min=0)
    starts = (torch.rand(len(batch)) * (room.cpu() + 1)).long()
    return Batch(cut(batch, range(len(batch)), starts.tolist(), frames), torch.full_like(batch.lengths, frames), batch.positions)


def all_windows(batch: Batch, frames: int) -> tuple[Batch, np.ndarray]:
    """As few windows of `frames` as cover each clip, evenly spread, and the clip of each (its place in the batch), int64 [windows].

    The positions of the windows are those of their clips.
    """
    clips, starts = [], []
    for place, length in enumerate(batch.lengths.tolist()):
        count = max(1, -(-length // frames))
        clips += [place] * count
        starts += np.linspace(0, max(0, length - frames), count).round().astype(int).tolist()
    lengths = torch.full((len(clips),), frames, dtype=batch.lengths.dtype, device=batch.lengths.device)
    return Batch(cut(batch, clips, starts, frames), lengths, batch.positions[clips]), np.asarray(clips, np.int64)


def cut(batch: Batch, clips: Sequence[int], starts: Sequence[int], frames: int) -> Tensor:
    """[windows, frames, bins]: of each of these clips `frames` from its start on, what is missing being zeros on both sides."""
    windows = batch.features.new_zeros(len(clips), frames, batch.features.shape[2])
    lengths = batch.lengths.tolist()
    for place, (clip, start) in enumerate(zip(clips, starts, strict=True)):
        length = min(lengths[clip], frames)
        before = (frames - length) // 2
        windows[place, before : before + length] = batch.features[clip, start : start + length]
    return windows
