"""The CRNNs: the sizes of table 3 of FedMLAC and two more, and padding that changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedray.models.crnn import CRNN, SIZES, CRNNSettings

BINS, CLASSES = 40, 35


def network(size: str, dropout: float = 0.0) -> CRNN:
    torch.manual_seed(0)
    return CRNN(CRNNSettings(size, dropout), BINS, CLASSES)


def convolution(inputs: int, outputs: int) -> int:
    return 3 * inputs * outputs + outputs


def gru(inputs: int, hidden: int) -> int:
    """The parameters of a GRU: three gates, each with weights for input and state and two biases."""
    return 3 * (hidden * (inputs + hidden) + 2 * hidden)


# Parameters, counted by hand, for 40 bins and 35 classes.
COUNTS = {
    "tiny": convolution(40, 16) + gru(16, 32) + 32 * 35 + 35,
    "lite": convolution(40, 32) + convolution(32, 32) + gru(32, 64) + 64 * 35 + 35,
    "mid": convolution(40, 32) + 2 * convolution(32, 32) + gru(32, 64) + 64 * 35 + 35,
    "base": convolution(40, 64) + convolution(64, 64) + 2 * gru(64, 128) + 256 * 35 + 35,
    "deep": convolution(40, 64) + convolution(64, 128) + convolution(128, 128) + 2 * gru(128, 128) + 256 * 35 + 35,
    "wide": convolution(40, 256) + convolution(256, 256) + 2 * gru(256, 512) + 1024 * 35 + 35,
    "large": convolution(40, 512) + convolution(512, 512) + 2 * gru(512, 1024) + 2048 * 35 + 35,
}


@pytest.mark.parametrize("size", SIZES)
def test_parameters_by_hand(size: str) -> None:
    assert sum(parameter.numel() for parameter in network(size).parameters()) == COUNTS[size]


def test_three_sizes_as_numbers() -> None:
    assert (COUNTS["lite"], COUNTS["base"], COUNTS["wide"]) == (28_067, 178_083, 2_629_155)


def plain(model: CRNN, features: Tensor) -> Tensor:
    """The network as the paper draws it, for clips of one length."""
    hidden = features.transpose(1, 2)
    for layer in model.conv:
        if isinstance(layer, nn.Conv1d):
            hidden = nn.functional.max_pool1d(
                nn.functional.conv1d(hidden, layer.weight, layer.bias, padding=1).relu(), 2
            )
    return model.out(model.rnn(hidden.transpose(1, 2))[0].mean(1))


@pytest.mark.parametrize("size", SIZES)
def test_a_clip_does_not_hear_its_batch(size: str) -> None:
    """Padding changes neither outputs nor gradients, for odd and even lengths down to the shortest."""
    model = network(size)
    lengths = torch.tensor([98, 51, 98, 50, 17, 9, model.shortest])
    features = torch.randn(len(lengths), 98, BINS)
    alone = torch.cat([plain(model, features[i : i + 1, :length]) for i, length in enumerate(lengths.tolist())])
    torch.testing.assert_close(model(features, lengths), alone, rtol=1e-5, atol=1e-6)
    one_by_one = [model(features[i : i + 1, :length], lengths[i : i + 1]) for i, length in enumerate(lengths.tolist())]
    torch.testing.assert_close(torch.cat(one_by_one), alone, rtol=1e-5, atol=1e-6)
    expected = torch.autograd.grad(alone.square().sum(), list(model.parameters()))
    found = torch.autograd.grad(model(features, lengths).square().sum(), list(model.parameters()))
    for want, have in zip(expected, found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", [[98, 98, 98], [98, 97, 50]])
def test_without_compiled_loops(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model, features, counts = network("base"), torch.randn(3, 98, BINS), torch.tensor(lengths)
    compiled = model(features, counts)
    monkeypatch.setattr("fedray.models.crnn.on_cpu", lambda frames: False)
    torch.testing.assert_close(model(features, counts), compiled)


def test_dropout_stands_once_behind_the_convolutions() -> None:
    assert [layer.p for layer in network("mid", 0.3).conv if isinstance(layer, nn.Dropout)] == [0.3]
    assert isinstance(network("mid").conv[-1], nn.Dropout)


def test_faults_in_words() -> None:
    with pytest.raises(ValueError, match="a clip of 7 frames is too short: crnn mid needs 8"):
        network("mid")(torch.zeros(2, 9, BINS), torch.tensor([9, 7]))
    with pytest.raises(ValueError, match="size must be one of tiny, lite, mid, base, deep, wide, large, not 'huge'"):
        CRNNSettings("huge")
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        CRNNSettings(dropout=1.0)
