"""The buffered clock checked by hand: how stale clients are, who is replaced, and who is stopped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedray.core.devices.settings import BufferedClock, RoundsClock
from fedray.core.devices.state import Step
from fedray.core.devices.trips import SECOND
from tests.core.devices.worlds import clients, clock, devices, ends, load, played, spread, windows


def behind(steps: list[Step]) -> list[int]:
    return [step.behind(trip) for step in steps for trip in step.arrived]


def test_refilled_by_steps_a_buffer_as_large_as_the_concurrency_is_a_synchronous_cohort() -> None:
    of = spread(60, 1.0)
    rounds = played(clock(RoundsClock(server_seconds=3.0), of, size=6), 20)
    buffered = played(clock(BufferedClock(6, 6, refill="step", server_seconds=3.0), of), 20)
    assert buffered == rounds and not any(behind(buffered))


def test_staleness_with_equal_devices_refilled_at_arrivals() -> None:
    """C = 4, K = 2, trips of 1 s, so 4 trips and 2 steps end in every second.

    Second 1 ends the trips of version 0: two in step 0, two in step 1, so 0 + 0 + 1 + 1. The trip that replaces the
    first arrival of step 0 starts from version 0. Those that replace the second arrival, which ends the step, and the
    first one of step 1 start from version 1. The last one starts from version 2. From here on each second ends trips of
    versions v, v + 1, v + 1, v + 2 in steps v + 2, v + 2, v + 3, v + 3: in any order of clients, they are 10 - 4 = 6
    steps behind in total.
    """
    steps = played(clock(BufferedClock(4, 2), devices([1.0] * 40)), 20)
    assert [step.ended / SECOND for step in steps] == [float(1 + number // 2) for number in range(20)]
    assert behind(steps[:2]) == [0, 0, 1, 1]
    assert [sum(behind(steps[n : n + 2])) for n in range(2, 20, 2)] == [6] * 9
    for step in steps:
        assert [trip.version for trip in step.begun] == [step.number] * len(step.begun)


def test_stale_updates_count_less() -> None:
    player = clock(BufferedClock(8, 3), spread(60, 1.0))
    step = played(player, 9)[-1]
    assert [player.factor(step, trip) for trip in step.arrived] == [(1 + n) ** -0.5 for n in behind([step])]
    player = clock(RoundsClock(), spread(60, 1.0), size=6)
    step = played(player, 1)[0]
    assert [player.factor(step, trip) for trip in step.arrived] == [1.0] * 6


def test_staleness_with_equal_devices_refilled_by_steps() -> None:
    """Each step replaces its two arrivals, so trips of versions v, v, v + 1, v + 1 end in steps v + 1 and v + 2."""
    steps = played(clock(BufferedClock(4, 2, refill="step"), devices([1.0] * 40)), 20)
    assert behind(steps[:2]) == [0, 0, 1, 1]
    assert [sum(behind(steps[n : n + 2])) for n in range(2, 20, 2)] == [4] * 9


@pytest.mark.parametrize("refill", ["arrival", "step"])
def test_as_many_trips_are_open_as_the_concurrency(refill: str) -> None:
    player = clock(BufferedClock(8, 3, refill=refill), spread(60, 1.0, lost=0.2))
    state = player.start()
    for step in played(player, 30):
        again, state = player.simulate(state, step.number, load, frozenset())
        assert len(step.arrived) == 3 and again == step
        assert len(state.open) == (7 if refill == "arrival" else 5)
        assert len(set(clients(state.open))) == len(state.open) and list(state.open) == sorted(state.open)
        assert len(set(clients(step.arrived))) == 3 and len(set(clients(step.begun))) == len(step.begun)


def test_lost_trips_do_not_count_and_are_replaced() -> None:
    steps = played(clock(BufferedClock(8, 3), spread(60, 1.0, lost=0.3)), 200)
    lost = sum(len(step.lost) for step in steps)
    of = lost + sum(len(step.arrived) for step in steps)
    assert abs(lost - 0.3 * of) < 5 * np.sqrt(of * 0.3 * 0.7)
    assert all(0 < trip.end - trip.start < SECOND * sum(trip[6:]) for step in steps for trip in step.lost)


def test_trips_that_would_be_too_far_behind_are_stopped() -> None:
    """Client 0 takes 100 s, the other two 1 s each: with most = 3 its trip may end at most 3 steps after it began."""
    steps = played(clock(BufferedClock(2, 1, most=3), devices([100.0, 1.0, 1.0])), 8)
    began = next(step.number for step in steps if 0 in clients(step.begun))
    stopped = next(step for step in steps if step.aborted)
    assert stopped.number == began + 3 and clients(stopped.aborted) == [0]
    assert ends(stopped.aborted) == [stopped.ended / SECOND] and stopped.aborted[0].fate == "aborted"
    assert max(behind(played(clock(BufferedClock(8, 3, most=2), spread(60, 1.5)), 100))) == 2


def test_what_ends_while_the_server_is_busy_waits() -> None:
    """With trips of 1 s and 2.5 s on the server, a step of one arrival takes a trip that ended during the last step."""
    steps = played(clock(BufferedClock(2, 1, server_seconds=2.5), devices([1.0] * 9)), 3)
    assert [step.ended / SECOND for step in steps] == [3.5, 6.0, 8.5]
    assert steps[0].arrived[0].end == steps[1].arrived[0].end == SECOND
    assert [trip.start / SECOND for trip in steps[1].begun] == [3.5]


def test_who_becomes_available_is_chosen_at_once_where_trips_are_missing() -> None:
    of = devices([5.0, 1.0, 1.0], windows([(0, 50)], [(2, 50)], [(3, 50)]))
    (step,) = played(clock(BufferedClock(3, 2), of), 1)
    assert [(trip.client, trip.start / SECOND) for trip in step.begun] == [(0, 0.0), (1, 2.0), (2, 3.0)]
    assert clients(step.arrived) == [1, 2] and step.ended == 4 * SECOND


def test_a_step_is_short_where_everybody_has_had_a_trip() -> None:
    """Only client 0 ever arrives, so a buffer of two is never full."""
    of = devices([1.0, 9.0, 9.0], windows([(0, 99)], [(0, 3)], [(0, 3)]))
    first, second = played(clock(BufferedClock(2, 2), of), 2)
    assert clients(first.arrived) == [0] and sorted(clients(first.lost)) == [1, 2] and first.complete
    assert clients(second.arrived) == [0] and second.arrived[0].version == 1
    lonely = devices([9.0], windows([(0, 3)], period=10.0))
    first, second = played(clock(BufferedClock(1, 1), lonely), 2)
    assert not first.complete and first.ended == 3 * SECOND and second.ended == 13 * SECOND


def test_nobody_for_seven_days() -> None:
    with pytest.raises(ValueError, match="no client is available for seven days from day 0.0 of virtual time: see"):
        played(clock(BufferedClock(1, 1), devices([1.0], windows([(8 * 86400, 9 * 86400)]))), 1)


def test_clients_that_stand_first_win_ties() -> None:
    for step in played(clock(BufferedClock(10, 10), devices([1.0] * 50)), 5):
        assert [trip[:2] for trip in step.arrived] == sorted(trip[:2] for trip in step.arrived)


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"buffer is 3, but only concurrency=2 clients train at once"):
        BufferedClock(2, 3)
    with pytest.raises(ValueError, match="refill must be arrival or step, not 'never'"):
        replace(BufferedClock(2, 2), refill="never")
    with pytest.raises(ValueError, match="late must be discard or partial"):
        RoundsClock(late="wait")
    with pytest.raises(ValueError, match="late=partial needs a deadline"):
        RoundsClock(late="partial")
