"""Rounds checked by hand: which clients a round waits for, and when it ends."""

from __future__ import annotations

import math

import pytest

from fedray.core.devices.settings import RoundsClock
from fedray.core.devices.trips import SECOND, Load
from fedray.engine.round.cohort import sample
from fedray.engine.settings import CohortSettings
from tests.core.devices.worlds import clients, clock, devices, ends, names, played, spread, windows

FOUR = [1.0, 2.0, 3.0, 4.0]


def test_a_round_waits_for_its_slowest_client() -> None:
    first, second = played(clock(RoundsClock(), devices(FOUR), size=4), 2)
    assert clients(first.arrived) == [0, 1, 2, 3] and ends(first.arrived) == FOUR
    assert (first.started, first.ended, second.started, second.ended) == (0, 4 * SECOND, 4 * SECOND, 8 * SECOND)
    assert first.complete and not (first.lost or first.late or first.aborted)


def test_over_selection_takes_the_first_and_stops_the_others() -> None:
    (step,) = played(clock(RoundsClock(over=2.0), devices(FOUR), size=2), 1)
    assert clients(step.arrived) == [0, 1] and step.ended == 2 * SECOND
    assert clients(step.late) == [2, 3] and ends(step.late) == [2.0, 2.0]
    assert sorted(clients(step.begun)) == [0, 1, 2, 3]
    assert [trip.spent()[0] for trip in step.late] == [2.0, 2.0]


def test_over_selection_rounds_up_and_ends_at_the_population() -> None:
    for over, chosen in ((1.0, 3), (1.2, 4), (4 / 3, 4), (2.0, 6), (3.0, 6)):
        (step,) = played(clock(RoundsClock(over=over), devices([1.0] * 6), size=3), 1)
        assert len(step.begun) == chosen and len(step.arrived) == 3


@pytest.mark.parametrize(("quorum", "complete"), [(0.0, True), (0.5, True), (0.51, False)])
def test_a_deadline_ends_a_round_and_a_quorum_decides_whether_it_counts(quorum: float, complete: bool) -> None:
    settings = RoundsClock(deadline=2.5, quorum=quorum, server_seconds=0.25)
    first, second = played(clock(settings, devices(FOUR), size=4), 2)
    assert clients(first.arrived) == [0, 1] and clients(first.late) == [2, 3]
    assert first.complete == complete and second.started == first.ended == 2.75 * SECOND
    assert second.arrived[0].start == 2.75 * SECOND and second.arrived[0].version == 1


def test_rounding_neither_chooses_nor_asks_for_one_more() -> None:
    """As floats, 1.1 x 10 is above 11 by 2e-15, and 0.55 x 100 above 55 by 7e-15."""
    (step,) = played(clock(RoundsClock(over=1.1), devices([1.0] * 20), size=10), 1)
    assert len(step.begun) == 11
    settings = RoundsClock(deadline=2.0, quorum=0.55)
    (step,) = played(clock(settings, devices([1.0] * 55 + [3.0] * 45), size=100), 1)
    assert len(step.arrived) == 55 and step.complete


def test_who_arrives_at_the_deadline_has_arrived_and_a_full_cohort_does_not_wait_for_it() -> None:
    (step,) = played(clock(RoundsClock(deadline=3.0), devices(FOUR), size=4), 1)
    assert clients(step.arrived) == [0, 1, 2] and step.ended == 3 * SECOND
    (step,) = played(clock(RoundsClock(deadline=9.0), devices(FOUR), size=4), 1)
    assert clients(step.arrived) == [0, 1, 2, 3] and step.ended == 4 * SECOND


def test_late_clients_do_the_share_of_their_work_that_fits() -> None:
    """4 s - 1 s of latency - 1 s down - 1 s up leave 1 s: all of 1 s of work, half of 2 s, a quarter of 4 s."""
    settings = RoundsClock(deadline=4.0, late="partial")
    player = clock(settings, devices([1.0, 2.0, 4.0], latency=1.0), size=3)
    step, _ = player.simulate(player.start(), 0, lambda client, first: Load(1, 1, 1.0), frozenset())
    assert [trip.work for trip in step.arrived] == [1.0, 0.5, 0.25]
    assert ends(step.arrived) == [4.0, 4.0, 4.0] and [trip.compute for trip in step.arrived] == [1.0, 1.0, 1.0]
    step, _ = player.simulate(player.start(), 0, lambda client, first: Load(2, 1, 1.0), frozenset())
    assert not step.arrived and clients(sorted(step.late)) == [0, 1, 2], "no moment is left for any work"


def test_a_trip_takes_latency_transfers_and_passes_over_utterances() -> None:
    """A trip takes 0.25 s + 3 passes x 5 utterances x 0.1 s + 100 bytes at 1,000 bit/s + 30 bytes at 500 bit/s."""
    player = clock(RoundsClock(), devices([0.1], latency=0.25, down=1000.0, up=500.0))
    step, _ = player.simulate(player.start(), 0, lambda client, first: Load(100, 30, 3 * 5), frozenset())
    assert step.arrived[0].end == round(SECOND * (0.25 + 1.5 + 0.8 + 0.48))


def test_what_a_client_gets_the_first_time_is_told_apart() -> None:
    asked = []
    player = clock(RoundsClock(), devices([1.0, 1.0, 1.0]), size=3)
    player.simulate(player.start(), 0, lambda client, first: asked.append((client, first)) or Load(0, 0, 1.0), {1})
    assert sorted(asked) == [(0, True), (1, False), (2, True)]


def test_a_round_ends_when_the_last_trip_is_decided() -> None:
    """The window of client 3 ends after 1.5 s, so its trip is lost then; the round waits for client 2."""
    of = devices(FOUR, windows([(0, 50)], [(0, 50)], [(0, 50)], [(0, 1.5)]))
    (step,) = played(clock(RoundsClock(), of, size=4), 1)
    assert clients(step.arrived) == [0, 1, 2] and step.ended == 3 * SECOND
    assert clients(step.lost) == [3] and ends(step.lost) == [1.5]


def test_ties_go_to_the_client_that_stands_first() -> None:
    for step in played(clock(RoundsClock(over=1.5), devices([1.0] * 50), size=10), 5):
        assert clients(step.arrived) == sorted(clients(step.begun))[:10] and len(step.begun) == 15


@pytest.mark.parametrize("sampling", ["uniform", "weighted"])
def test_without_over_selection_cohorts_are_those_of_a_run_without_devices(sampling: str) -> None:
    def cost(client: str) -> float:
        return float(int(client[-3:]) % 7)

    ids, settings = names(200), CohortSettings(size=20, sampling=sampling)
    player = clock(RoundsClock(), spread(200, 1.0), 20, sampling=sampling, cost=lambda client: cost(ids[client]))
    for round, step in enumerate(played(player, 5)):
        assert [ids[trip.client] for trip in step.begun] == sample(ids, settings, cost, 0, round)


def test_a_cohort_is_smaller_where_fewer_are_available_and_a_quorum_is_waited_for() -> None:
    of = devices([1.0, 1.0, 1.0], windows([(0, 50)], [(10, 50)], [(20, 50)]))
    (step,) = played(clock(RoundsClock(), of, size=3), 1)
    assert clients(step.arrived) == [0] and step.ended == 1 * SECOND
    (step,) = played(clock(RoundsClock(quorum=0.5), of, size=3), 1)
    assert sorted(clients(step.arrived)) == [0, 1] and step.complete and step.ended == 11 * SECOND
    assert step.started == 0 and step.arrived[0].start == 10 * SECOND
    (step,) = played(clock(RoundsClock(quorum=0.5, deadline=5.0), of, size=3), 1)
    assert step.complete and step.ended == 11 * SECOND, "the deadline counts from the choice"


def test_time_jumps_to_the_next_window_but_not_over_seven_days() -> None:
    of = devices([1.0, 1.0], windows([(100, 110)], [(7 * 86400 + 104, 7 * 86400 + 110)]))
    player = clock(RoundsClock(), of, size=1)
    (step,) = played(player, 1)
    assert clients(step.arrived) == [0] and step.ended == 101 * SECOND
    with pytest.raises(ValueError, match=r"no client is available for seven days from day 0\.0 of virtual time: see"):
        played(clock(RoundsClock(), devices([20.0, 1.0], windows([(100, 103)], [(8 * 86400, 9 * 86400)]))), 2)
    with pytest.raises(ValueError, match="fewer than 2 clients at once are available for seven days"):
        played(clock(RoundsClock(quorum=1.0), of, size=2), 1)


def test_seven_days_count_from_the_last_trip_and_not_from_the_last_client_that_came() -> None:
    day = 86400
    of = devices([1.0] * 4, windows([(0, 9)], [(5 * day, 5 * day + 9)], *2 * [[(10 * day, 10 * day + 9)]]))
    with pytest.raises(ValueError, match="fewer than 2 clients at once are available for seven days from day 0.0"):
        played(clock(RoundsClock(quorum=1.0), of, size=2), 1)


def test_a_trip_of_centuries_is_refused() -> None:
    with pytest.raises(ValueError, match="a trip of client client-000 takes 1e"):
        played(clock(RoundsClock(), devices([1e300])), 1)
    with pytest.raises(ValueError, match="a trip of client client-000 takes inf seconds"):
        played(clock(RoundsClock(), devices([math.inf])), 1)
