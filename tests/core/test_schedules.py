from __future__ import annotations

import math

import pytest

from fedray.core.schedules import SCHEDULES, Constant, Cosine, Cumulative, Exponential, Schedule


def test_exponential_reaches_the_rate_after_its_steps() -> None:
    schedule = Exponential(decay_rate=0.25, decay_steps=10)
    assert [schedule.factor(t, 100) for t in (0, 5, 10, 20)] == pytest.approx([1, 0.5, 0.25, 0.0625])


def test_cumulative_is_the_recursion_that_the_paper_prints() -> None:
    schedule, rate = Cumulative(decay_rate=0.5, decay_steps=50), 1.0
    for t in range(20):
        rate *= 0.5 ** (t / 50)
        assert schedule.factor(t, 20) == pytest.approx(rate)


def test_cumulative_warns_where_nothing_is_left() -> None:
    vanishing = Cumulative(decay_rate=0.5, decay_steps=1000)  # over 1,000 rounds: 0.5 ** (999 * 1000 / 2000) = 1e-150
    with pytest.warns(UserWarning, match="ends at 1e-150 of its start; raise decay_steps"):
        vanishing.check(1000)
    Cumulative(decay_rate=0.5, decay_steps=1000).check(100)  # no warning: pytest would raise it as an error


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        (Cumulative(decay_rate=0.5, decay_steps=100), "0"),  # 0.5 ** (999 * 1000 / 200)
        (Exponential(decay_rate=0.5, decay_steps=0.5), "0"),
        (Exponential(decay_rate=4.0, decay_steps=1), "infinite"),
    ],
)
def test_a_round_without_a_learning_rate_is_refused(schedule: Schedule, rate: str) -> None:
    with pytest.raises(ValueError, match=f"algorithm.schedule: the learning rate of round 1000 would be {rate}: raise"):
        schedule.check(1000)


def test_cosine_falls_from_one_towards_its_floor() -> None:
    schedule = Cosine(floor=0.2)
    assert [schedule.factor(t, 8) for t in (0, 4, 8)] == pytest.approx([1, 0.6, 0.2])
    rates = [Cosine().factor(t, 25) for t in range(25)]
    assert rates == sorted(rates, reverse=True) and rates[0] == 1 and rates[-1] > 0
    assert Cosine().factor(2, 8) == pytest.approx((1 + math.sqrt(0.5)) / 2)


@pytest.mark.parametrize("wrong", [{"decay_rate": 0.0}, {"decay_steps": 0.0}, {"decay_rate": -0.5}])
@pytest.mark.parametrize("kind", [Exponential, Cumulative])
def test_wrong_settings_are_refused(kind: type, wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        kind(**wrong)


def test_every_schedule_starts_at_one() -> None:
    assert Constant().factor(7, 8) == 1
    assert [schedule().factor(0, 8) for schedule in SCHEDULES.values()] == [1] * len(SCHEDULES)
