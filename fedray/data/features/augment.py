"""SpecAugment (Park et al., Interspeech 2019), through SpeechBrain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedray.core.ranges import Natural, Ranged, Share
from fedray.data.features.dataset import Batch


@dataclass(frozen=True)
class SpecAugmentSettings(Ranged):
    """Numbers and widths of the masks of an utterance, and how far time is warped.

    A width is drawn uniformly from 0 to the given one. The defaults are for 40 bins and utterances of 2 to 4
    seconds at 100 frames a second.
    """

    time_masks: Natural = 2  # masks along time; 0: none
    time_width: Natural = 10  # frames of the widest time mask
    frequency_masks: Natural = 2  # masks along frequency; 0: none
    frequency_width: Natural = 5  # bins of the widest frequency mask
    longest_share: Share = 0.2  # a time mask covers at most this share of the batch's frames (p in the paper)
    time_warp: Natural = 0  # frames by which a point of a batch moves at most (W in the paper); 0: no warping


class SpecAugment:
    """Masks each utterance differently, and warps a batch as a whole, with draws from torch's global generator.

    A masked value becomes 0, the mean of normalised features. Lengths of utterances stay as they are.
    """

    def __init__(self, settings: SpecAugmentSettings) -> None:
        self.settings = settings

    def __call__(self, batch: Batch) -> Batch:
        """Return a warped and masked copy of the batch; the batch itself if there is neither."""
        settings = self.settings
        if settings.time_warp:
            batch = replace(batch, features=_warp(batch.features, settings.time_warp))
        if not settings.time_masks and not settings.frequency_masks:
            return batch
        size, frames, bins = batch.features.shape
        # SpeechBrain masks in place. Masking ones and multiplying saves a copy of the features and two slow passes over
        # them.
        time = batch.features.new_ones(size, frames, 1)
        time = _mask(time, settings.time_masks, min(settings.time_width, int(settings.longest_share * frames)), dim=1)
        frequency = batch.features.new_ones(size, 1, bins)
        frequency = _mask(frequency, settings.frequency_masks, min(settings.frequency_width, bins), dim=2)
        return replace(batch, features=(batch.features * time).mul_(frequency))


def _warp(features: torch.Tensor, window: int) -> torch.Tensor:
    from speechbrain.augment.freq_domain import Warping  # as in `_mask`

    warped: torch.Tensor = Warping(window)(features.clone())  # SpeechBrain warps in place
    return warped


def _mask(ones: torch.Tensor, count: int, widest: int, dim: int) -> torch.Tensor:
    # Imported here, because importing SpeechBrain takes most of a second.
    from speechbrain.augment.freq_domain import SpectrogramDrop

    if count == 0 or widest == 0:
        return ones
    # SpeechBrain draws widths below `drop_length_high`, but counts up to and including `drop_count_high`.
    drop = SpectrogramDrop(
        drop_length_low=0, drop_length_high=widest + 1, drop_count_low=count, drop_count_high=count, dim=dim
    )
    mask: torch.Tensor = drop(ones)
    return mask
