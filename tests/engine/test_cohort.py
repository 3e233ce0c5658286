from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fedray.engine.round.cohort import cut, drops_out, sample
from fedray.engine.settings import CohortSettings

IDS = [f"client-{i:03d}" for i in range(200)]


def one(client: str) -> float:
    return 1.0


def number(client: str) -> float:
    return float(client[-3:])


def test_a_cohort_follows_seed_and_round() -> None:
    settings = CohortSettings(size=20)
    cohort = sample(IDS, settings, one, 0, 5)
    assert cohort == sample(IDS, settings, one, 0, 5)
    others = [sample(IDS, settings, one, seed, round) for seed, round in ((0, 6), (1, 5), (5, 0))]
    assert all(set(other) != set(cohort) for other in others)


@pytest.mark.parametrize(
    "settings",
    [
        CohortSettings(size=20),
        CohortSettings(fraction=0.1),
        CohortSettings(size=20, sampling="weighted"),
        CohortSettings(size=20, availability=0.5),
        CohortSettings(size=20, sampling="weighted", availability=0.5),
    ],
    ids=str,
)
def test_without_replacement_and_of_the_size(settings: CohortSettings) -> None:
    for round in range(20):
        cohort = sample(IDS, settings, number, 0, round)
        assert len(cohort) == len(set(cohort)) == 20 and set(cohort) <= set(IDS)


def test_uniform_frequencies() -> None:
    """Each of 200 clients is in a cohort of 20 with probability 0.1: over 2,000 rounds, 200 times with a standard
    deviation of 13.4.
    """
    counts = Counter(client for round in range(2000) for client in sample(IDS, CohortSettings(size=20), one, 0, round))
    assert len(counts) == 200
    assert max(abs(count - 200) for count in counts.values()) < 5 * np.sqrt(2000 * 0.1 * 0.9)


def test_weighted_frequencies() -> None:
    """With one client per round, the frequencies are the shares of the costs.

    Over 3,000 rounds, 5 standard deviations are 5 sqrt(p (1 - p) / 3000).
    """
    ids, costs = ["a", "b", "c", "d"], {"a": 1.0, "b": 2.0, "c": 7.0, "d": 0.0}
    settings = CohortSettings(size=1, sampling="weighted")
    counts = Counter(sample(ids, settings, costs.__getitem__, 0, round)[0] for round in range(3000))
    for client, cost in costs.items():
        share = cost / 10
        assert abs(counts[client] / 3000 - share) <= 5 * np.sqrt(share * (1 - share) / 3000)


def test_weighted_takes_who_has_something() -> None:
    settings = CohortSettings(size=4, sampling="weighted")
    costs = {"a": 1.0, "b": 0.0, "c": 3.0, "d": 0.0}
    assert sorted(sample(list(costs), settings, costs.__getitem__, 0, 0)) == ["a", "c"]
    assert sample(["b", "d", "e", "f"], settings, lambda client: 0.0, 0, 0) == []


def test_fraction_is_rounded_and_at_least_one() -> None:
    counts = {
        fraction: len(sample(IDS[:43], CohortSettings(fraction=fraction), one, 0, 0))
        for fraction in (0.001, 0.07, 0.5, 1.0)
    }
    assert counts == {0.001: 1, 0.07: 3, 0.5: 22, 1.0: 43}


def test_availability() -> None:
    """Half of 200 clients are available, so a cohort of 150 has only about 100: others in each round, and everybody in
    the end.
    """
    settings = CohortSettings(size=150, availability=0.5)
    cohorts = [set(sample(IDS, settings, one, 0, round)) for round in range(20)]
    assert all(abs(len(cohort) - 100) < 5 * np.sqrt(200 * 0.25) for cohort in cohorts)
    assert cohorts[0] != cohorts[1] and set.union(*cohorts) == set(IDS)
    assert sample(IDS[:2], CohortSettings(size=1, availability=1e-9), one, 0, 0) == []
    assert sample(IDS[:2], CohortSettings(size=1, availability=1e-9, sampling="weighted"), one, 0, 0) == []


def test_dropout_is_each_clients_own() -> None:
    settings = CohortSettings(size=1, dropout=0.3)
    drops = np.array([[drops_out(client, settings, 0, round) for client in IDS] for round in range(10)])
    assert abs(drops.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / drops.size)
    assert (drops[0] != drops[1]).any() and drops.any(axis=0).mean() > 0.9
    assert drops[3, 7] == drops_out(IDS[7], settings, 0, 3)  # independent of who else is asked
    assert not any(drops_out(client, CohortSettings(size=1), 0, 0) for client in IDS)


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_lanes_are_balanced_whatever_the_order(lanes: int) -> None:
    generator = np.random.default_rng(0)
    costs = dict(zip(IDS, generator.pareto(1.5, len(IDS)) + 1, strict=True))
    found = cut(IDS, lanes, costs.__getitem__)
    assert sorted(client for lane in found for client in lane) == IDS and len(found) == lanes
    loads = [sum(costs[client] for client in lane) for lane in found]
    assert max(loads) - min(loads) <= max(costs.values())
    for _ in range(5):
        assert cut(generator.permutation(IDS).tolist(), lanes, costs.__getitem__) == found


def test_lanes_of_equal_clients_and_small_cohorts() -> None:
    assert [len(lane) for lane in cut(IDS[:19], 8, one)] == [3, 3, 3, 2, 2, 2, 2, 2]
    assert cut(IDS[:2], 8, one) == [[IDS[0]], [IDS[1]]]
    assert cut([], 8, one) == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "set size .clients a round., such as size: 10"),
        ({"size": 3, "fraction": 0.5}, "unset one, with size=null or fraction=null"),
        ({"size": 0}, "size must be at least 1, not 0"),
        ({"fraction": 1.5}, r"fraction must be above 0 and at most 1, not 1.5"),
        ({"size": 3, "sampling": "best"}, "must be one of uniform, weighted, poisson, cyclic, oort, not 'best'"),
        ({"size": 3, "availability": 0.0}, r"availability must be above 0 and at most 1, not 0"),
        ({"size": 3, "dropout": 1.0}, r"dropout must be at least 0 and below 1, not 1.0"),
        ({"size": 3, "limit": 4}, "limit applies to poisson cohorts, not to uniform ones: remove it"),
        ({"size": 3, "sampling": "poisson", "limit": 0}, "limit must be at least 1, not 0"),
    ],
)
def test_wrong_settings_are_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CohortSettings(**values)


def test_more_than_there_are() -> None:
    with pytest.raises(
        ValueError, match="cohort.size is 11, but the population has only 10 clients: lower it, or set cohort.fraction"
    ):
        sample(IDS[:10], CohortSettings(size=11), one, 0, 0)
