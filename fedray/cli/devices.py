"""`fedray devices`: the devices of a configuration, when they are available, and how long rounds take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from rich.console import Console
from rich.table import Table

from fedray import experiment
from fedray.cli.tables import titled
from fedray.core.devices.table import jain
from fedray.core.devices.trips import SECOND
from fedray.core.texts import rich_text
from fedray.doctor.speed import three
from fedray.experiment.rehearsal import DAY, Rehearsal, rehearse
from fedray.report import canvas
from fedray.report.canvas import Drawing
from fedray.storage.claims import claim
from fedray.storage.local import LocalStorage, on_disk

WHAT = "pictures of devices"
QUANTILES = (0.1, 0.5, 0.9)
ENDS = ("arrived", "lost", "late", "aborted")  # of trips in a step
PHASES = ("latency", "download", "computing", "upload")
Floats = npt.NDArray[np.float64]


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the tables; with --out also draw them. ValueError: the configuration has no devices."""
    if options.out is not None:
        claim(LocalStorage(on_disk(options.out)), WHAT)
    config, source = experiment.load(options.config, options.overrides)
    found = rehearse(experiment.check(config, source), source)
    console.print(class_table(found))
    console.print(trip_words(found), highlight=False, soft_wrap=True)
    console.print(round_table(found))
    console.print(part_table(found))
    if options.out is not None:
        drawing, folder = draw(found), LocalStorage(Path(options.out))
        folder.write("devices.png", drawing.png)
        folder.write("devices.svg", drawing.svg.encode())
        print(f"pictures: {options.out}/devices.png, devices.svg")
    return 0


def members(found: Rehearsal) -> dict[str, npt.NDArray[np.int64]]:
    """Class -> the positions of its clients; classes without clients are left out."""
    devices = found.devices
    own = devices.class_of_row[devices.row]
    classes = {name: np.flatnonzero(own == place) for place, name in enumerate(devices.classes)}
    return {name: clients for name, clients in classes.items() if len(clients)}


def class_table(found: Rehearsal) -> Table:
    """Speeds, rates, times of trips and availability of each class."""
    columns = ("devices", "s / utterance*", "down, Mbit/s*", "up, Mbit/s*", "trip, s*", "available")
    table = titled("Devices", "class", *columns, left=["class"])
    table.caption = "* the 10th percentile, the median and the 90th percentile"
    rates, trips, available = found.rates(), found.trips, found.available
    for name, clients in members(found).items():
        values = (rates["seconds"], rates["down"] / 1e6, rates["up"] / 1e6, trips)
        hours = available[:, clients].mean(axis=1)
        share = f"{hours.mean():.0%}" if hours.min() == hours.max() else f"{hours.mean():.0%}, {_range(hours)} by hour"
        table.add_row(rich_text(name), f"{len(clients):,}", *(_spread(value[clients]) for value in values), share)
    return table


def trip_words(found: Rehearsal) -> str:
    """What the trip of the median client consists of."""
    trips, work = found.trips, found.work
    client = int(np.argsort(trips, kind="stable")[len(trips) // 2])
    parts = ", ".join(f"{name} {three(seconds)} s" for name, seconds in zip(PHASES, found.phases(client), strict=True))
    moved = f"{work.down:,} bytes down, {work.up:,} up"
    return (
        f"The median client has {work.utterances[client]:,.0f} utterances. A trip of it ({work.passes:g} passes, "
        f"{moved}) takes {three(trips[client])} s: {parts}."
    )


def round_table(found: Rehearsal) -> Table:
    """Time, fates of trips, device hours and energy after some of the rounds."""
    names = ("virtual hours", *ENDS, "staleness", "device hours", "wasted", "energy, Wh")
    table, rounds = titled("Rounds, without training", "rounds", *names, left=["rounds"]), len(found.steps)
    for after in sorted({1, min(10, rounds), -(-rounds // 2), rounds}):
        steps = found.steps[:after]
        behind = [step.behind(trip) for step in steps for trip in step.arrived]
        trips = [trip for step in steps for trip in step.decided()]
        spent = sum(sum(trip.spent()) for trip in trips)
        used = sum(sum(trip.spent()) for step in steps for trip in step.arrived if step.complete)
        table.add_row(
            f"{after:,}",
            three(steps[-1].ended / SECOND / 3600),
            *(f"{sum(len(getattr(step, end)) for step in steps):,}" for end in ENDS),
            f"{np.mean(behind):.2f}" if behind else "-",
            three(spent / 3600),
            f"{1 - used / spent:.0%}" if spent else "-",
            three(sum(map(found.devices.watt_hours, trips))),
        )
    return table


def part_table(found: Rehearsal) -> Table:
    """The share of each class among the clients and among the arrivals."""
    table = titled("Who takes part", "class", "of the clients", "of the arrivals", left=["class"])
    arrived = np.zeros(len(found.devices))
    for step in found.steps:
        for trip in step.arrived:
            arrived[trip.client] += 1
    for name, clients in members(found).items():
        share = arrived[clients].sum() / max(1.0, arrived.sum())
        table.add_row(rich_text(name), f"{len(clients) / len(arrived):.0%}", f"{share:.0%}")
    table.caption = f"Jain's index of the clients' arrivals: {jain(arrived):.2f}"
    return table


def draw(found: Rehearsal) -> Drawing:
    """Draw how long trips take and how many are available over a day, for the largest classes."""
    with canvas.style():
        drawn = Canvas(figsize=(2 * canvas.WIDTH, canvas.HEIGHT), layout="constrained")
        left, right = drawn.subplots(1, 2)
        trips, available = found.trips, found.available
        classes = members(found)
        largest = sorted(classes, key=lambda name: -len(classes[name]))[: len(canvas.COLOURS)]
        shown = [(name, clients) for name, clients in classes.items() if name in largest]
        for (name, clients), colour in zip(shown, canvas.COLOURS, strict=False):
            _cumulative(left, trips[clients], name, colour)
            share = 100 * available[:, clients].mean(axis=1)
            right.step(range(DAY + 1), [*share, share[-1]], where="post", label=name, color=colour)
        left.set(
            title="Time of a trip", xlabel="seconds", ylabel="% of the class, at most", xscale="log", ylim=(0, 102)
        )
        right.set(title="Available over a day", xlabel="hour", ylabel="% of the class", ylim=(0, 102), xlim=(0, DAY))
        left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        left.xaxis.set_major_formatter(StrMethodFormatter("{x:,.7g}"))
        left.xaxis.set_minor_formatter(NullFormatter())
        right.set_xticks(range(0, DAY + 1, 4))
        left.legend()
        return Drawing.of(drawn)


def _cumulative(axes: Axes, values: Floats, name: str, colour: str) -> None:
    heights = 100 * np.arange(len(values) + 1) / len(values)
    ordered = np.sort(values)
    axes.step([ordered[0], *ordered], heights, where="post", label=name, color=colour)


def _spread(values: Floats) -> str:
    return " / ".join(map(three, np.quantile(values, QUANTILES)))


def _range(shares: Sequence[float] | Floats) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"
