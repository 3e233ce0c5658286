"""Streaming sums against a float64 reference that sees all clients at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedray.core.metrics import Metrics
from fedray.core.sums import PartialSum, WeightedSum
from fedray.core.types import Vector

CLIENTS, SIZE = 300, 500
generator = np.random.default_rng(0)
DELTAS = generator.normal(size=(CLIENTS, SIZE)).astype(np.float32)
CASES = {
    "examples": np.log(generator.integers(1, 500, CLIENTS)),
    "loss to 1e4": -generator.uniform(0, 1e4, CLIENTS),
    "loss to 1e4, falling": np.sort(-generator.uniform(0, 1e4, CLIENTS)),
    "loss about 2": -generator.normal(2, 0.1, CLIENTS),
    "every loss a little smaller": 1e-4 * np.arange(CLIENTS),
    "every loss a little larger": -1e-4 * np.arange(CLIENTS),
    "every loss smaller by 1": np.arange(CLIENTS) - 1e4,
    "wer to 3": 1 - generator.uniform(0, 3, CLIENTS),
    "wer to 3, in percent": (1 - generator.uniform(0, 3, CLIENTS)) / 0.01,
    "alike": np.full(CLIENTS, math.log(7)),
}


def streamed(log_weights: np.ndarray, lanes: int) -> WeightedSum:
    merged = WeightedSum()
    for lane in np.array_split(np.arange(CLIENTS), lanes):
        part = WeightedSum()
        for client in lane:
            part.add(DELTAS[client], float(log_weights[client]))
        merged.merge(part)
    return merged


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("case", CASES)
def test_weighted_mean(case: str, lanes: int) -> None:
    weights = np.exp(CASES[case] - CASES[case].max())
    weights /= weights.sum()
    expected = weights @ DELTAS.astype(np.float64)
    found = streamed(CASES[case], lanes)
    mean = found.mean()
    assert mean is not None and mean.dtype == np.float32
    assert np.linalg.norm(mean - expected) <= 1e-6 * np.linalg.norm(expected)
    assert found.effective_clients() == pytest.approx(1 / np.square(weights).sum(), rel=1e-9)


def test_equal_weights_are_a_plain_mean_bit_for_bit() -> None:
    total = np.zeros(SIZE, np.float32)
    for delta in DELTAS:
        total += delta
    assert np.array_equal(streamed(CASES["alike"], 1).mean(), total / np.float32(CLIENTS))


def test_what_is_given_stays_as_it_is() -> None:
    delta: Vector = np.ones(3, np.float32)
    delta.flags.writeable = False  # like an array from the object store
    total = WeightedSum()
    for log_weight in (0.0, 1.0, 100.0):
        total.add(delta, log_weight)
    arrived = WeightedSum(0.0, 1.0, 1.0, delta)
    merged = WeightedSum()
    merged.merge(arrived)
    merged.merge(total)
    assert np.array_equal(delta, np.ones(3)) and np.allclose(merged.mean(), 1)


def test_minus_infinity_leaves_a_client_out() -> None:
    total = WeightedSum()
    for log_weight in (-math.inf, -math.inf):
        total.add(DELTAS[0], log_weight)
    assert total.mean() is None and total.effective_clients() == 0
    total.add(DELTAS[1], -5.0)
    total.add(DELTAS[2], -math.inf)
    assert np.array_equal(total.mean(), DELTAS[1]) and total.effective_clients() == 1


def test_empty_lanes_change_nothing() -> None:
    total = WeightedSum()
    total.merge(WeightedSum())
    assert total.mean() is None
    total.add(DELTAS[0], 0.0)
    total.merge(WeightedSum())
    assert np.array_equal(total.mean(), DELTAS[0])


def test_a_lane_brings_its_metrics() -> None:
    first = PartialSum(metrics=Metrics(loss=(3, 2)), personal=Metrics(wer=(6, 2)))
    second = PartialSum(metrics=Metrics(loss=(1, 2)), personal=Metrics(wer=(5, 1)))
    first.updates.add(DELTAS[0], 0.0)
    second.updates.add(DELTAS[1], math.log(3))
    first.merge(second)
    assert first.metrics.total("loss") == (4, 4) and first.personal.total("wer") == (11, 3)
    assert np.allclose(first.updates.mean(), 0.25 * DELTAS[0] + 0.75 * DELTAS[1], atol=1e-6)
