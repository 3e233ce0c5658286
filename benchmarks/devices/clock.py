"""The clock of devices without any training: a million clients, and what waiting for fewer of them is worth.

python -m benchmarks.devices.clock        # about a minute
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from statistics import fmean

import numpy as np

from benchmarks.study import table, write
from fedray.core.devices.availability import DAY, Anytime, Availability, Nightly
from fedray.core.devices.clock import Clock
from fedray.core.devices.settings import BufferedClock, ClassDevices, DeviceClass, RoundsClock
from fedray.core.devices.state import Step
from fedray.core.devices.table import Devices, of_classes
from fedray.core.devices.trips import SECOND, Load

POPULATION = 1_000_000
REPEATS = 5  # of making the devices
PHONE = DeviceClass(seconds=0.2, down=2e7, up=5e6, latency=0.1)
LOAD = Load(4_000_000, 4_000_000, 3 * 50)  # bytes down, bytes up, passes x utterances
CLIENTS, DRAWS, ARRIVALS = 60, 20, 2400  # of the second table
Settings = RoundsClock | BufferedClock


def devices(population: int, sigma: float, availability: Availability, seed: int = 0, **phone: float) -> Devices:
    numbers = {f.name: getattr(PHONE, f.name) for f in fields(PHONE)} | phone
    return of_classes(ClassDevices({"phone": DeviceClass(**numbers)}, sigma), seed, population, availability)


def memory(of: Devices) -> int:
    """Bytes of the vectors of devices and of their availability."""
    of.availability.share(0)  # makes those that are made at their first use
    return sum(vector.nbytes for vector in vectors(of))


def vectors(value: object) -> Iterator[np.ndarray]:
    """The arrays in an object."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping) or hasattr(value, "__dict__"):
        for inner in value.values() if isinstance(value, Mapping) else vars(value).values():
            yield from vectors(inner)


def steps(clock: Clock, load: Load = LOAD) -> Iterator[Step]:
    """Steps without an end. Clients report one example and a loss that falls."""
    state, number = clock.start(), 0
    while True:
        step, state = clock.simulate(state, number, lambda client, first: load, frozenset())
        reports = {trip.client: {"examples": 1.0, "loss": 1 / (1 + number)} for trip in step.arrived}
        state = clock.heard(state, step, reports)
        yield step
        number += 1


def tables() -> list[dict[str, str]]:
    """Seconds of processor and bytes of the devices of a million clients."""
    rows = []
    for name in ("always", "nightly"):
        spent = []
        for seed in range(REPEATS):
            since = time.process_time()
            of = devices(POPULATION, 1.0, Nightly().windows(seed, POPULATION) if name == "nightly" else Anytime(), seed)
            size = memory(of)
            spent.append(time.process_time() - since)
        rows.append({"available": name, "s": f"{np.median(spent):.2f}", "MB": f"{size / 1e6:.0f}"})
    return rows


def arrivals(name: str, settings: Settings, sampling: str, of: Devices, ids: list[str], days: float) -> dict[str, str]:
    """Microseconds of processor an arrival, for at least 5,000 arrivals and so many virtual days."""
    clock = Clock(settings, of, ids, 0, 100, sampling, lambda client: 1.0 + client % 10)
    of.availability.share(0)
    since, count, tried = time.process_time(), 0, 0
    for step in steps(clock):
        count, tried = count + len(step.arrived), tried + len(step.begun)
        if count >= 5000 and step.ended >= days * DAY:
            break
    microseconds = (time.process_time() - since) / count * 1e6
    return {
        "clock": name,
        "sampling": sampling,
        "available": "always" if isinstance(of.availability, Anytime) else "nightly",
        "arrivals": f"{count:,}",
        "trips": f"{tried:,}",
        "virtual days": f"{step.ended / DAY:.2f}",
        "us an arrival": f"{microseconds:.0f}",
    }


def million() -> Iterator[dict[str, str]]:
    ids = [f"client-{number}" for number in range(POPULATION)]
    for availability, days in ((Anytime(), 0.0), (Nightly().windows(0, POPULATION), 0.0), (None, 2.0)):
        whole_days = availability is None
        available = Nightly().windows(0, POPULATION) if availability is None else availability
        of = devices(POPULATION, 1.0, available, seconds=6.0 if whole_days else PHONE.seconds, lost=0.05)
        for name, settings in {
            "rounds, 130 for 100": RoundsClock(over=1.3),
            "buffered, 10 of 100": BufferedClock(100, 10),
            "buffered, 100 of 1,000": BufferedClock(1000, 100),
        }.items():
            for sampling in ("uniform", "weighted", "oort") if not whole_days else ("uniform",):
                yield arrivals(name, settings, sampling, of, ids, days)


def pace(settings: Settings, sigma: float, seed: int, count: int = ARRIVALS) -> tuple[float, float]:
    """Virtual seconds an arrival, and how many steps the mean arrival is behind. Devices only compute, a minute."""
    of = devices(CLIENTS, sigma, Anytime(), seed, seconds=60.0, latency=0.0)
    clock = Clock(settings, of, [str(number) for number in range(CLIENTS)], seed, 6)
    behind: list[int] = []
    for step in steps(clock, Load(0, 0, 1.0)):
        behind += map(step.behind, step.arrived)
        if len(behind) >= count:
            break
    return step.ended / SECOND / len(behind), fmean(behind)


def speeds() -> Iterator[dict[str, str]]:
    """How much sooner as many updates have arrived, against rounds of 6 clients."""
    for sigma in (0.6, 1.0, 1.5):
        synchronous = [pace(RoundsClock(), sigma, seed)[0] for seed in range(DRAWS)]
        for name, settings in {
            "rounds, 8 for 6": RoundsClock(over=8 / 6),
            "buffered, 3 of 8": BufferedClock(8, 3),
            "buffered, 3 of 8, refilled by steps": BufferedClock(8, 3, refill="step"),
        }.items():
            found = [pace(settings, sigma, seed) for seed in range(DRAWS)]
            times = [before / after for before, (after, _) in zip(synchronous, found, strict=True)]
            yield {
                "sigma": f"{sigma:g}",
                "clock": name,
                "times as fast": f"{fmean(times):.1f}",
                "least": f"{min(times):.1f}",
                "most": f"{max(times):.1f}",
                "steps behind": f"{fmean(behind for _, behind in found):.2f}",
            }


def shown(rows: Iterator[dict[str, str]]) -> list[dict[str, str]]:
    found = []
    for row in rows:
        print(row, flush=True)
        found.append(row)
    return found


def main() -> None:
    found = {"tables": tables(), "arrivals": shown(million()), "speeds": shown(speeds())}
    page = f"""# The clock of devices

No client is trained here. The first tables have the time that the clock itself takes, in processor time of one core,
and the last one how much sooner updates arrive than in synchronous rounds.

Devices of {POPULATION:,} clients, one class with log-normal factors of sigma 1, the median of {REPEATS}:

{table(found["tables"])}

Trips of these clients: {LOAD.down / 1e6:g} MB each way and {LOAD.utterances:g} x 0.2 s, 5 % of them lost. Rounds take
{1.3 * 100:g} clients for cohorts of 100. Rows of two virtual days have trips of {LOAD.utterances:g} x 6 s, so that they
meet every hour of the day, also those at which few devices are available; all others begin at midnight.

{table(found["arrivals"])}

{CLIENTS} clients whose devices compute for a minute in the median, log-normal with sigma, always available. *Times as
fast*: the time in which rounds of 6 collect {ARRIVALS:,} updates, divided by the time that this clock takes for them;
mean, least and most over {DRAWS} draws of the devices.

{table(found["speeds"])}
"""
    write("clock", page, found, "python -m benchmarks.devices.clock", list(range(DRAWS)))


if __name__ == "__main__":
    main()
