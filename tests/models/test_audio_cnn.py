"""FedSTAR's network: the paper's architecture and size, padding that changes nothing, and weights to start from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, group_norm, max_pool2d, pad, relu

from fedray.models import audio_cnn
from fedray.models.audio_cnn import FILTERS, AudioCNN, AudioCNNSettings
from fedray.models.weights import load_weights

BINS, CLASSES = 64, 12


def network(dropout: float = 0.0, classes: int = CLASSES, seed: int = 0) -> AudioCNN:
    torch.manual_seed(seed)
    model = AudioCNN(AudioCNNSettings(dropout), BINS, classes)
    with torch.no_grad():  # group norms start as the identity; noise tells them apart
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def plain(model: AudioCNN, features: Tensor) -> Tensor:
    """The network as the paper draws it, for clips of one length: convolutions, group norms and ReLUs, then pooling."""
    maps = features[:, None]
    for block, filters in zip(model.blocks, FILTERS, strict=True):
        weight, bias = block.norm.weight.split(filters), block.norm.bias.split(filters)
        time = conv2d(pad(maps, (0, 0, 1, 2)), block.time.weight, block.time.bias)
        frequency = conv2d(pad(maps, (1, 2, 0, 0)), block.frequency.weight, block.frequency.bias)
        time, frequency = (relu(group_norm(x, 4, weight[i], bias[i])) for i, x in enumerate((time, frequency)))
        joint = conv2d(torch.cat([time, frequency], 1), block.joint.weight, block.joint.bias)
        maps = max_pool2d(relu(group_norm(joint, 4, block.joint_norm.weight, block.joint_norm.bias)), 2)
    return model.out(maps.flatten(2).max(2).values)


def test_parameters_by_hand() -> None:
    inputs = (1, *FILTERS[:-1])
    convolutions = sum(2 * (4 * i * f + f) + (2 * f * f + f) for i, f in zip(inputs, FILTERS, strict=True))
    norms = sum(2 * 2 * f + 2 * f for f in FILTERS)
    assert (
        sum(parameter.numel() for parameter in network().parameters())
        == convolutions + norms + 128 * CLASSES + CLASSES
        == 136_196
    )


def test_it_is_the_papers_network_whatever_the_batch() -> None:
    """11 clips are computed in pieces of 8 and 3. The modules are tested in float64, the compiled loops in float32."""
    model, lengths = network(), torch.full((11,), 98)
    features = torch.randn(11, 98, BINS)
    torch.testing.assert_close(model(features, lengths), plain(model, features), rtol=1e-4, atol=1e-5)
    model.double()
    expected, found = plain(model, features.double()), model(features.double(), lengths)
    torch.testing.assert_close(found, expected)
    want = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    have = torch.autograd.grad(found.square().sum(), list(model.parameters()))
    for w, h in zip(want, have, strict=True):
        torch.testing.assert_close(h, w, rtol=1e-6, atol=1e-6 * float(w.abs().max()))


def test_a_clip_does_not_hear_its_batch() -> None:
    model = network()
    lengths = torch.tensor([40, 31, 40, 16, 31])
    features = torch.randn(5, 40, BINS)  # the padding is loud
    alone = torch.cat([plain(model, features[i : i + 1, :length]) for i, length in enumerate(lengths.tolist())])
    torch.testing.assert_close(model(features, lengths), alone, rtol=1e-4, atol=1e-5)


def test_dropout_takes_whole_maps_behind_each_block() -> None:
    assert [module.p for module in network(0.3).modules() if isinstance(module, nn.Dropout2d)] == [0.3] * 4
    model = network(0.5).train()
    maps = model.blocks[0](torch.randn(1, 1, 16, BINS))[0].flatten(1)
    assert 0 < sum(bool((channel == 0).all()) for channel in maps) < 24
    torch.manual_seed(1)
    first = model(torch.ones(2, 16, BINS), torch.full((2,), 16))
    torch.manual_seed(1)
    assert torch.equal(first, model(torch.ones(2, 16, BINS), torch.full((2,), 16)))


def test_weights_may_lack_the_last_layer(tmp_path: Path) -> None:
    taught, fresh = network(seed=1), network(classes=5)
    state = taught.state_dict()
    torch.save({name: value for name, value in state.items() if not name.startswith("out.")}, tmp_path / "encoder.pt")
    out = fresh.out.weight.clone()
    assert load_weights(fresh, tmp_path / "encoder.pt") == ["out.bias", "out.weight"]
    assert torch.equal(fresh.out.weight, out) and torch.equal(
        fresh.blocks[3].joint.weight, taught.blocks[3].joint.weight
    )
    torch.save(state, tmp_path / "whole.pt")
    assert load_weights(network(), tmp_path / "whole.pt") == []
    with pytest.raises(ValueError, match=r"out.bias has shape \(12,\), the model \(5,\)"):
        load_weights(fresh, tmp_path / "whole.pt")
    torch.save({name: value for name, value in state.items() if name != "out.bias"}, tmp_path / "half.pt")
    with pytest.raises(ValueError, match=r"half.pt does not fit the model \(1 entries\): missing out.bias"):
        load_weights(network(), tmp_path / "half.pt")


def test_faults_in_words() -> None:
    with pytest.raises(ValueError, match="a clip of 15 frames is too short: audio_cnn needs 16; set task.window"):
        network()(torch.zeros(2, 20, BINS), torch.tensor([20, 15]))
    with pytest.raises(ValueError, match="features.bins=10 are too few: audio_cnn needs 16"):
        AudioCNN(AudioCNNSettings(), 10, CLASSES)
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        AudioCNNSettings(dropout=1.0)
    assert audio_cnn.SHORTEST == 16
