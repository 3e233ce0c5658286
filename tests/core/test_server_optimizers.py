"""Server optimisers against Reddi et al.'s algorithm 2 in float64 loops, and torch.optim where definitions agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedray.core.server_optimizers import SERVER_OPTIMIZERS, SGD, Adagrad, Adam, Momentum, ServerOptimizer, Yogi
from fedray.core.types import ServerState, Vector
from fedray.storage import serialize

SIZE, ROUNDS = 50, 12
generator = np.random.default_rng(0)
START = generator.normal(size=SIZE).astype(np.float32)
DELTAS = (generator.normal(size=(ROUNDS, SIZE)) * 10.0 ** generator.integers(-4, 1, SIZE)).astype(np.float32)


def run(optimizer: ServerOptimizer) -> Vector:
    state = ServerState(START)
    for delta in DELTAS:
        state = optimizer.apply(state, delta, SIZE)
    return state.params


def reference(lr: float, beta1: float, tau: float, second: Callable[[float, float], float]) -> np.ndarray:
    theta = START.astype(np.float64)
    for j in range(SIZE):
        m, v = 0.0, tau**2
        for delta in DELTAS[:, j].astype(np.float64):
            m = beta1 * m + (1 - beta1) * delta
            v = second(v, delta**2)
            theta[j] += lr * m / (v**0.5 + tau)
    return theta


def agrees(found: Vector, expected: np.ndarray) -> bool:
    return bool(np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected))


@pytest.mark.parametrize(
    ("optimizer", "second"),
    [
        (Adam(lr=0.1, tau=0.01), lambda v, square: 0.99 * v + 0.01 * square),
        (Adam(lr=0.03, beta1=0.5, beta2=0.5, tau=1e-3), lambda v, square: 0.5 * v + 0.5 * square),
        (Yogi(lr=0.1, tau=0.01), lambda v, square: v - 0.01 * square * np.sign(v - square)),
        (Adagrad(lr=0.1, tau=0.01), lambda v, square: v + square),
        (Adagrad(lr=0.1, beta1=0.9, tau=0.1), lambda v, square: v + square),
    ],
    ids=["adam", "adam of halves", "yogi", "adagrad", "adagrad with momentum"],
)
def test_adaptive_optimizers(optimizer: Adam | Yogi | Adagrad, second: Callable[[float, float], float]) -> None:
    assert agrees(run(optimizer), reference(optimizer.lr, optimizer.beta1, optimizer.tau, second))


def test_sgd_and_momentum() -> None:
    deltas = DELTAS.astype(np.float64)
    assert agrees(run(SGD(lr=0.7)), START + 0.7 * deltas.sum(axis=0))
    powers = np.array(
        [sum(0.9**k for k in range(ROUNDS - t)) for t in range(ROUNDS)]
    )  # the total weight of each Delta_t
    assert agrees(run(Momentum(lr=0.5)), START + 0.5 * powers @ deltas)


@pytest.mark.parametrize(
    ("optimizer", "theirs"),
    [
        (SGD(lr=0.3), lambda p: torch.optim.SGD(p, lr=0.3)),
        (Momentum(lr=0.3, beta=0.8), lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.8)),
        (
            Adagrad(lr=0.1, tau=0.01),
            lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.01**2, eps=0.01),
        ),
    ],
    ids=["sgd", "momentum", "adagrad"],
)
def test_as_in_torch_on_the_negative_change(
    optimizer: ServerOptimizer, theirs: Callable[[list], torch.optim.Optimizer]
) -> None:
    """torch's Adam corrects its bias and starts at v = 0, and torch has no Yogi: only the paper's loop checks these."""
    parameter = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    steps = theirs([parameter])
    for delta in DELTAS:
        parameter.grad = -torch.tensor(delta, dtype=torch.float64)
        steps.step()
    assert agrees(run(optimizer), parameter.detach().numpy())


@pytest.mark.parametrize("kind", SERVER_OPTIMIZERS)
def test_never_on_buffers(kind: str) -> None:
    """A server learning rate of 0.5 scales the step of parameters; running statistics take the cohort's mean."""
    optimizer, trainable = replace(SERVER_OPTIMIZERS[kind](), lr=0.5), SIZE - 10
    state = alone = ServerState(START)
    for delta in DELTAS:
        state = optimizer.apply(state, delta, trainable)
        alone = optimizer.apply(alone, delta[:trainable], trainable)
    plain = START.copy()
    for delta in DELTAS:
        plain += delta
    assert np.array_equal(state.params[trainable:], plain[trainable:])
    assert np.array_equal(alone.params[trainable:], START[trainable:])  # deltas without buffers leave them
    assert np.array_equal(state.params[:trainable], alone.params[:trainable])
    moments = {name: moment for name, moment in state.extra["optimizer"].items() if name != "rounds"}
    assert all(moment.shape == (trainable,) for moment in moments.values())


@pytest.mark.parametrize("kind", SERVER_OPTIMIZERS)
def test_a_state_that_was_saved_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    optimizer = SERVER_OPTIMIZERS[kind]()
    state = ServerState(START, {"best": 3})
    for delta in DELTAS:
        before = state.params.copy()
        following = optimizer.apply(state, delta, SIZE)
        assert (
            np.array_equal(state.params, before) and following.params.dtype == np.float32
        )  # a new state; the old one is unchanged
        serialize.save({"params": following.params, "extra": following.extra}, tmp_path / "server.pt")
        state = ServerState(**serialize.load(tmp_path / "server.pt"))
    assert np.array_equal(state.params, run(optimizer)) and state.extra["best"] == 3
