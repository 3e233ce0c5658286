"""The compiled convolutions with ReLU and pooling have the outputs and gradients of torch's modules."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedray.models.kernels.pooled import halved


@pytest.mark.parametrize("lengths", [[8], [4], [98], [41, 98, 4, 97]])
def test_outputs_and_gradients_are_those_of_the_modules(lengths: list[int]) -> None:
    torch.manual_seed(0)
    convolutions = [nn.Conv1d(10, 16, 3, padding=1), nn.Conv1d(16, 13, 3, padding=1)]
    features = torch.randn(len(lengths), max(lengths), 10, requires_grad=True)
    found = halved(convolutions, features, torch.tensor(lengths))
    trained = [features, *(weight for convolution in convolutions for weight in convolution.parameters())]
    double = copy.deepcopy(convolutions)
    precise = features.detach().double().requires_grad_()
    alone, speech = [], torch.zeros_like(found)
    for position, length in enumerate(lengths):
        x = precise[position : position + 1, :length].transpose(1, 2)
        for convolution in double:
            x = nn.functional.max_pool1d(convolution.double()(x).relu(), 2)
        alone.append(x[0].t())
        speech[position, : length // 4] = 1.0
        torch.testing.assert_close(found[position, : length // 4].double(), alone[-1], rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(found) * speech
    have = torch.autograd.grad(found, trained, direction)
    total = sum((x * direction[row, : len(x)]).sum() for row, x in enumerate(alone))
    assert isinstance(total, torch.Tensor)
    weights = [weight for convolution in double for weight in convolution.parameters()]
    for mine, expected in zip(have, torch.autograd.grad(total, [precise, *weights]), strict=True):
        assert (mine - expected).norm() <= 1e-5 * expected.norm()


def test_what_is_not_a_number_stays_so() -> None:
    features = torch.randn(1, 8, 3)
    features[0, 3, 1] = torch.nan
    out = halved([nn.Conv1d(3, 4, 3, padding=1)], features, torch.tensor([8]))
    assert out.isnan().any(2).tolist() == [[False, True, True, False]]
