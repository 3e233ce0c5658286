"""A clock plays the same trips from a stored state, and chooses single clients uniformly or by cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fedray.core.devices.availability import Anytime, Nightly
from fedray.core.devices.candidates import Candidates
from fedray.core.devices.clock import _Simulation
from fedray.core.devices.selection import Uniform, Weighted
from fedray.core.devices.settings import BufferedClock, RoundsClock
from fedray.core.devices.state import ClockState
from tests.core.devices.worlds import clock, load, played, spread

CLOCKS = [
    RoundsClock(over=1.3, deadline=90.0, late="partial", server_seconds=1.0),
    BufferedClock(8, 3, server_seconds=1.0),
    BufferedClock(8, 3, refill="step", most=1),
]


@pytest.mark.parametrize("sampling", ["uniform", "weighted", "oort"])
@pytest.mark.parametrize("settings", CLOCKS, ids=["rounds", "arrival", "step"])
def test_the_same_trips_from_a_stored_state(settings: RoundsClock | BufferedClock, sampling: str) -> None:
    of = spread(60, 1.0, availability=Nightly(hours=3.0).windows(0, 60), lost=0.1, seconds=600.0)
    options = {"sampling": sampling, "cost": lambda client: float(client % 5)}
    steps = played(clock(settings, of, 6, **options), 25)
    assert played(clock(settings, of, 6, **options), 25, store=True) == steps
    fresh = clock(settings, of, 6, **options)
    for step in played(fresh, 25)[::-1][:3]:  # the last steps of a third clock
        assert step == steps[step.number]


def test_who_becomes_a_candidate_is_found_without_a_search_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps equal those of a search of all clients: 30, seldom available, for 12 places, so trips are often missing."""
    of = spread(30, 1.0, availability=Nightly(start=3.0, hours=1.5).windows(0, 30), lost=0.3, seconds=900.0)
    steps, search = played(clock(BufferedClock(12, 4), of), 60), _Simulation.fill
    monkeypatch.setattr(_Simulation, "fill", lambda play, settings, fresh=None: search(play, settings))
    searched = played(clock(BufferedClock(12, 4), of), 60)
    assert [replace(step, begun=tuple(sorted(step.begun))) for step in steps] == [
        replace(step, begun=tuple(sorted(step.begun))) for step in searched
    ]
    assert any(len(step.begun) > len(step.arrived) + 3 for step in steps)


def test_a_state_is_vectors_of_two_types() -> None:
    player = clock(BufferedClock(8, 3), spread(60, 1.0), sampling="oort")
    step, state = player.simulate(player.start(), 0, load, frozenset())
    state = player.heard(state, step, {trip.client: {"examples": 2.0, "loss": 1.5} for trip in step.arrived})
    arrays = state.arrays()
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.int64), np.dtype(np.float64)}
    assert all(array.ndim == 1 for array in arrays.values())
    again = ClockState.of(arrays)
    assert (again.now, again.open) == (state.now, state.open) and len(state.open) == 7
    assert again.oort is not None and again.oort.gains == (9.0,)
    assert all((array == again.arrays()[name]).all() for name, array in arrays.items())
    empty = ClockState.of(ClockState().arrays())
    assert (empty.now, empty.open, empty.oort) == (0, (), None)


def test_single_clients_are_drawn_uniformly_among_candidates() -> None:
    """Three of ten are taken; the others are drawn 1,000 times each, with a standard deviation of 29."""
    candidates = Candidates(Anytime(), 10)
    candidates.taken = {0, 4, 7}
    counts = Counter(Uniform(0, 10).one(version, 1, candidates) for version in range(7000))
    assert set(counts) == {1, 2, 3, 5, 6, 8, 9} and max(abs(count - 1000) for count in counts.values()) < 5 * 29.3


def test_single_clients_are_drawn_by_their_costs() -> None:
    candidates = Candidates(Anytime(), 5)
    candidates.taken = {3}
    counts = Counter(Weighted(0, 5, float).one(version, 1, candidates) for version in range(7000))
    for client in (1, 2, 4):
        assert abs(counts[client] - 1000 * client) < 5 * np.sqrt(1000 * client)
    assert set(counts) == {1, 2, 4}
    candidates.taken = {1, 2, 3, 4}
    assert Weighted(0, 5, float).one(0, 1, candidates) is None


def test_the_last_candidates_of_a_large_population_are_found() -> None:
    candidates = Candidates(Anytime(), 10_000)
    candidates.taken = set(range(10_000)) - {77, 78}
    assert {Uniform(0, 10_000).one(version, 1, candidates) for version in range(40)} == {77, 78}
    candidates.taken |= {77, 78}
    assert Uniform(0, 10_000).choose(0, 0, 3, candidates) == []
