"""Steps of pre-trained encoders whose activations are computed again, with padding in the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedray.models.encoder import Encoder
from fedray.models.encoder_states import EncoderSettings, checkpoint_of
from fedray.training.large import StepSettings, stepping
from fedray.training.recognisers import by_ctc
from fedray.training.speech_to_text import aligned_loss
from tests.encoders import write_encoder


@pytest.mark.parametrize("kind", ["wav2vec2", "wav2vec2-conformer", "data2vec-audio"])
def test_padding_is_no_speech_when_layers_are_computed_again(kind: str, tmp_path: Path) -> None:
    settings = EncoderSettings(str(write_encoder(tmp_path, kind)), layer_drop=0.0, frozen=["^ctc_head"])
    bins = checkpoint_of(settings).features.get("bins", 1)
    lengths = torch.tensor([6000, 3100])
    speech = torch.randn(2, 6000, bins, generator=torch.Generator().manual_seed(1))
    found = []
    for how in (StepSettings(), StepSettings(recompute=True)):
        torch.manual_seed(0)
        model = Encoder(settings, bins, 8).train()
        torch.manual_seed(1)
        with stepping(model, how, "cpu"):
            log_probs, counts = by_ctc(model, speech, lengths)
            aligned_loss(log_probs, torch.tensor([1, 2, 3]), counts, torch.tensor([2, 1])).backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(found[0]) > 10
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-7)
