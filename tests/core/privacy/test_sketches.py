"""Count sketches: inner products, sums, norms of layers, and small layers that keep every number."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.core.privacy import sketches
from fedray.core.privacy.sketches import Sketcher, sketcher
from fedray.core.types import Layer

LAYERS = (Layer("bias", 0, 10), Layer("weight", 10, 5000), Layer("head", 5000, 5040))


def normal(*names: int) -> np.ndarray:
    return np.random.default_rng(names).standard_normal(5040).astype(np.float32)


def test_small_layers_keep_every_number_and_others_share_what_is_left() -> None:
    found = Sketcher(LAYERS, 0, buckets=300)
    assert found.widths == [10, 250, 40]
    update = normal(1)
    sketch = found.sketch(update, 0.5)
    assert np.array_equal(sketch.buckets[:10], update[:10]) and np.array_equal(sketch.buckets[260:], update[5000:])
    norms = [np.linalg.norm(update[layer.start : layer.stop]) for layer in LAYERS]
    assert sketch.norms == pytest.approx(norms, rel=1e-5) and sketch.log_weight == 0.5
    assert list(found.layout.edges) == [0, 10, 260, 300] and found.layout.numbers.sum() == 5040
    assert set(found.layout.numbers[:10]) == {1} and len(found.layout.numbers) == 300
    assert Sketcher(LAYERS, 0, buckets=2).widths == [1, 1, 1], "each layer has a bucket"


def test_inner_products_are_kept_on_average() -> None:
    one, other = normal(1), normal(2) + 0.3 * normal(1)
    products = [
        found.sketch(one).buckets.astype(np.float64) @ found.sketch(other).buckets
        for found in (Sketcher(LAYERS, seed, buckets=300) for seed in range(200))
    ]
    deviation = np.sqrt(2) * np.linalg.norm(one) * np.linalg.norm(other) / np.sqrt(250)
    assert np.mean(products) == pytest.approx(float(one @ other), abs=4 * deviation / np.sqrt(200))
    assert np.std(products) < 1.2 * deviation


def test_a_sketch_is_linear_and_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sketcher([Layer("none", 0, 0), *LAYERS], 3)
    assert found.layers == LAYERS
    one, other = normal(1), normal(2)
    total = found.sketch(one).buckets + found.sketch(other).buckets
    assert found.sketch(one + other).buckets == pytest.approx(total, abs=1e-4)
    monkeypatch.setattr(sketches, "CHUNK", 1000)
    chunked = sketcher(LAYERS, 3)
    one, other = chunked.sketch(one).buckets, chunked.sketch(other).buckets
    assert chunked.layout.numbers.sum() == 5040 and chunked.sketch(normal(1) + normal(2)).buckets == pytest.approx(
        one + other, abs=1e-4
    )


def test_normal_noise_in_an_update_is_normal_noise_in_its_sketch() -> None:
    found = Sketcher(LAYERS, 0, buckets=100)
    noise = np.stack([found.sketch(normal(seed)).buckets for seed in range(400)])
    assert np.square(noise).mean(0) / found.layout.numbers == pytest.approx(np.ones(len(noise[0])), abs=0.4)
    assert np.mean(np.square(noise).mean(0) / found.layout.numbers) == pytest.approx(1.0, abs=0.03)
