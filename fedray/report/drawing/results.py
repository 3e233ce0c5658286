"""Figures of one metric: bars per group, and points against swept keys."""

from __future__ import annotations

from itertools import cycle

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.transforms import ScaledTranslation

from fedray.core.ranges import is_number
from fedray.report import canvas
from fedray.report.canvas import COLOURS, GREY, INK, WIDTH
from fedray.report.comparison import Comparison
from fedray.report.drawing.common import draw_baseline, short
from fedray.report.figures import Bars, Scatter, Trend
from fedray.report.groups import REPEATS, Group, shown
from fedray.report.recorded import Run, known_metric
from fedray.report.words import number, rising, scaled, title, with_unit

CHARACTERS = 70  # of labels that fit below the axes of a figure
FORMATS = ("o-", "s--", "^:", "D-.")  # of lines beyond as many as there are colours
ASIDE = 4 / 72  # inches between the bars of two lines at one value


def bars(figure: Bars, comparison: Comparison) -> Canvas:
    """One bar for each group of runs, with its interval and each seed's score."""
    metric = known_metric(figure.metric, comparison.runs)
    found = [(group, values) for group in comparison.groups if (values := group.values(metric))]
    drawn, axes = canvas.new(figure.title or title(metric), 0.9 + 0.34 * len(found))
    label = comparison.start(metric)
    for row, (group, values) in enumerate(found):
        middle = float(np.mean(values))
        words = number(middle, metric)
        interval = group.interval(metric)
        low, high = (interval.low, interval.high) if interval is not None else (min(values), max(values))
        middle, low, high = (scaled(value, metric) for value in (middle, low, high))
        axes.barh(row, middle, 0.62, color=COLOURS[0], alpha=0.85)
        if (before := group.score(metric, "seed")) is not None:
            ends = [row - 0.5, row + 0.5]
            axes.plot([scaled(before, metric)] * 2, ends, color=GREY, linestyle="--", linewidth=1.2, label=label)
            label = ""
        if high > low:
            axes.errorbar(middle, row, xerr=[[middle - low], [high - middle]], color=INK, capsize=3, linewidth=1)
        axes.annotate(  # beside the axes, where no bar, whisker or line is
            words, (1, row), (5, 0), axes.get_yaxis_transform(), "offset points", va="center", fontsize=8
        )
    canvas.label_rows(drawn, axes, [group.label for group, _ in found])
    axes.set_xlabel(with_unit(metric))
    return canvas.with_legend(drawn, axes)


def trend(figure: Trend, comparison: Comparison) -> Canvas:
    """Scores along a numeric key. Groups where it is null are left out. ValueError: a value is not a number."""
    metric = known_metric(figure.metric, comparison.runs)
    lines: dict[str, list[tuple[float, list[float]]]] = {}
    for group in comparison.groups:
        value = group.runs[0].settings.get(figure.key)
        if value is None:
            continue
        if not is_number(value):
            raise ValueError(f"a trend needs numbers: {figure.key} is {shown(value)} in {group.label}")
        if scores := group.values(metric):
            point = value * (100 if figure.percent else 1), [scaled(score, metric) for score in scores]
            lines.setdefault(_line(group, figure, comparison), []).append(point)
    if not lines:
        raise ValueError(f"a trend needs numbers: no group has a number of {figure.key} and a score")
    drawn, axes = canvas.new(figure.title or f"{title(metric)} by {short(figure.key)}")
    for nth, ((label, points), colour) in enumerate(zip(lines.items(), cycle(COLOURS), strict=False)):
        aside = ScaledTranslation((nth - (len(lines) - 1) / 2) * ASIDE, 0, drawn.dpi_scale_trans)
        points.sort()
        places = [place for place, _ in points]
        middle = np.array([np.mean(values) for _, values in points])
        below = middle - [min(values) for _, values in points]
        above = [max(values) for _, values in points] - middle
        spread, name = [below, above], label or None
        at = axes.transData + aside  # such lines do not count for the limits of the axes
        axes.update_datalim([(place, value) for place, values in points for value in values])
        axes.errorbar(
            places,
            middle,
            yerr=spread,
            fmt=FORMATS[nth // len(COLOURS) % len(FORMATS)],
            markersize=4,
            capsize=3,
            color=colour,
            label=name,
            transform=at,
        )
    draw_baseline(axes, figure.baseline, metric, comparison)
    if figure.log:
        canvas.logarithmic(axes, "x")
    axes.autoscale_view()
    axes.set_xlabel(short(figure.key) + (" (%)" if figure.percent else ""))
    axes.set_ylabel(with_unit(metric))
    return canvas.with_legend(drawn, axes)


def _line(group: Group, figure: Trend, comparison: Comparison) -> str:
    """The label of the line that a group's point belongs to: its values of `by` and of the other swept keys."""
    others = [key for key in comparison.sweep.keys if key not in (figure.key, figure.by, *REPEATS)]
    keys = [*([figure.by] if figure.by is not None else []), *others]
    return ", ".join(f"{short(key)}={shown(group.runs[0].settings.get(key))}" for key in keys)


def scatter(figure: Scatter, comparison: Comparison) -> Canvas:
    """Scores of single runs against each swept key, the best run marked."""
    metric = known_metric(figure.metric, comparison.runs)
    columns = min(3, len(figure.keys))
    rows = -(-len(figure.keys) // columns)
    drawn = Canvas(figsize=(max(WIDTH, 3 * columns), 2.7 * rows), layout="constrained")
    canvas.head(drawn, figure.title or f"{title(metric)} by swept key; the best run in orange")
    runs = [(run, value) for run in comparison.runs if (value := run.value(metric)) is not None]
    best = (max if rising(metric) else min)(runs, key=lambda pair: pair[1])[0] if runs else None
    for position, key in enumerate(figure.keys):
        if not any(key in run.settings for run in comparison.runs):
            raise ValueError(f"no run's configuration has the key {key}; keys are dotted, such as algorithm.alpha")
        axes = drawn.add_subplot(rows, columns, position + 1)
        points = [(run, scaled(value, metric)) for run, value in runs if key in run.settings]
        numbers = _numbers([run for run, _ in points], key)
        words = [shown(run.settings[key]) for run, _ in points]
        places = np.array(words if numbers is None else numbers)
        axes.scatter(places, [value for _, value in points], s=16, color=COLOURS[0], alpha=0.8)
        for index, (run, value) in enumerate(points):
            if run is best:
                axes.scatter(places[index : index + 1], [value], s=42, color=COLOURS[1], zorder=3)
        if numbers is None and max(map(len, words)) * len(set(words)) > CHARACTERS // columns:
            axes.tick_params(axis="x", labelrotation=90)
        if numbers and _logarithmic(figure, numbers):
            canvas.logarithmic(axes, "x")
        axes.set_xlabel(short(key))
        axes.set_ylabel(with_unit(metric) if position % columns == 0 else "")
    return drawn


def _numbers(runs: list[Run], key: str) -> list[float] | None:
    """The runs' values of a key; None if one is not a number."""
    values = [run.settings[key] for run in runs]
    if not all(map(is_number, values)):
        return None
    return values


def _logarithmic(figure: Scatter, values: list[float]) -> bool:
    if figure.log is not None:
        return figure.log
    return min(values) > 0 and max(values) > 30 * min(values)
