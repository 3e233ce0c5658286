"""Draws any figure that a report describes."""

from __future__ import annotations

from matplotlib.figure import Figure as Canvas

from fedray.report import canvas
from fedray.report.canvas import Drawing
from fedray.report.comparison import Comparison
from fedray.report.drawing.audits import audits
from fedray.report.drawing.clients import labels, participation, personal, speakers
from fedray.report.drawing.devices import fairness, staleness, trips
from fedray.report.drawing.results import bars, scatter, trend
from fedray.report.drawing.retrievals import retrievals
from fedray.report.drawing.rounds import curves, phases
from fedray.report.figures import (
    Audits,
    Bars,
    Curves,
    Fairness,
    Figure,
    Labels,
    Participation,
    Personal,
    Phases,
    Retrievals,
    Scatter,
    Speakers,
    Staleness,
    Trend,
    Trips,
)


def draw(figure: Figure, comparison: Comparison) -> Drawing:
    """Draw a figure. Raises ValueError if no run has the metric or key, or there is no data to draw."""
    with canvas.style():
        return Drawing.of(_canvas(figure, comparison))


def _canvas(figure: Figure, comparison: Comparison) -> Canvas:
    match figure:
        case Curves():
            return curves(figure, comparison)
        case Trend():
            return trend(figure, comparison)
        case Bars():
            return bars(figure, comparison)
        case Scatter():
            return scatter(figure, comparison)
        case Speakers():
            return speakers(figure, comparison)
        case Personal():
            return personal(figure, comparison)
        case Phases():
            return phases(figure, comparison)
        case Participation():
            return participation(figure, comparison)
        case Labels():
            return labels(figure, comparison)
        case Trips():
            return trips(figure, comparison)
        case Staleness():
            return staleness(figure, comparison)
        case Fairness():
            return fairness(figure, comparison)
        case Retrievals():
            return retrievals(figure, comparison)
        case Audits():
            return audits(figure, comparison)
    raise AssertionError(f"no function draws {type(figure).__name__}")
