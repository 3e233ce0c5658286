"""Draws any figure that a report describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure as Canvas

from fedray.report import canvas, figures
from fedray.report.canvas import Drawing
from fedray.report.comparison import Comparison
from fedray.report.drawing import audits, clients, devices, inversions, results, retrievals, rounds
from fedray.report.figures import Figure

DRAWN: dict[type[Figure], Callable[[Any, Comparison], Canvas]] = {
    figures.Curves: rounds.curves,
    figures.Trend: results.trend,
    figures.Bars: results.bars,
    figures.Scatter: results.scatter,
    figures.Speakers: clients.speakers,
    figures.Personal: clients.personal,
    figures.Phases: rounds.phases,
    figures.Participation: clients.participation,
    figures.Labels: clients.labels,
    figures.Trips: devices.trips,
    figures.Staleness: devices.staleness,
    figures.Fairness: devices.fairness,
    figures.Retrievals: retrievals.retrievals,
    figures.Audits: audits.audits,
    figures.Inversions: inversions.inversions,
}


def draw(figure: Figure, comparison: Comparison) -> Drawing:
    """Draw a figure. Raises ValueError if no run has the metric or key, or there is no data to draw."""
    with canvas.style():
        return Drawing.of(DRAWN[type(figure)](figure, comparison))
