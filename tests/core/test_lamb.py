"""LAMB against the paper's algorithm 2, written in torch layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from fedray.core.server_optimizers import LAMB
from fedray.core.types import Layer, ServerState, Vector

SIZE, ROUNDS = 50, 8
LAYERS = (Layer("first", 0, 8), Layer("second", 8, 30), Layer("first", 30, 41), Layer("zero", 41, 60))
generator = np.random.default_rng(0)
START = np.where(np.arange(SIZE) < 41, generator.normal(size=SIZE), 0.0).astype(np.float32)
DELTAS = (generator.normal(size=(ROUNDS, SIZE)) * 10.0 ** generator.integers(-4, 1, SIZE)).astype(np.float32)


def run(optimizer: LAMB, layers: Sequence[Layer]) -> Vector:
    state = ServerState(START)
    for delta in DELTAS:
        state = optimizer.apply(state, delta, SIZE, layers)
    return state.params


def reference(optimizer: LAMB, groups: Sequence[Sequence[int]]) -> torch.Tensor:
    w = torch.tensor(START, dtype=torch.float64)
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for t, delta in enumerate(DELTAS, start=1):
        g = -torch.tensor(delta, dtype=torch.float64)
        m = optimizer.beta1 * m + (1 - optimizer.beta1) * g
        v = optimizer.beta2 * v + (1 - optimizer.beta2) * g**2
        r = (m / (1 - optimizer.beta1**t)) / ((v / (1 - optimizer.beta2**t)).sqrt() + optimizer.tau)
        u = r + optimizer.decay * w
        for group in map(list, groups):
            norm = w[group].norm()
            w[group] -= optimizer.lr * (norm / u[group].norm() if norm > 0 else 1.0) * u[group]
    return w


@pytest.mark.parametrize("optimizer", [LAMB(lr=0.1), LAMB(lr=0.01, beta2=0.9, tau=0.1, decay=0.3)])
def test_as_in_the_paper(optimizer: LAMB) -> None:
    groups = ([*range(8), *range(30, 41)], range(8, 30), range(41, SIZE))
    expected = reference(optimizer, groups).numpy()
    assert np.linalg.norm(run(optimizer, LAYERS) - expected) <= 1e-5 * np.linalg.norm(expected)
    whole = reference(optimizer, (range(SIZE),)).numpy()
    assert np.linalg.norm(run(optimizer, ()) - whole) <= 1e-5 * np.linalg.norm(whole)


def test_any_order_of_stretches_gives_the_same_bits() -> None:
    assert np.array_equal(run(LAMB(), LAYERS), run(LAMB(), LAYERS[::-1]))


def test_a_step_is_lr_times_the_norm_of_its_layer() -> None:
    state = LAMB(lr=0.02).apply(ServerState(START), DELTAS[0], SIZE, LAYERS)
    change = state.params - START
    assert np.linalg.norm(change[8:30]) == pytest.approx(0.02 * np.linalg.norm(START[8:30]), rel=1e-5)


def test_no_change_gives_no_step() -> None:
    state = LAMB().apply(ServerState(START), np.zeros(SIZE, np.float32), SIZE, LAYERS)
    assert np.array_equal(state.params, START)
