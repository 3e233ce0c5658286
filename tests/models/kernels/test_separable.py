"""The compiled blocks of FedSTAR's network against its modules: outputs, gradients, dropout, NaN and infinity."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fedray.models.audio_cnn import GROUPS, AudioCNN, AudioCNNSettings
from fedray.models.kernels import separable
from tests.models.kernels.test_recurrent import assert_near

# Window -> the relative error of gradients that rounding explains: of many places, two may be so close that rounding
# decides which is larger, and so which of them gets the gradient.
WINDOWS = {(17, 19): 1e-5, (16, 16): 1e-5, (34, 18): 1e-5, (49, 32): 0.05, (98, 64): 0.05}


def network(bins: int, dropout: float = 0.0) -> AudioCNN:
    """A network with random norms, which are the identity before the first step."""
    torch.manual_seed(0)
    made = AudioCNN(AudioCNNSettings(dropout), bins, 5)
    for module in made.modules():
        if isinstance(module, nn.GroupNorm):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return made


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("clips", [1, 5])
def test_the_network_is_that_of_the_modules(window: tuple[int, int], clips: int) -> None:
    """Outputs and gradients, also the features', are those of the modules in float64, which the loops do not accept."""
    made = network(window[1])
    precise = copy.deepcopy(made).double()
    features, lengths = torch.randn(clips, *window), torch.full((clips,), window[0])
    inputs = [features.clone().requires_grad_(), features.double().requires_grad_()]
    found, expected = made(inputs[0], lengths), precise(inputs[1], lengths)
    assert_near(found.double(), expected)
    direction = torch.randn_like(found)
    have = torch.autograd.grad(found, [inputs[0], *made.parameters()], direction)
    want = torch.autograd.grad(expected, [inputs[1], *precise.parameters()], direction.double())
    for h, w in zip(have, want, strict=True):
        assert h.shape == w.shape
        assert (h - w).norm() <= WINDOWS[window] * w.norm()


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_that_of_the_modules(training: bool) -> None:
    """The same seed drops the same maps of the same clips."""
    made, maps = network(20, 0.4).train(training), torch.randn(6, 1, 18, 20)
    for module in made.blocks:
        parameters = list(module.parameters())
        torch.manual_seed(3)
        expected = module(maps)
        torch.manual_seed(3)
        found = separable.block(module, maps.permute(0, 2, 3, 1).contiguous(), GROUPS).permute(0, 3, 1, 2)
        dropped = (expected.flatten(2) == 0).all(2)
        assert bool(dropped.any()) or not training
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        direction = torch.randn_like(found)
        for h, w in zip(*(torch.autograd.grad(x, parameters, direction) for x in (found, expected)), strict=True):
            assert (h - w).norm() <= 1e-4 * w.norm() + 1e-6
        maps = expected.detach()


def test_the_first_of_equal_places_has_the_gradient() -> None:
    """As in torch's max pooling; convolutions with zero weights make all places of a map equal."""
    made = network(16)
    (module, *_), maps = made.blocks, torch.randn(2, 1, 16, 16, requires_grad=True)
    nn.init.zeros_(module.time.weight)
    nn.init.zeros_(module.frequency.weight)
    nn.init.ones_(module.joint_norm.bias)
    expected = module(maps)
    found = separable.block(module, maps.permute(0, 2, 3, 1).contiguous(), GROUPS).permute(0, 3, 1, 2)
    direction = torch.randn_like(found)

    def gradients(outputs: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, list(module.parameters()), direction)

    for h, w in zip(gradients(found), gradients(expected), strict=True):
        torch.testing.assert_close(h, w, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_a_number_stays_so(value: float) -> None:
    """NaN and infinity turn their own clip's outputs into NaN, so the loss shows that training diverges."""
    made, features = network(32), torch.randn(3, 20, 32)
    features[1, 4, 7] = value
    found = made(features, torch.full((3,), 20))
    assert found[1].isnan().all() and found[[0, 2]].isfinite().all()
    weights = network(32)
    with torch.no_grad():
        weights.blocks[2].joint.weight[0, 0] = torch.nan
    assert weights(torch.randn(1, 20, 32), torch.tensor([20])).isnan().all()
