"""Random masks of time, in whole spans within each utterance."""

from __future__ import annotations

import torch

from fedray.models.speech_only import spans


def test_spans() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([100, 60, 3, 4])
    found = torch.stack([spans(lengths, 100, 0.3, 4, 2) for _ in range(200)])
    assert not found[:, 1, 60:].any() and not found[:, 2].any(), "masks lie in the utterance, and need room"
    assert found[:, 3, :4].all(), "at least `fewest`, of which one fits"
    ends = torch.nn.functional.pad(found, (1, 1)).int().diff(dim=-1)
    runs = (ends == -1).nonzero()[:, 2] - (ends == 1).nonzero()[:, 2]
    assert int(runs.min()) == 4, "whole spans"
    share = found[:, 0].float().mean()
    assert 0.2 < share < 0.3, "overlaps leave less than the share"
    assert not spans(lengths, 100, 0.0, 4, 0).any()
