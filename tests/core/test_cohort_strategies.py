"""Strategies that see the whole cohort, against float64 references and against hostile clients."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from fedray.core.strategies import STRATEGIES, Krum, LayerwisePruning, Median, TrimmedMean, Weights, squared_distances
from fedray.core.sums import LayeredSum
from fedray.core.types import Layer, Vector

LAYERS = [Layer("a", 0, 40), Layer("b", 40, 90), Layer("a", 90, 97), Layer("c", 97, 300), Layer("beyond", 300, 310)]
WIDTH = 300
PLACES = {
    name: np.concatenate([np.arange(x.start, x.stop) for x in LAYERS if x.name == name]) for name in ("a", "b", "c")
}
FAR = {
    "huge": lambda honest: np.full(WIDTH, 1e30),
    "flipped": lambda honest: -100 * honest,
    "constant": lambda honest: np.full(WIDTH, 7.0),
}
LARGEST = np.finfo(np.float32).max


def cohort(count: int, seed: int = 0) -> tuple[list[str], Vector, dict[str, dict[str, float]]]:
    """Client ids in random order, their updates, which share a common part, and their reports."""
    generator = np.random.default_rng([count, seed])
    clients = [f"client {number}" for number in generator.permutation(count)]
    updates = (generator.normal(size=WIDTH) + generator.normal(size=(count, WIDTH))).astype(np.float32)
    return clients, updates, {client: {"examples": float(generator.integers(1, 500))} for client in clients}


def attacked(how: str) -> tuple[list[str], Vector, dict[str, dict[str, float]]]:
    """Ten clients, one of which is hostile and reports a billion examples."""
    clients, updates, reports = cohort(10)
    updates[5] = FAR[how](updates[5])
    return clients, updates, reports | {clients[5]: {"examples": 1e9}}


def pruned(
    strategy: LayerwisePruning, clients: Sequence[str], updates: Vector, reports: Mapping[str, Mapping[str, float]]
) -> Weights:
    plain = LayeredSum()
    for update in updates:
        plain.add(update, 1.0)
    mean = plain.mean()
    assert mean is not None
    return strategy.weigh(
        {name: strategy.probe(x, mean, LAYERS) for name, x in zip(clients, updates, strict=True)}, reports
    )


def chosen(strategy: Krum, clients: Sequence[str], updates: Vector) -> set[str]:
    weights = strategy.weigh(squared_distances(updates), clients, {})
    assert set(weights.values()) == {1.0}
    return set(weights)


def far_sums(updates: np.ndarray, f: int) -> np.ndarray:
    """Krum's scores as the paper defines them."""
    distances = np.square(updates[:, None].astype(np.float64) - updates[None]).sum(-1)
    return np.array([sum(sorted(np.delete(row, i))[: len(updates) - f - 2]) for i, row in enumerate(distances)])


@pytest.mark.parametrize("count", range(3, 21))
def test_pruning_is_the_reference(count: int) -> None:
    clients, updates, reports = cohort(count)
    exact = updates.astype(np.float64)
    weights = pruned(LayerwisePruning(0.2), clients, updates, reports)
    total = LayeredSum(LAYERS)
    for client, update in zip(clients, updates, strict=True):
        total.add(update, weights[client])
    found = total.mean()
    assert found is not None
    for name, places in PLACES.items():
        deviations = np.linalg.norm(exact[:, places] - exact[:, places].mean(0), axis=1)
        r = max(1, count * 2 // 10)
        kept = deviations.argsort()[r : count - r]
        examples = np.array([reports[client]["examples"] for client in clients])[kept]
        expected = (examples[:, None] * exact[kept][:, places]).sum(0) / examples.sum()
        assert {clients[i] for i in kept} == {client for client in clients if name in weights[client]}
        assert np.linalg.norm(found[places] - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("count", range(3, 21))
def test_median_and_trimmed_mean_are_the_reference(count: int) -> None:
    _, updates, _ = cohort(count)
    ordered = np.sort(updates.astype(np.float64), axis=0)
    trimmed = ordered[count * 3 // 10 : count - count * 3 // 10].mean(0)
    assert np.allclose(Median().combine(updates), np.median(updates.astype(np.float64), axis=0), rtol=1e-7, atol=0)
    assert np.allclose(TrimmedMean(0.3).combine(updates), trimmed, rtol=1e-7, atol=1e-15)
    assert np.allclose(TrimmedMean(0.0).combine(updates), ordered.mean(0), rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("count", range(3, 21))
def test_krum_is_the_reference(count: int) -> None:
    clients, updates, _ = cohort(count)
    scores = far_sums(updates, min(count * 2 // 10, (count - 3) // 2))
    order = [clients[i] for i in np.lexsort((clients, scores.round(6)))]
    assert chosen(Krum(), clients, updates) == {order[0]}
    assert chosen(Krum(select=3), clients, updates) == set(order[:3])
    assert chosen(Krum(select=99), clients, updates) == set(clients)
    cautious = far_sums(updates, min(count * 4 // 10, (count - 3) // 2))  # the limit lowers f in small cohorts
    assert chosen(Krum(byzantine=0.4), clients, updates) == {clients[np.lexsort((clients, cautious.round(6)))[0]]}


@pytest.mark.parametrize("how", FAR)
def test_one_hostile_client_of_ten_gains_no_more_than_the_rule_allows(how: str) -> None:
    """Median and trimmed mean stay within the honest updates, Krum takes honest ones, pruning drops the hostile one."""
    clients, updates, reports = attacked(how)
    honest = np.delete(updates, 5, axis=0)
    for found in (Median().combine(updates), TrimmedMean().combine(updates)):
        assert (honest.min(0) <= found).all() and (found <= honest.max(0)).all()
    assert clients[5] not in chosen(Krum(), clients, updates) | chosen(Krum(select=5), clients, updates)
    weights = pruned(LayerwisePruning(), clients, updates, reports)
    assert weights[clients[5]] == {}
    total = LayeredSum(LAYERS)
    for client, update in zip(clients, updates, strict=True):
        total.add(update, weights[client])
    found = total.mean()
    assert found is not None and (honest.min(0) - 1e-6 <= found).all() and (found <= honest.max(0) + 1e-6).all()


def test_pruning_judges_each_layer_alone() -> None:
    clients, updates, reports = cohort(10)
    updates[3, 40:90] = 50
    weights = pruned(LayerwisePruning(), clients, updates, reports)
    assert "b" not in weights[clients[3]]
    clean = pruned(LayerwisePruning(), clients, cohort(10)[1], reports)
    assert all(weights[client].get(name) == clean[client].get(name) for client in clients for name in "ac")
    assert all(sum(name in weights[client] for client in clients) == 8 for name in PLACES)


@pytest.mark.parametrize("strategy", [Median(), TrimmedMean(0.1), TrimmedMean(0.35)])
@pytest.mark.parametrize("cut", [1, 2, 7, 64, 299])
def test_blocks_do_not_show(strategy: Median | TrimmedMean, cut: int) -> None:
    for count in (2, 9, 10, 100):
        _, updates, _ = cohort(count)
        updates *= np.geomspace(1, 1e24, count, dtype=np.float32)[:, None]
        updates[count // 2 :] = -updates[
            : count - count // 2
        ]  # all cancel: the rounding errors left depend on the order of additions
        whole = strategy.combine(updates)
        blocks = [strategy.combine(updates[:, start : start + cut]) for start in range(0, WIDTH, cut)]
        assert whole.dtype == np.float32 and np.array_equal(np.concatenate(blocks), whole)
        assert np.array_equal(strategy.combine(np.asfortranarray(updates)), whole)


@pytest.mark.parametrize("count", [2, 5, 10, 17])
def test_the_order_of_the_clients_does_not_matter(count: int) -> None:
    clients, updates, reports = cohort(count)
    updates[1] = updates[0]  # a tie
    order = np.random.default_rng(1).permutation(count)
    others, moved = [clients[i] for i in order], updates[order]
    assert np.array_equal(squared_distances(moved), squared_distances(updates)[np.ix_(order, order)])
    assert chosen(Krum(), others, moved) == chosen(Krum(), clients, updates)
    assert pruned(LayerwisePruning(), others, moved, reports) == pruned(LayerwisePruning(), clients, updates, reports)
    for strategy in (Median(), TrimmedMean(0.2)):
        assert np.array_equal(strategy.combine(moved), strategy.combine(updates))


def test_pruning_breaks_ties_by_id() -> None:
    """With r = 1 of four, the first id of the two smallest, which tie, is dropped, and so is d, the largest."""
    deviations = {"d": 3.0, "b": 1.0, "c": 2.0, "a": 1.0}
    probes = {client: {"layer": value} for client, value in deviations.items()}
    weights = LayerwisePruning().weigh(probes, {client: {"examples": 5.0} for client in probes})
    assert weights == {"a": {}, "b": {"layer": 5.0}, "c": {"layer": 5.0}, "d": {}}
    alike = {client: {"layer": 1.0} for client in probes}
    weights = LayerwisePruning().weigh(alike, {client: {"examples": 5.0} for client in alike})
    assert weights == {"a": {}, "b": {"layer": 5.0}, "c": {"layer": 5.0}, "d": {}}


def test_krum_breaks_ties_by_id() -> None:
    assert Krum().weigh(1 - np.eye(4), ["d", "a", "c", "b"], {}) == {"a": 1.0}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_cohorts(count: int) -> None:
    """One or two clients are kept; of three, pruning and median keep the middle one, Krum one of the closest pair."""
    clients, reports = ["z", "y", "x"][:count], {client: {"examples": 2.0} for client in "zyx"}
    updates = np.array([[1.0], [2.0], [9.0]], np.float32)[:count] * np.ones(
        WIDTH, np.float32
    )  # three have the mean 4 and the deviations 3, 2, 5
    kept = set(clients) if count < 3 else {"z"}
    assert {
        client for client, weight in pruned(LayerwisePruning(0.4), clients, updates, reports).items() if weight
    } == kept
    assert chosen(Krum(byzantine=0.4), clients, updates) == (set(clients) if count < 3 else {"y"})
    assert (Median().combine(updates) == [1, 1.5, 2][count - 1]).all()
    assert (TrimmedMean(0.49).combine(updates) == [1, 1.5, 2][count - 1]).all()


def test_the_counts_are_those_of_the_decimal_numbers() -> None:
    """floor(0.29 * 100) is 29, although floats give 28."""
    values = np.zeros((100, 1), np.float32)
    values[:29] = 1  # the 29 largest
    assert TrimmedMean(0.29).combine(values) == 0 and TrimmedMean(0.28).combine(values) > 0
    probes = {f"{number:02}": {"layer": float(number)} for number in range(100)}
    weights = LayerwisePruning(0.29).weigh(probes, {client: {"examples": 1.0} for client in probes})
    assert [client for client in probes if weights[client]] == [f"{number:02}" for number in range(29, 71)]


@pytest.mark.parametrize("size", [3, 4, 10])
def test_the_largest_numbers_do_not_overflow(size: int) -> None:
    clients = [f"{number:02}" for number in range(size)]
    updates = np.full((size, WIDTH), LARGEST)
    reports = {client: {"examples": 1e9 - number} for number, client in enumerate(clients)}
    for signs in (np.ones(size), np.resize([1, -1], size)):
        moved = updates * signs[:, None].astype(np.float32)
        distances = squared_distances(moved)
        assert np.isfinite(distances).all() and distances.max() in (0, pytest.approx(WIDTH * (2 * float(LARGEST)) ** 2))
        assert len(chosen(Krum(), clients, moved)) == 1
        weights = pruned(LayerwisePruning(), clients, moved, reports)
        total = LayeredSum(LAYERS)
        for client, update in zip(clients, moved, strict=True):
            total.add(update, weights[client])
        for found in (total.mean(), Median().combine(moved), TrimmedMean().combine(moved)):
            assert found is not None and np.isfinite(found).all()
    assert np.allclose(Median().combine(updates), LARGEST) and np.allclose(TrimmedMean().combine(updates), LARGEST)


def test_distances_of_blocks_add_up() -> None:
    generator = np.random.default_rng(0)
    updates = generator.normal(size=(7, 5000)).astype(np.float32)
    exact = updates.astype(np.float64)
    expected = np.array([[sum((a - b) ** 2) for b in exact] for a in exact])
    found = squared_distances(updates)
    assert found.dtype == np.float64 and np.allclose(found, expected, rtol=1e-12, atol=0)
    assert np.array_equal(found, found.T) and not found.diagonal().any()
    blocks = squared_distances(updates[:, :1700]) + squared_distances(updates[:, 1700:])
    assert np.allclose(blocks, found, rtol=1e-12, atol=0)
    near = np.float32([[1e4], [1e4 + 2**-10]]).repeat(9, axis=1)  # here |a|^2 + |b|^2 - 2ab would be 0 or negative
    assert squared_distances(near)[0, 1] == 9 * 2.0**-20


def test_a_report_without_examples_names_what_is_missing() -> None:
    with pytest.raises(KeyError, match="^'examples'$"):
        LayerwisePruning().weigh({"a": {"layer": 1.0}}, {"a": {"loss": 2.0}})


def test_a_client_without_examples_has_no_weight() -> None:
    probes = {client: {"layer": place} for place, client in enumerate("abcd")}
    weights = LayerwisePruning().weigh(
        probes, {client: {"examples": 3.0 if client == "b" else 0.0} for client in "abcd"}
    )
    total = LayeredSum([Layer("layer", 0, 2)])
    for place, client in enumerate("abcd"):
        total.add(np.full(2, place, np.float32), weights[client])
    assert np.array_equal(total.mean(), [1, 1])


WRONG = [
    *((LayerwisePruning, {"pruning": wrong}) for wrong in (0.0, -0.1, 0.5, math.nan)),
    *((TrimmedMean, {"trim": wrong}) for wrong in (-0.1, 0.5, 1.0, math.nan)),
    *(
        (Krum, wrong)
        for wrong in ({"byzantine": -0.1}, {"byzantine": 0.5}, {"byzantine": math.nan}, {"select": 0}, {"select": -1})
    ),
    *((cls, {"clip_norm": 0.0}) for cls in (LayerwisePruning, TrimmedMean, Krum, Median)),
]


@pytest.mark.parametrize(("cls", "wrong"), WRONG)
def test_wrong_settings_are_refused(cls: type, wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be (above 0|at least [01])( and below 0.5)?, not"):
        cls(**wrong)


def test_all_are_registered() -> None:
    for kind, cls in {
        "layerwise_pruning": LayerwisePruning,
        "median": Median,
        "trimmed_mean": TrimmedMean,
        "krum": Krum,
    }.items():
        assert STRATEGIES[kind] is cls and pickle.loads(pickle.dumps(cls(clip_norm=2.0))) == cls(clip_norm=2.0)
