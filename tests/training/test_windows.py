"""Windows of clips: coverage, random places, padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedray.data.features.dataset import Batch
from fedray.data.features.log_mel import LogMelSettings
from fedray.training.windows import all_windows, random_window


def batch(*lengths: int) -> Batch:
    """Frame t of clip i holds 100 i + t + 1 in both bins."""
    features = torch.zeros(len(lengths), max(lengths), 2)
    for clip, length in enumerate(lengths):
        features[clip, :length] = (100 * clip + 1 + torch.arange(length, dtype=torch.float32))[:, None]
    return Batch(features, torch.tensor(lengths), np.arange(len(lengths)) + 7)


def rows(found: Batch) -> list[list[int]]:
    assert (found.features[..., 0] == found.features[..., 1]).all()
    return found.features[..., 0].int().tolist()


def test_as_few_windows_as_cover_a_clip() -> None:
    found, clips = all_windows(batch(4, 9, 2), 4)
    assert rows(found) == [
        [1, 2, 3, 4],
        [101, 102, 103, 104],
        [103, 104, 105, 106],
        [106, 107, 108, 109],
        [0, 201, 202, 0],
    ]
    assert (
        clips.tolist() == [0, 1, 1, 1, 2]
        and found.positions.tolist() == [7, 8, 8, 8, 9]
        and found.lengths.tolist() == [4] * 5
    )


def test_windows_start_every_hop_and_are_whole() -> None:
    for hop, starts in ((2, [1, 3, 5]), (4, [1, 5])):
        found, clips = all_windows(batch(9, 3, 4), 4, hop=hop)
        first = [window[0] for window in rows(found)]
        assert first == [*starts, 101, 201] and clips.tolist() == [0] * len(starts) + [1, 2]


def test_a_random_window_of_each_clip() -> None:
    torch.manual_seed(0)
    starts = set()
    for _ in range(50):
        found = rows(random_window(batch(6, 3), 4))
        assert found[0] == list(range(found[0][0], found[0][0] + 4)) and found[1] == [101, 102, 103, 0]
        starts.add(found[0][0])
    assert starts == {1, 2, 3}


def test_clips_of_a_windows_length_stay() -> None:
    given = batch(4, 4)
    assert random_window(given, 4) is given


def test_padding_of_whole_spectra_is_silence() -> None:
    """Without mean subtraction, 0 is as loud as speech, so padding is silence instead."""
    silence = LogMelSettings(normalise="waveform").silence
    assert silence == LogMelSettings(normalise="none").silence < -18 and LogMelSettings().silence == 0
    windows, _ = all_windows(batch(2), 4, silence)
    assert windows.features[0, [0, 3]].unique().tolist() == pytest.approx([silence])
    assert torch.equal(windows.features[0, 1:3], batch(2).features[0])
