from __future__ import annotations

import numpy as np
import pytest
import torch

from fedray.data.features.augment import SpecAugment, SpecAugmentSettings
from fedray.data.features.dataset import Batch


def batch_of(frames: int = 200, bins: int = 40, size: int = 8) -> Batch:
    return Batch(torch.ones(size, frames, bins), torch.full((size,), frames), np.arange(size))


def test_masks_are_whole_frames_and_whole_bins_within_the_widths() -> None:
    torch.manual_seed(0)
    settings = SpecAugmentSettings(time_masks=2, time_width=20, frequency_masks=1, frequency_width=8)
    for _ in range(20):
        batch = batch_of()
        masked = SpecAugment(settings)(batch).features == 0
        frames, bins = masked.all(dim=2), masked.all(dim=1)  # [batch, frames], [batch, bins]
        assert torch.equal(masked, frames[:, :, None] | bins[:, None, :])
        assert frames.sum(dim=1).max() <= 2 * 20 and bins.sum(dim=1).max() <= 8
        assert torch.equal(batch.features, torch.ones(8, 200, 40))  # the given batch stays as it was


def test_the_widest_mask_occurs() -> None:
    torch.manual_seed(0)
    augment = SpecAugment(SpecAugmentSettings(time_masks=0, frequency_masks=1, frequency_width=3))
    widths = torch.cat([(augment(batch_of()).features == 0).all(dim=1).sum(dim=1) for _ in range(50)])
    assert set(widths.tolist()) == {0, 1, 2, 3}


def test_every_utterance_has_the_number_of_masks() -> None:
    """With one mask of 0 or 1 bins, half of the utterances lose a bin; with 0 or 1 masks, a quarter would."""
    torch.manual_seed(0)
    augment = SpecAugment(SpecAugmentSettings(time_masks=0, frequency_masks=1, frequency_width=1))
    hit = torch.cat([(augment(batch_of(frames=2)).features == 0).any(dim=2).any(dim=1) for _ in range(50)])
    assert hit.float().mean() == pytest.approx(0.5, abs=0.1)  # of 400: four standard deviations


def test_short_batches_keep_most_of_their_frames() -> None:
    torch.manual_seed(0)
    settings = SpecAugmentSettings(time_masks=1, time_width=50, frequency_masks=0, longest_share=0.2)
    masked = torch.cat(
        [(SpecAugment(settings)(batch_of(frames=30)).features == 0).all(dim=2).sum(dim=1) for _ in range(30)]
    )
    assert masked.max() == 6  # 0.2 of 30
    assert torch.equal(SpecAugment(settings)(batch_of(frames=4)).features, torch.ones(8, 4, 40))


def test_utterances_of_a_batch_get_masks_of_their_own() -> None:
    torch.manual_seed(0)
    features = SpecAugment(SpecAugmentSettings())(batch_of()).features
    assert not torch.equal(features[0], features[1])


def test_masks_follow_the_global_generator() -> None:
    augment = SpecAugment(SpecAugmentSettings())
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(augment(batch_of()).features)
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_lengths_and_positions_stay() -> None:
    batch = batch_of()
    augmented = SpecAugment(SpecAugmentSettings())(batch)
    assert augmented.lengths is batch.lengths and augmented.positions is batch.positions


def test_no_masks_no_change() -> None:
    assert torch.equal(
        SpecAugment(SpecAugmentSettings(time_masks=0, frequency_masks=0))(batch_of()).features, batch_of().features
    )


@pytest.mark.parametrize("wrong", [{"time_masks": -1}, {"frequency_width": -2}, {"longest_share": 1.5}])
def test_settings_that_cannot_be(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SpecAugmentSettings(**wrong)


def test_warping_moves_a_point_by_at_most_its_width() -> None:
    """Features that say their frame: their ends stay, their order too, and short batches are left alone."""
    torch.manual_seed(0)
    augment = SpecAugment(SpecAugmentSettings(time_masks=0, frequency_masks=0, time_warp=5))
    frames = torch.arange(200.0)
    batch = Batch(frames[None, :, None].expand(8, -1, 40).clone(), torch.full((8,), 200), np.arange(8))
    moved = []
    for _ in range(50):
        warped = augment(batch).features
        assert torch.equal(warped, warped[:1, :, :1].expand_as(warped)), "one draw for a batch"
        assert torch.equal(batch.features[0, :, 0], frames)
        assert float(warped[0, 0, 0]) == 0 and float(warped[0, -1, 0]) == pytest.approx(199, abs=1e-3)
        moved.append(float((warped[0, :, 0] - frames).abs().max()))
    assert 3 < max(moved) <= 6 and len(set(moved)) > 5
    short = batch_of(frames=10)
    assert torch.equal(augment(short).features, short.features)
