"""Geometric median, centred clipping, FLTrust, q-FFL and AFL: by hand, against references and hostile clients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedray.core.strategies import Agnostic, CentredClipping, FLTrust, GeometricMedian, Pairwise, QFair
from fedray.core.strategies import squared_distances as distances
from fedray.core.strategies.fair import on_simplex
from fedray.core.types import Vector

CLIENTS = ["a", "b", "c", "d", "e"]


def mean(strategy: Pairwise, updates: Vector, clients: list[str] = CLIENTS) -> np.ndarray:
    weights = strategy.weigh(distances(updates), clients, {})
    shares = np.array([float(weights[client]) for client in clients])  # type: ignore[arg-type]
    assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
    return shares @ updates


def updates_of(seed: int) -> Vector:
    return np.random.default_rng(seed).normal(size=(5, 40)).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_the_geometric_median_is_where_unit_vectors_to_the_updates_cancel(seed: int) -> None:
    updates = updates_of(seed)
    found = mean(GeometricMedian(iterations=200), updates)
    ways = updates - found
    assert np.abs((ways / np.linalg.norm(ways, axis=1)[:, None]).sum(0)).max() < 1e-5


def test_an_iteration_of_weiszfeld_by_hand() -> None:
    """On the line 0, 0, 0, 0, 5 the mean is 1, with the distances 1, 1, 1, 1, 4: weights 4 : 4 : 4 : 4 : 1 follow."""
    line = np.array([[0], [0], [0], [0], [5]], np.float32)
    assert mean(GeometricMedian(iterations=1), line) == pytest.approx([5 / 17])
    assert mean(GeometricMedian(iterations=50), line) == pytest.approx([0], abs=1e-5)  # the median


def test_steps_of_centred_clipping_by_hand() -> None:
    """From v = 0, the point with the least distances, each way is cut to 2: v = (0 + 0 + 0 + 1 + 2) / 5.

    With the median distance as radius, which is 0, v stays.
    """
    line = np.array([[0], [0], [0], [1], [90]], np.float32)
    assert mean(CentredClipping(radius=2, iterations=1), line) == pytest.approx([0.6])
    second = 0.6 + (-0.6 - 0.6 - 0.6 + 0.4 + 2) / 5
    assert mean(CentredClipping(radius=2, iterations=2), line) == pytest.approx([second])
    assert mean(CentredClipping(iterations=3), line) == pytest.approx([0])


@pytest.mark.parametrize("seed", range(3))
def test_centred_clipping_is_the_reference(seed: int) -> None:
    updates = updates_of(seed).astype(np.float64)
    apart = np.linalg.norm(updates[:, None] - updates[None], axis=2)
    v = updates[apart.sum(1).argmin()]
    for _ in range(4):
        ways = updates - v
        far = np.linalg.norm(ways, axis=1)
        v = v + (ways * np.minimum(1, 6 / np.maximum(far, 1e-30))[:, None]).mean(0)
    assert mean(CentredClipping(radius=6, iterations=4), updates_of(seed)) == pytest.approx(v, abs=1e-5)


@pytest.mark.parametrize("strategy", [GeometricMedian(), CentredClipping()])
def test_one_hostile_client_of_five_moves_them_little(strategy: Pairwise) -> None:
    updates = 1 + 0.1 * updates_of(0)
    honest = mean(strategy, updates)
    updates[2] = -1e6
    assert np.linalg.norm(mean(strategy, updates) - honest) < 1
    order = [4, 2, 0, 1, 3]
    moved = mean(strategy, updates[order], [CLIENTS[place] for place in order])
    assert moved == pytest.approx(mean(strategy, updates), abs=1e-6)
    assert strategy.weigh(np.zeros((1, 1)), ["a"], {}) == {"a": 1.0}
    alike = strategy.weigh(np.zeros((5, 5)), CLIENTS, {})
    assert sum(map(float, alike.values())) == pytest.approx(1)  # type: ignore[arg-type]


def test_trust_by_hand() -> None:
    """g_0 = (2, 0). a = (3, 4) has the cosine 0.6, b = (1, 0) has 1, c = (-9, 0) none, d = 0 no direction.

    The change is (0.6 * 2 / 5 * a + 1 * 2 / 1 * b) / 1.6.
    """
    server = np.array([2, 0], np.float32)
    updates = {"a": [3, 4], "b": [1, 0], "c": [-9, 0], "d": [0, 0]}
    vectors = {client: np.array(update, np.float32) for client, update in updates.items()}
    probes = {client: FLTrust().probe(vector, server, ()) for client, vector in vectors.items()}
    weights = FLTrust().weigh(probes, {})
    assert weights == {"a": pytest.approx(0.6 * 0.4 / 1.6), "b": pytest.approx(2 / 1.6)}
    assert FLTrust().weigh({"c": probes["c"]}, {}) == {}
    assert FLTrust.absolute and FLTrust.against == "server"


def test_q_fair_by_hand() -> None:
    """q = 2, L = 1 / 0.5: h_i = F^2 + 2 F * 2 |Delta|^2 over L, that is F^2 + 2 F |Delta|^2 / 0.5."""
    deltas = {"a": np.array([3, 4], np.float32), "b": np.array([1, 0], np.float32)}
    reports = {"a": {"loss": 1.0}, "b": {"loss": 3.0}}
    strategy = QFair(q=2, lr=0.5)
    probes = {client: strategy.probe(delta, np.empty(0, np.float32), ()) for client, delta in deltas.items()}
    whole = (1 + 2 * 1 * 25 / 0.5) + (9 + 2 * 3 * 1 / 0.5)
    assert strategy.weigh(probes, reports) == {"a": pytest.approx(1 / whole), "b": pytest.approx(9 / whole)}
    assert QFair(q=0).weigh(probes, reports) == {"a": 0.5, "b": 0.5}
    assert QFair(q=400).weigh(probes, {name: {"loss": 1e-9} for name in deltas})  # no division by 0
    weights = QFair(q=400).weigh(probes, {"a": {"loss": 20.0}, "b": {"loss": 19.0}})
    assert weights["b"] < 1e-6 < weights["a"] < 1


def test_agnostic_weights_by_hand() -> None:
    """Groups x (a, b) and y (c); z has no client here. Losses: x (1 * 1 + 3 * 2) / 4 = 1.75, y 4."""
    groups = {"a": "x", "b": "x", "c": "y", "d": "z"}
    reports = {name: {"examples": n, "loss": loss} for name, n, loss in (("a", 1, 1.0), ("b", 3, 2.0), ("c", 5, 4.0))}
    weights, kept = Agnostic(step=0.1).weigh(reports, groups, {})
    assert weights == {"a": pytest.approx(1 / 12), "b": pytest.approx(1 / 4), "c": pytest.approx(1 / 3)}
    climbed = np.array([1 / 3 + 0.175, 1 / 3 + 0.4, 1 / 3])
    expected = climbed - (climbed.sum() - 1) / 3  # all stay above 0
    assert list(kept.values()) == pytest.approx(expected) and list(kept) == ["lambda/x", "lambda/y", "lambda/z"]
    weights, _ = Agnostic().weigh(reports, groups, {"lambda/x": 0.0, "lambda/y": 1.0})
    assert weights == {"a": 0, "b": 0, "c": pytest.approx(1)}


def test_the_projection_onto_the_simplex() -> None:
    assert on_simplex([0.2, 0.3, 0.5]) == pytest.approx([0.2, 0.3, 0.5])
    assert on_simplex([2.0, 0.0, 0.1]) == pytest.approx([1, 0, 0])
    assert on_simplex([0.9, 0.7, -1.0]) == pytest.approx([0.6, 0.4, 0])
    assert math.fsum(on_simplex([5.0, 4.9, 4.8])) == pytest.approx(1)
