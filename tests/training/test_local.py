"""Local training: the order of a step's parts, and gradients that are not numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedray.core.parameters import FlatModel
from fedray.training.optimizers import AdamW, AdamWSettings, ClientOptimizer, ClientSettings


def given(convolution: bool = False) -> FlatModel:
    """A model of two weights, 1 and 2, with the gradient (3, 4)."""
    layer = nn.Conv1d(2, 1, 1, bias=False) if convolution else nn.Linear(2, 1, bias=False)
    flat = FlatModel(nn.Sequential(layer))
    flat.load(np.array([1.0, 2.0], np.float32))
    flat.gradient.copy_(torch.tensor([3.0, 4.0]))
    return flat


def test_a_step_adds_the_l2_term_of_convolutions_then_clips_then_adjusts() -> None:
    settings = ClientSettings(lr=0.1, clip=1.0, l2=0.5)
    for convolution, raw in ((False, [3.0, 4.0]), (True, [3.0 + 1.0, 4.0 + 2.0])):
        flat, seen = given(convolution), list[list[float]]()

        def adjust(gradient: torch.Tensor, weights: torch.Tensor, seen: list[list[float]] = seen) -> None:
            seen.append(gradient.tolist())
            gradient.add_(10 * weights)

        ClientOptimizer(flat, settings, adjust).step()
        clipped = np.array(raw) / np.linalg.norm(raw)
        assert seen[0] == pytest.approx(clipped.tolist())
        assert flat.weights.tolist() == pytest.approx([1 - 0.1 * (clipped[0] + 10), 2 - 0.1 * (clipped[1] + 20)])


def test_a_gradient_changed_elsewhere_is_refused() -> None:
    flat = given()
    with pytest.raises(TypeError, match="adjust returned a new tensor: change the gradient in place"):
        ClientOptimizer(flat, ClientSettings(lr=0.1), lambda gradient, weights: gradient + weights).step()
    ClientOptimizer(flat, ClientSettings(lr=0.1), lambda gradient, weights: gradient[:1].zero_()).step()
    assert flat.weights[0] == 1.0


@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_refused_at_its_step(clip: float | None, number: float) -> None:
    flat = given()
    flat.gradient[1] = number
    with pytest.raises(ValueError, match="the training loss is finite, but its gradient holds NaN or infinite values"):
        ClientOptimizer(flat, ClientSettings(lr=0.1, clip=clip)).step()
    with pytest.raises(ValueError, match="the training loss is finite, but its gradient holds NaN or infinite values"):
        AdamW(flat, AdamWSettings(clip=clip), 1, {}).step()
    assert flat.weights.tolist() == [1.0, 2.0]
    flat = given()
    flat.gradient[1] = float("nan")
    ClientOptimizer(flat, ClientSettings(lr=0.1), lambda gradient, _: gradient.nan_to_num_()).step()  # it is mended


def test_a_gradient_whose_squares_overflow_is_no_error() -> None:
    flat = given()
    flat.gradient.mul_(1e30)
    ClientOptimizer(flat, ClientSettings(lr=0.1, clip=1.0)).step()
    assert flat.weights.tolist() == [1.0, 2.0]  # the norm is infinite, and clipping leaves nothing


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_the_bits_of_a_step_do_not_depend_on_where_the_vector_lies(kind: str) -> None:
    """A stack's clients lie one after the other in one tensor, at any address."""
    generator = torch.Generator().manual_seed(0)
    weights, gradient = torch.randn(2, 1003, generator=generator)
    found = []
    for start in (0, 1, 7):
        flat = FlatModel(nn.Sequential(nn.Linear(1003, 1, bias=False)))
        flat.values, flat.gradient = (torch.zeros(1100)[start : start + 1003] for _ in range(2))
        flat.values.copy_(weights)
        flat.gradient.copy_(gradient)
        if kind == "adam":
            optimizer: ClientOptimizer | AdamW = ClientOptimizer(flat, ClientSettings(lr=0.01, optimizer="adam"))
        else:
            optimizer = AdamW(flat, AdamWSettings(lr=0.01), 5, {})
        for _ in range(5):
            optimizer.step()
        found.append(flat.values.clone())
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert not torch.equal(found[0], weights)
