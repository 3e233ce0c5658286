"""Figures of runs with devices: how trips end, how stale updates are, and whose updates count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from fedray.report import canvas, devices
from fedray.report.canvas import COLOURS, GREY
from fedray.report.comparison import Comparison
from fedray.report.devices import ENDS, WORDS, Ends
from fedray.report.drawing.common import Series, having, side_by_side
from fedray.report.figures import Fairness, Staleness, Trips
from fedray.report.groups import Group
from fedray.report.words import duration

ROW = 0.34  # inches
MOST = 12  # the most classes of devices in a figure; the largest are shown
SHADES = dict(zip(ENDS, (COLOURS[2], GREY, COLOURS[1], COLOURS[3], COLOURS[4]), strict=True))


def trips(figure: Trips, comparison: Comparison) -> Canvas:
    """A bar for each class of devices of each group, divided by how trips end."""
    found = {group: ends for group, _, ends in having(comparison, lambda group: devices.ends(group) or None)}
    sizes: Counter[str] = Counter()
    for ends in found.values():
        sizes += Counter({name: each.trips.total() for name, each in ends.items()})
    classes = largest(sizes)
    bars: list[tuple[str, Ends]] = []
    for group, ends in found.items():
        words = f"{group.label}, " if len(found) > 1 else ""
        bars += [(f"{words}{name}", ends[name]) for name in classes if name in ends]
    if not bars:
        raise ValueError("no run has trips: they need devices")
    heading = figure.title or f"How trips end, by class of devices{_rest(sizes)}"
    drawn, axes = canvas.new(heading, 0.9 + ROW * len(bars))
    before = np.zeros(len(bars))
    for end in ENDS:
        shares = np.array([each.share(end) for _, each in bars])
        if shares.any():
            axes.barh(range(len(bars)), shares, 0.62, left=before, color=SHADES[end], label=WORDS[end])
            before += shares
    for row, (_, each) in enumerate(bars):
        words = f"{duration([each.seconds_a_trip])} a trip"
        axes.annotate(words, (100, row), (5, 0), textcoords="offset points", va="center", fontsize=8)
    canvas.label_rows(drawn, axes, [label for label, _ in bars])
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the trips (%)")
    return canvas.with_legend(drawn, axes)


def staleness(figure: Staleness, comparison: Comparison) -> Canvas:
    """The share of the arrivals at each staleness; the legend has the means."""
    drawn, axes = canvas.new(figure.title or "Rounds behind, at the arrival of an update")

    def arrivals(group: Group) -> np.ndarray | None:
        behind = devices.staleness(group)
        return behind if len(behind) else None

    found = having(comparison, arrivals)
    if not found:
        raise ValueError("no run has updates that arrived: they need devices")
    most = max(int(behind.max()) for *_, behind in found)
    edges = canvas.bins(0, most)
    for group, colour, behind in found:
        shares = 100 * np.histogram(behind, edges)[0] / len(behind)
        label = f"{group.label}, mean {behind.mean():.2g}" if len(found) > 1 else f"mean {behind.mean():.2g}"
        axes.stairs(shares, edges - 0.5, color=colour, fill=len(found) == 1, label=label, linewidth=1.6)
    axes.set_xlabel("rounds behind")
    axes.set_ylabel("arrivals (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return canvas.with_legend(drawn, axes)


def fairness(figure: Fairness, comparison: Comparison) -> Canvas:
    """For each class of devices, a bar per group and a line at the share of the devices."""
    known = having(comparison, devices.fairness)
    if not known:
        raise ValueError("no finished run has devices")
    sizes = {name: size for *_, fair in known for name, size in fair.devices.items()}
    series = []
    for group, colour, fair in known:
        words = (f"{group.label}, " if len(known) > 1 else "") + f"Jain's index {fair.jain:.2f}"
        series.append(Series(words, colour, fair.updates, fair.devices))
    heading = figure.title or f"Whose updates count, by class of devices{_rest(sizes)}"
    return side_by_side(heading, largest(sizes), series, "share of the devices", "share of the updates that count (%)")


def largest(sizes: Mapping[str, float]) -> list[str]:
    """The `MOST` largest classes, in their order."""
    chosen = sorted(sizes, key=lambda name: -sizes[name])[:MOST]
    return [name for name in sizes if name in chosen]


def _rest(sizes: Mapping[str, float]) -> str:
    return f": the {MOST} largest of {len(sizes)}" if len(sizes) > MOST else ""
