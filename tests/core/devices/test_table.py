"""Tables of devices: classes, factors, energy, fairness."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.core.devices.availability import Anytime
from fedray.core.devices.settings import ClassDevices, DeviceClass, RoundsClock
from fedray.core.devices.table import Devices, jain, of_classes, rows_of
from fedray.core.devices.trips import LATE, SECOND, Load, Trip
from tests.core.devices.worlds import clock, devices

FAST = DeviceClass(seconds=0.1, down=8e6, up=1e6, share=3.0, watts=4.0, radio=1.0)
SLOW = DeviceClass(seconds=0.4, down=4e6, up=5e5, share=1.0)
SIZE = 20_000


def made(seed: int = 0, values: list[str] | None = None, **changes: object) -> Devices:
    settings = ClassDevices({"fast": FAST, "slow": SLOW}, **changes)  # type: ignore[arg-type]
    return of_classes(settings, seed, SIZE if values is None else len(values), Anytime(), values)


def test_shares_are_relative() -> None:
    of = made()
    fast = np.mean([of.class_of(client) == "fast" for client in range(SIZE)])
    assert abs(fast - 0.75) < 5 * np.sqrt(0.75 * 0.25 / SIZE)


def test_factors_are_log_normal_and_independent() -> None:
    of = made(spread=0.8)
    logs = np.log([of.slow, of.narrow])
    assert np.abs(logs.mean(1)).max() < 5 * 0.8 / np.sqrt(SIZE)
    assert np.abs(logs.std(1) - 0.8).max() < 5 * 0.8 / np.sqrt(2 * SIZE)
    assert abs(np.corrcoef(logs)[0, 1]) < 5 / np.sqrt(SIZE)
    assert (made(spread=0.8).slow == of.slow).all() and (made(1, spread=0.8).slow != of.slow).any()
    assert (made(spread=1.6).slow == of.slow**2).mean() > 0.1 and np.allclose(made(spread=1.6).slow, of.slow**2)


def test_the_phases_of_a_trip() -> None:
    of = made(spread=0.8)
    for client in range(20):
        device = FAST if of.class_of(client) == "fast" else SLOW
        latency, down, compute, up = of.phases(client, Load(1000, 500, 30.0))
        assert latency == 0.0 and compute == pytest.approx(30 * device.seconds * of.slow[client])
        assert down == pytest.approx(8000 / device.down * of.narrow[client])
        assert up == pytest.approx(4000 / device.up * of.narrow[client])


def test_classes_by_a_column() -> None:
    of = made(values=["slow", "fast", "slow"], by="dialect")
    assert [of.class_of(client) for client in range(3)] == ["slow", "fast", "slow"]
    with pytest.raises(ValueError, match=r"no class is named 'medium', which is the dialect of a client: add it to"):
        made(values=["slow", "medium"], by="dialect")
    with pytest.raises(ValueError, match="classes must name at least one class"):
        ClassDevices({})


def test_rows_of_a_table_are_drawn_once_each_and_again_where_that_is_asked_for() -> None:
    row = rows_of(0, 30, 40, False, "phones")
    assert len(set(row.tolist())) == 30 and (row != np.arange(30)).any()
    assert set(np.bincount(rows_of(0, 100, 40, True, "phones"), minlength=40).tolist()) == {2, 3}
    with pytest.raises(ValueError, match=r"there are 40 phones for 41 clients: set devices.reuse=true"):
        rows_of(0, 41, 40, False, "phones")


def trip(latency: float, down: float, compute: float, up: float) -> Trip:
    end = round(SECOND * (latency + down + compute + up))
    return Trip(end, 0, 0, 0, "arrives", 1.0, latency, down, compute, up)


@pytest.mark.parametrize(
    ("stopped", "compute", "transfer"),
    [(0.5, 0.0, 0.0), (1.5, 0.0, 0.5), (3.0, 0.0, 2.0), (5.0, 2.0, 2.0), (7.0, 4.0, 2.0), (9.5, 4.0, 4.5)],
)
def test_energy_of_a_trip_as_far_as_it_gets(stopped: float, compute: float, transfer: float) -> None:
    """A trip has 1 s of latency, 2 s down, 4 s of computing and 8 s up; computing takes 36 W, transfers take 18 W."""
    of, whole = devices([1.0], watts=36.0, radio=18.0), trip(1.0, 2.0, 4.0, 8.0)
    assert of.watt_hours(whole) == pytest.approx((36 * 4 + 18 * 10) / 3600)
    part = whole.stopped(round(stopped * SECOND), LATE)
    assert part.spent() == pytest.approx((compute, transfer)) and part.seconds() == stopped
    assert of.watt_hours(part) == pytest.approx((36 * compute + 18 * transfer) / 3600)


def test_a_trip_that_has_ended_is_not_stopped_later() -> None:
    assert trip(1.0, 2.0, 4.0, 8.0).stopped(99 * SECOND, LATE).seconds() == 15.0


def test_lost_follows_version_and_client_and_a_lost_trip_ends_on_the_way() -> None:
    of = devices([10.0] * 400, lost=0.25)
    everybody = clock(RoundsClock(), of, size=400)
    step, state = everybody.simulate(everybody.start(), 0, lambda client, first: Load(0, 0, 1.0), frozenset())
    assert abs(len(step.lost) - 100) < 5 * np.sqrt(400 * 0.25 * 0.75)
    moments = np.array([trip.end - trip.start for trip in step.lost]) / (10 * SECOND)
    assert abs(moments.mean() - 0.5) < 5 * np.sqrt(1 / 12 / len(moments)) and moments.min() >= 0 and moments.max() < 1
    some = clock(RoundsClock(), of, size=40)
    fewer, _ = some.simulate(some.start(), 0, lambda client, first: Load(0, 0, 1.0), frozenset())
    assert {trip.client for trip in fewer.lost} == {trip.client for trip in step.lost} & {t.client for t in fewer.begun}
    later, _ = everybody.simulate(state, 1, lambda client, first: Load(0, 0, 1.0), frozenset())
    assert {trip.client for trip in later.lost} != {trip.client for trip in step.lost}


def test_jains_index() -> None:
    assert jain([3, 3, 3]) == 1.0 and jain([5, 0, 0, 0]) == 0.25 and jain([0, 0]) == 1.0
    assert jain([1, 2, 3]) == pytest.approx(36 / (3 * 14))
