"""Windows of availability against a search of every half second, nights, and tables of windows that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.core.devices.availability import DAY, FOREVER, HOUR, Anytime, Nightly, Windows, windows_of
from fedray.core.devices.candidates import Candidates
from fedray.core.devices.trips import SECOND
from tests.core.devices.worlds import windows

EACH = [[(3, 5), (8, 12)], [(0, 4)], [(18, 21)], [(7, 8), (9, 10), (15, 22)]]  # two wrap around if the period is 20 s


def inside(client: int, now: float, period: float | None) -> float | None:
    """The end [s] of the client's window around the moment `now`, found by trying all windows and periods."""
    turns = range(-1, 5) if period is not None else (0,)
    for turn in turns:
        for start, end in EACH[client]:
            start, end = start + turn * (period or 0), end + turn * (period or 0)
            if start <= now < end:
                return end
    return None


@pytest.mark.parametrize("period", [None, 20.0])
def test_windows_against_a_search(period: float | None) -> None:
    of = windows(*EACH, period=period)
    moments = [half / 2 for half in range(120)]
    for now in moments:
        at = round(now * SECOND)
        ends = [inside(client, now, period) for client in range(4)]
        assert [of.until(client, at) for client in range(4)] == [None if end is None else end * SECOND for end in ends]
        here = [client for client in range(4) if any(inside(client, now + step / 2, period) for step in range(6))]
        assert of.within(at, at + 3 * SECOND).tolist() == here
        assert of.share(at) == sum(end is not None for end in ends) / 4
        for without in (set(), {1, 3}):
            begun = [
                start + turn * (period or 0)
                for client, own in enumerate(EACH)
                for start, _ in own
                for turn in (range(8) if period is not None else (0,))
                if client not in without
            ]
            later = [start for start in begun if start > now]
            found = of.following(at, without)
            assert (found and found[0]) == (min(later) * SECOND if later else None)
            if found is not None:
                there = [client for client in range(4) if of.until(client, found[0]) != of.until(client, found[0] - 1)]
                assert found[1] == [client for client in there if of.until(client, found[0]) and client not in without]


def test_several_clients_with_the_windows_of_one_device() -> None:
    one = windows([(3, 5)], [(8, 12)])
    of = Windows(np.array([1, 0, 1], np.int32), one.first, one.start, one.length, one.period)
    assert [of.until(client, 4 * SECOND) for client in range(3)] == [None, 5 * SECOND, None]
    assert of.within(9 * SECOND, 10 * SECOND).tolist() == [0, 2]
    assert of.following(0, {1}) == (8 * SECOND, [0, 2]) and of.following(0, {0, 1}) == (8 * SECOND, [2])
    assert of.following(0, {0, 2}) == (3 * SECOND, [1])
    assert of.following(0, {0, 1, 2}) is None


def test_nights() -> None:
    """Starts and lengths of 20,000 nights have the mean and deviation of the settings within 5 standard errors."""
    size = 20_000
    of = Nightly(start=12.0, spread=1.5, hours=6.0, hours_spread=0.5).windows(0, size)
    for values, mean, deviation in ((of.start, 12.0, 1.5), (of.length, 6.0, 0.5)):
        assert abs(values.mean() / HOUR - mean) < 5 * deviation / np.sqrt(size)
        assert abs(values.std() / HOUR - deviation) < 5 * deviation / np.sqrt(2 * size)
    again = Nightly(start=12.0, spread=1.5, hours=6.0, hours_spread=0.5).windows(0, size)
    assert (of.start == again.start).all() and (of.length == again.length).all()
    assert (of.start != Nightly(start=12.0).windows(1, size).start).any()


def test_a_night_goes_over_midnight_and_comes_again() -> None:
    of = Nightly(start=23.0, spread=0.0, hours=7.0, hours_spread=0.0).windows(0, 1)
    for day in range(3):
        assert of.until(0, day * DAY) == day * DAY + 6 * HOUR
        assert of.until(0, day * DAY + 6 * HOUR) is of.until(0, day * DAY + 23 * HOUR - 1) is None
        assert of.until(0, day * DAY + 23 * HOUR) == (day + 1) * DAY + 6 * HOUR
        assert of.following(day * DAY, ()) == (day * DAY + 23 * HOUR, [0])
    whole = Nightly(spread=0.0, hours=24.0, hours_spread=0.0).windows(0, 1)
    assert whole.until(0, 5 * HOUR) == FOREVER


def test_candidates_are_idle_and_available() -> None:
    of = Nightly().windows(0, 500)
    candidates = Candidates(of, 500)
    for now in (0, 7 * HOUR + 5, 4 * DAY + 15 * HOUR):
        candidates.now, candidates.taken = now, {1, 2, 3}
        assert candidates.all().tolist() == [
            client for client in range(500) if of.until(client, now) is not None and client not in (1, 2, 3)
        ]
    everybody = Candidates(Anytime(), 5)
    everybody.taken = {2}
    assert everybody.all().tolist() == [0, 1, 3, 4] and everybody.next() is None


@pytest.mark.parametrize(
    ("rows", "period", "words"),
    [
        ([("a", 5.0, 5.0)], None, r"the window of device 'a' from 5 s to 5 s ends before it has begun"),
        ([("a", -1.0, 5.0)], None, "must begin at 0 s or later"),
        ([("a", 20.0, 25.0)], 20.0, r"before the period ends \(20.0 s\)"),
        ([("b", 0.0, 9.0), ("a", 0.0, 5.0), ("a", 4.0, 6.0)], None, "device 'a' from 0 s to 5 s overlaps or touches"),
        ([("a", 0.0, 5.0), ("a", 5.0, 6.0)], None, "overlaps or touches the next one: join them"),
        ([("a", 1.0, 5.0), ("a", 18.0, 21.0)], 20.0, "from 18 s to 21 s overlaps or touches"),
        ([("a", 1.0, 22.0)], 20.0, "from 1 s to 22 s overlaps or touches"),
        ([("a", 1.0, 1e12)], None, r"windows must begin and end within 1e\+11 seconds"),
    ],
)
def test_wrong_windows(rows: list[tuple[str, float, float]], period: float | None, words: str) -> None:
    names, starts, ends = zip(*rows, strict=True)
    with pytest.raises(ValueError, match=words):
        windows_of(list(names), np.array(starts), np.array(ends), period)


def test_windows_are_sorted_by_device_and_start() -> None:
    names, of = windows_of(["b", "a", "b"], np.array([7.0, 1.0, 2.0]), np.array([8.0, 4.0, 3.0]), None)
    assert names == ["a", "b"] and of.first.tolist() == [0, 1, 3]
    assert (of.start // SECOND).tolist() == [1, 2, 7] and (of.length // SECOND).tolist() == [3, 1, 1]
