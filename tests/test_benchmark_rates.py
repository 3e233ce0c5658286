"""The choice of a rate in studies."""

from __future__ import annotations

from benchmarks.rates import tune

RATES = (0.1, 0.2, 0.4, 0.8)


def test_rates_are_tried_until_the_best_has_a_worse_neighbour_on_both_sides() -> None:
    asked: list[float] = []

    def score(rate: float) -> float:
        asked.append(rate)
        return -abs(rate - 0.4)

    assert list(tune(RATES, slice(0, 2), score)) == ["0.1", "0.2", "0.4", "0.8"] and asked == list(RATES)


def test_the_lowest_rate_may_be_the_best() -> None:
    assert tune(RATES, slice(1, 2), lambda rate: rate, min) == {"0.1": 0.1, "0.2": 0.2, "0.4": 0.4}


def test_the_neighbours_of_the_best_known_rate_are_tried() -> None:
    """Such as of a rate that was the last of the list, before the list grew."""
    assert tune(RATES, slice(0, 2), lambda rate: -rate, known={"0.1": 1.0, "0.2": 2.0})["0.4"] == -0.4


def test_what_is_known_is_not_tried_again() -> None:
    known = {"0.1": 3.0, "0.2": 2.0, "0.4": 3.0}
    assert tune(RATES, slice(0, 3), lambda rate: 1 / 0, min, known) == known
