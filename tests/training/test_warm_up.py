"""The learning rate of a client that keeps its optimiser: warm-up, decays, a factor for each weight."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fedray.core.parameters import FlatModel
from fedray.training.warm_up import ScaledAdamW, WarmUpSettings


def rates(decay: str, steps: int = 100, **settings: float) -> list[float]:
    one = WarmUpSettings(lr=0.1, warmup=10, decay=decay, **settings)
    return [one.rate(done, steps) for done in range(steps + 1)]


def test_the_rate_rises_and_stays() -> None:
    found = rates("none")
    assert found[0] == pytest.approx(0.01) and found[9:] == [0.1] * 92


def test_the_rate_falls_with_the_root_of_the_steps() -> None:
    found = rates("inverse_sqrt")
    assert found[:10] == rates("none")[:10]
    assert found[39] == pytest.approx(0.05) and found[89] == pytest.approx(0.1 / 3)


def test_the_rate_falls_by_half_a_cosine() -> None:
    found = rates("cosine")
    assert found[55] == pytest.approx(0.05) and found[100] == pytest.approx(0.0)
    assert WarmUpSettings(lr=0.1, warmup=10, decay="cosine").rate(150, 100) == pytest.approx(0.0), "not up again"


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="decay must be one of none, inverse_sqrt, cosine, not 'linear'"):
        WarmUpSettings(decay="linear")
    with pytest.raises(ValueError, match="decay=cosine counts the steps of all rounds.*set keep=true"):
        WarmUpSettings(decay="cosine", keep=False)
    with pytest.raises(ValueError, match="b_factor must be above 0"):
        WarmUpSettings(b_factor=0.0)


def test_a_factor_is_another_rate_for_a_weight() -> None:
    """Factors act like two parameter groups of torch's AdamW with different rates."""

    def model() -> nn.Linear:
        torch.manual_seed(0)
        return nn.Linear(3, 2)

    settings = WarmUpSettings(lr=0.1, warmup=1, clip=None, weight_decay=0.1)
    flat = FlatModel(model())
    moments: dict[str, torch.Tensor] = {}
    layout = {entry.name: slice(entry.start, entry.stop) for entry in flat.layout.entries}
    factors = torch.ones(flat.layout.trainable)
    factors[layout["bias"]] = 4.0
    other = model()
    groups = [{"params": [other.weight], "lr": 0.1}, {"params": [other.bias], "lr": 0.4}]
    adam = torch.optim.AdamW(groups, weight_decay=0.1)
    x = torch.randn(5, 3)
    for _ in range(3):
        flat.backward(flat.model(x).square().sum())
        optimizer = ScaledAdamW(flat, settings, 0, moments, factors)
        optimizer.step()
        moments = optimizer.moments()
        adam.zero_grad()
        other(x).square().sum().backward()
        adam.step()
    assert torch.allclose(flat.model.weight, other.weight, atol=1e-6)
    assert torch.allclose(flat.model.bias, other.bias, atol=1e-6)
    assert math.isclose(float(moments["step"]), 3.0)
