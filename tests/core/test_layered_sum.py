"""Sums with a weight for each layer and client, against a float64 reference that sees all clients at once."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.core.sums import LayeredSum, WeightedSum
from fedray.core.types import Layer

LAYERS = [Layer("a", 0, 40), Layer("b", 40, 90), Layer("a", 90, 97), Layer("c", 97, 300), Layer("beyond", 300, 310)]
CLIENTS, WIDTH = 200, 300
NAMES = np.concatenate([[layer.name] * (min(layer.stop, WIDTH) - min(layer.start, WIDTH)) for layer in LAYERS])
LARGEST = np.finfo(np.float32).max
generator = np.random.default_rng(0)
DELTAS = generator.normal(size=(CLIENTS, WIDTH)).astype(np.float32)
CASES = {
    "counts": generator.integers(1, 500, (CLIENTS, 3)).astype(float),
    "counts to a billion": 10 ** generator.uniform(0, 9, (CLIENTS, 3)),
    "many zeros": generator.integers(0, 500, (CLIENTS, 3)) * (generator.random((CLIENTS, 3)) < 0.2),
    "rising": np.geomspace(1e-40, 1e40, CLIENTS)[:, None] * [1, 2, 3],
    "falling": np.geomspace(1e40, 1e-40, CLIENTS)[:, None] * [1, 2, 3],
}


def summed(weights: np.ndarray, lanes: int) -> LayeredSum:
    merged = LayeredSum(LAYERS)
    for lane in np.array_split(np.arange(CLIENTS), lanes):
        part = LayeredSum(LAYERS)
        for client in lane:  # zeros are left out, as pruned clients are
            part.add(DELTAS[client], {name: float(w) for name, w in zip("abc", weights[client], strict=True) if w})
        merged.merge(part)
    return merged


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("case", CASES)
def test_weighted_mean_by_layer(case: str, lanes: int) -> None:
    found = summed(CASES[case], lanes).mean()
    assert found is not None and found.dtype == np.float32
    for column, name in enumerate("abc"):
        weights = CASES[case][:, column] / CASES[case][:, column].sum()
        expected = (weights[:, None] * DELTAS[:, name == NAMES].astype(np.float64)).sum(0)
        assert np.linalg.norm(found[name == NAMES] - expected) <= 1e-6 * np.linalg.norm(expected)
    assert np.array_equal(summed(CASES[case], lanes).mean(), found)


def test_one_weight_for_all_layers() -> None:
    single, layered, whole = LayeredSum(LAYERS), LayeredSum(LAYERS), LayeredSum()
    for delta, weight in zip(DELTAS, CASES["counts"][:, 0], strict=True):
        single.add(delta, float(weight))
        layered.add(delta, dict.fromkeys("abc", float(weight)))
        whole.add(delta, float(weight))
    assert np.array_equal(single.mean(), layered.mean()) and np.array_equal(single.mean(), whole.mean())


@pytest.mark.parametrize("lanes", [1, 3])
def test_weight_one_is_the_plain_mean_bit_for_bit(lanes: int) -> None:
    """Scaling by powers of two is exact."""
    layered, plain = LayeredSum(), WeightedSum()
    for lane in np.array_split(DELTAS, lanes):
        one, other = LayeredSum(), WeightedSum()
        for delta in lane:
            one.add(delta, 1.0)
            other.add(delta, 0.0)
        layered.merge(one)
        plain.merge(other)
    assert np.array_equal(layered.mean(), plain.mean())


def test_a_layer_without_weight_does_not_change() -> None:
    total = LayeredSum(LAYERS)
    total.add(DELTAS[0], {"a": 2.0, "b": 0.0})
    total.add(DELTAS[1], {"a": 0.0})
    assert np.array_equal(total.mean(), np.where(NAMES == "a", DELTAS[0], 0))


def test_nothing_that_weighs_is_no_mean() -> None:
    total = LayeredSum(LAYERS)
    assert total.mean() is None
    total.add(DELTAS[0], 0.0)
    total.add(DELTAS[0], {})
    total.merge(LayeredSum(LAYERS))
    assert total.mean() is None
    total.add(DELTAS[1], 4.0)
    total.merge(LayeredSum(LAYERS))
    assert np.array_equal(total.mean(), DELTAS[1])


def test_what_is_given_stays_as_it_is() -> None:
    delta = DELTAS[0].copy()
    delta.flags.writeable = False  # like an array from the object store
    lane = LayeredSum(LAYERS)
    lane.add(delta, 1.0)
    assert lane.total is not None
    lane.total.flags.writeable = False
    before = lane.total.copy()
    merged = LayeredSum(LAYERS)
    merged.merge(lane)
    merged.add(delta, 5.0)
    assert np.array_equal(lane.total, before) and lane.weights == dict.fromkeys(("a", "b", "c", "beyond"), 1.0)
    assert np.array_equal(delta, DELTAS[0]) and np.allclose(merged.mean(), delta, rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_the_largest_numbers_do_not_overflow(count: int) -> None:
    for weight in (1.0, 1e9, 0.3):
        lanes = [LayeredSum(), LayeredSum()]
        for number in range(count):
            lanes[number % 2].add(np.array([LARGEST, -LARGEST, 1e30], np.float32), weight)
        lanes[0].merge(lanes[1])
        assert np.allclose(lanes[0].mean(), [LARGEST, -LARGEST, 1e30], rtol=1e-5)


WRONG = {
    "a gap": [Layer("a", 0, 100), Layer("b", 101, 300)],
    "an overlap": [Layer("a", 0, 100), Layer("b", 99, 300)],
    "a late start": [Layer("a", 1, 300)],
    "an early end": [Layer("a", 0, 299)],
}


@pytest.mark.parametrize("case", WRONG)
def test_layers_cover_the_vector(case: str) -> None:
    with pytest.raises(AssertionError):
        LayeredSum(WRONG[case]).add(DELTAS[0], 1.0)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf, {"a": -1.0}])
def test_weights_are_not_negative_and_finite(weight: float | dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        LayeredSum(LAYERS).add(DELTAS[0], weight)
