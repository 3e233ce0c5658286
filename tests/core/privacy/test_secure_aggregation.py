from __future__ import annotations

import math

import numpy as np
import pytest

from fedray.core.privacy.secure_aggregation import SecureAggregation
from fedray.core.seeds import numpy_generator


@pytest.mark.parametrize(
    ("users", "size", "factor"), [(2**10, 2**20, 1.73), (2**14, 2**20, 3.62), (2**14, 2**24, 1.98)]
)
def test_the_factors_are_those_of_bonawitz(users: int, size: int, factor: float) -> None:
    complete = SecureAggregation(users, users)
    traffic = complete.traffic(size, bits=16 + int(math.log2(users)))
    assert traffic.factor(plain=2 * size) == pytest.approx(factor, abs=0.005)
    assert traffic.sent + traffic.received - traffic.vector == 32 * (7 * users - 4)


def test_neighbours_bound_the_traffic_whatever_the_cohort() -> None:
    small, large = (SecureAggregation(cohort, 100).traffic(178_000, 16) for cohort in (1_000, 1_000_000))
    assert small == large
    assert large.factor(plain=4 * 178_000) == pytest.approx(0.5 + 32 * (2 * 101 + 5 * 100 + 1) / 712_000)


@pytest.mark.parametrize(
    ("cohort", "neighbours", "degree"), [(10, 100, 9), (101, 100, 100), (500, 100, 100), (500, 99, 100), (1, 5, 0)]
)
def test_a_client_has_as_many_neighbours_as_the_cohort_allows(cohort: int, neighbours: int, degree: int) -> None:
    assert SecureAggregation(cohort, neighbours).degree == degree


@pytest.mark.parametrize("present", range(0, 11))
def test_a_small_cohort_opens_from_the_threshold_on(present: int) -> None:
    answered = np.arange(10) < present
    assert SecureAggregation(10, 100, 0.65).opens(answered, numpy_generator(0)) == (present >= 7)


def test_on_a_ring_one_lonely_client_closes_the_round() -> None:
    order = numpy_generator(5).permutation(200)
    answered = np.ones(200, bool)
    ring = SecureAggregation(200, 10, 0.5)  # 11 holders, 6 of whom must answer
    answered[order[[199, 0, 1, 2, 3]]] = False  # five in a row, across the end of the ring
    assert ring.opens(answered, numpy_generator(5))
    answered[order[4]] = False
    assert not ring.opens(answered, numpy_generator(5))
    assert SecureAggregation(200, 200, 0.5).opens(answered, numpy_generator(5)), "194 of 200 are there"


def rounds_of(protocol: SecureAggregation, dropout: float) -> tuple[list[bool], list[int]]:
    """For each of 500 rounds: whether the sum opened, and how many clients answered."""
    opened, present = [], []
    for trial in range(500):
        generator = numpy_generator("trial", trial)
        answered = generator.random(protocol.cohort) >= dropout
        opened.append(protocol.opens(answered, generator))
        present.append(int(answered.sum()))
    return opened, present


@pytest.mark.parametrize(("neighbours", "dropout"), [(500, 0.48), (500, 0.5), (20, 0.15), (20, 0.2), (40, 0.2)])
def test_the_probability_of_failure_bounds_what_happens(neighbours: int, dropout: float) -> None:
    protocol = SecureAggregation(300, neighbours)
    opened, _ = rounds_of(protocol, dropout)
    share, bound = 1 - float(np.mean(opened)), protocol.failure(dropout)
    assert share <= bound + 4 * math.sqrt(bound / 500)
    if neighbours >= 300:
        assert share == pytest.approx(bound, abs=4 * math.sqrt(bound / 500))


def test_a_round_fails_where_fewer_than_needed_answer() -> None:
    """Two of three clients must answer; each drops out with probability 1/2 or 1/4."""
    protocol = SecureAggregation(3)
    assert protocol.needed == 2
    assert protocol.failure(0.5) == pytest.approx(4 / 8) and protocol.failure(0.25) == pytest.approx(10 / 64)


def test_a_sum_that_opens_has_the_noise_of_the_threshold() -> None:
    protocol = SecureAggregation(60, 10, 0.5)
    opened, present = rounds_of(protocol, 0.25)
    assert 0.05 < np.mean(opened) < 0.95
    assert protocol.fewest == 33, "six of each eleven holders: of 60, not fewer than 32.7"
    assert min(count for count, sum_is_open in zip(present, opened, strict=True) if sum_is_open) >= protocol.fewest


def test_nobody_and_a_single_client() -> None:
    alone = SecureAggregation(1)
    assert alone.opens(np.ones(1, bool), numpy_generator(0))
    assert not alone.opens(np.zeros(1, bool), numpy_generator(0))
    assert alone.seconds(10, 1).server > 0
    assert SecureAggregation(0).seconds(10, 0).server == 0


# Bonawitz et al., 100,000 numbers: clients, share lost before the upload, time of a client [s], of the server [s]
PUBLISHED = [
    (500, 0.0, 0.849, 2.018),
    (500, 0.1, 0.849, 62.239),
    (500, 0.3, 0.849, 143.389),
    (1000, 0.0, 1.699, 6.412),
]


@pytest.mark.parametrize(("users", "lost", "client", "server"), PUBLISHED)
def test_times_are_near_those_of_bonawitz(users: int, lost: float, client: float, server: float) -> None:
    seconds = SecureAggregation(users, users).seconds(100_000, round(users * (1 - lost)))
    assert seconds.client == pytest.approx(client, rel=0.05)
    assert seconds.server == pytest.approx(server, rel=0.15)


def test_fewer_neighbours_save_time() -> None:
    ring, complete = SecureAggregation(1_000, 100), SecureAggregation(1_000, 1_000)
    assert ring.seconds(178_000, 900).server < complete.seconds(178_000, 900).server / 8
    assert ring.seconds(178_000, 900).client == pytest.approx(complete.seconds(178_000, 900).client / 10, rel=0.02)
