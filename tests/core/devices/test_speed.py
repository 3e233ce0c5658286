"""The speed-up of over-selection and of a buffer, and the cost of simulating a million clients."""

from __future__ import annotations

import time

import numpy as np
import pytest

from benchmarks.devices.clock import memory, pace
from fedray.core.devices.availability import Nightly
from fedray.core.devices.settings import BufferedClock, RoundsClock
from tests.core.devices.worlds import clock, played, spread


@pytest.mark.parametrize(("sigma", "over", "buffered"), [(0.6, 1.6, 2.6), (1.0, 2.4, 3.9), (1.5, 4.0, 7.2)])
def test_speed_of_over_selection_and_of_a_buffer(sigma: float, over: float, buffered: float) -> None:
    """For 60 clients with log-normal speeds, the mean speed-up over five draws of devices is near the theory."""
    times = {"over": 0.0, "buffered": 0.0}
    for seed in range(5):
        synchronous = pace(RoundsClock(), sigma, seed, 900)[0]
        times["over"] += synchronous / pace(RoundsClock(over=8 / 6), sigma, seed, 900)[0] / 5
        times["buffered"] += synchronous / pace(BufferedClock(8, 3), sigma, seed, 900)[0] / 5
    assert times == pytest.approx({"over": over, "buffered": buffered}, rel=0.25)


def test_a_million_clients() -> None:
    size, since = 1_000_000, time.process_time()
    of = spread(size, 1.0, availability=Nightly().windows(0, size))
    assert memory(of) < 100e6
    for settings in (RoundsClock(over=1.3), BufferedClock(100, 10)):
        steps = played(clock(settings, of, 100), 20)
        assert all(len(step.arrived) == (100 if isinstance(settings, RoundsClock) else 10) for step in steps)
    assert time.process_time() - since < 10, "loose, for machines under load"
    assert np.ptp([trip.client for trip in steps[-1].arrived]) > size / 4
