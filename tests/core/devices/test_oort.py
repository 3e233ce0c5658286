"""Oort's scores and choices against its formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedray.core.devices.availability import Anytime
from fedray.core.devices.candidates import Candidates
from fedray.core.devices.oort import PACE, Oort, OortState, explored, utility
from fedray.core.devices.settings import BufferedClock, RoundsClock
from fedray.core.devices.trips import SECOND, Trip
from tests.core.devices.worlds import clients, clock, devices, played, spread


def arrives(client: int, seconds: float) -> Trip:
    return Trip(round(seconds * SECOND), client, 0, 0, "arrives", 1.0, 0.0, 0.0, seconds, 0.0)


def heard(number: int, state: OortState | None = None, **of: tuple[float, float]) -> OortState:
    """The state after a step. `of`: (seconds, loss) of clients c0, c1, ..., which report one example each."""
    trips = [arrives(int(name[1:]), seconds) for name, (seconds, _) in of.items()]
    reports = {int(name[1:]): {"examples": 1.0, "loss": loss} for name, (_, loss) in of.items()}
    return (state or OortState()).heard(number, trips, reports)


def test_scores_by_hand() -> None:
    """Losses 1 to 4 have the 0.9 quantile 3 + 0.7; times 1, 2, 3, 10 have the 30th percentile 1 + 0.9 (2 - 1)."""
    state = heard(0, c5=(1.0, 1.0), c2=(2.0, 2.0))
    state = heard(2, state, c7=(3.0, 3.0), c0=(10.0, 4.0))
    assert state.clients.tolist() == [0, 2, 5, 7] and state.last.tolist() == [3, 1, 1, 3]
    bonus = {last: math.sqrt(0.1 * math.log(8) / last) for last in (1, 3)}
    wanted = [
        (3.7 / 3.7 + bonus[3]) * (1.9 / 10) ** 2,
        (2.0 / 3.7 + bonus[1]) * (1.9 / 2) ** 2,
        1.0 / 3.7 + bonus[1],
        (3.0 / 3.7 + bonus[3]) * (1.9 / 3) ** 2,
    ]
    assert state.scores(7) == pytest.approx(wanted)
    assert (state.scores(100) > state.scores(7)).all(), "the bonus grows"


def test_the_newest_report_counts_and_a_client_that_fails_has_none() -> None:
    state = heard(0, c1=(1.0, 5.0), c2=(1.0, 6.0))
    state = state.heard(4, [arrives(1, 3.0), arrives(2, 9.0)], {1: {"examples": 4.0, "loss": -0.5}})
    assert (
        state.utility.tolist() == [2.0, 6.0] and state.last.tolist() == [5, 1] and state.seconds.tolist() == [3.0, 1.0]
    )
    assert utility({"examples": 2.0, "loss": math.nan}) == 0.0
    assert np.isfinite(heard(0, c1=(1.0, 0.0)).scores(3)).all()


def test_exploration_falls() -> None:
    assert explored(0) == pytest.approx(0.9 * 0.98) and explored(1000) == 0.3


@pytest.mark.parametrize(("later", "percent"), [(0.5, 35.0), (1.0, 30.0), (2.0, 30.0)])
def test_the_pacer_gives_more_time_where_utility_falls(later: float, percent: float) -> None:
    state = OortState()
    for number in range(2 * PACE):
        assert state.percent == 30.0
        state = heard(number, state, c0=(1.0, 1.0 if number < PACE else later))
    assert state.percent == percent and len(state.gains) == 2 * PACE


def test_the_first_choice_takes_the_best_and_explores_clients_never_seen() -> None:
    """Round 31 explores 0.9 x 0.98^31 = 48 % of ten: the other five are the only known clients with a high score."""
    state = heard(0, **{f"c{client}": (1.0, 10.0 if client < 5 else 1.0) for client in range(20)})
    rule, candidates = Oort(0, 1000, state, 30), Candidates(Anytime(), 1000)
    chosen = rule.choose(30, 0, 10, candidates)
    assert sorted(chosen)[:5] == [0, 1, 2, 3, 4] and len(set(chosen)) == 10 and min(sorted(chosen)[5:]) >= 20
    assert candidates.taken == set(chosen)
    assert 0 not in rule.choose(30, 10, 5, candidates)


def test_clients_are_drawn_from_those_near_the_last_that_would_be_taken() -> None:
    """Of losses 40 to 1, those above 36.1 score 1. Eight are drawn from scores of at least 95 % of the eighth."""
    state = heard(0, **{f"c{client}": (1.0, 40.0 - client) for client in range(40)})
    candidates = Candidates(Anytime(), 40)
    drawn = {client for number in range(60) for client in Oort(number, 40, state, 0).best(0, 0, 8, candidates)}
    scores = state.scores(0)
    bar = 0.95 * np.sort(scores)[-8]
    assert drawn == {int(client) for client in np.flatnonzero(scores >= bar)} and len(drawn) > 8


def test_the_first_round_is_a_uniform_draw() -> None:
    of = spread(50, 1.0)
    assert played(clock(RoundsClock(), of, 5, sampling="oort"), 1) == played(clock(RoundsClock(), of, 5), 1)


def test_small_populations_are_explored_to_the_end() -> None:
    steps = played(clock(RoundsClock(), spread(8, 1.0), 6, sampling="oort"), 30)
    assert all(len(set(clients(step.arrived))) == 6 for step in steps)


@pytest.mark.parametrize("settings", [RoundsClock(), BufferedClock(8, 4)])
def test_fast_devices_are_chosen_more_often(settings: RoundsClock | BufferedClock) -> None:
    """With equal losses, 30 fast devices of 100 make more than 45 % of the trips once all have been seen."""
    steps = played(clock(settings, devices([1.0] * 30 + [20.0] * 70), 8, sampling="oort"), 150)
    chosen = [client for step in steps[50:] for client in clients(step.begun)]
    assert np.mean(np.array(chosen) < 30) > 0.45
