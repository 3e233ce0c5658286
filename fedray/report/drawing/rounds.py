"""Figures over the rounds: metrics as curves, and the time of a round by phase."""

from __future__ import annotations

from itertools import cycle

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from fedray.report import canvas, effort
from fedray.report.canvas import COLOURS, GREY
from fedray.report.comparison import Comparison
from fedray.report.drawing.common import coloured, draw_baseline, legend_names
from fedray.report.figures import AXES, COUNTED, Curves, Phases
from fedray.report.groups import Group
from fedray.report.recorded import known_metric
from fedray.report.words import scaled, title, unit, with_unit

STYLES = ("-", "--", ":", "-.")
PHASES = {
    "time/train_s": "training",
    "time/update_s": "update",
    "time/evaluate_s": "evaluation",
    "time/checkpoint_s": "checkpoint",
}


def curves(figure: Curves, comparison: Comparison) -> Canvas:
    """Metrics over the rounds: mean and spread over seeds."""
    metrics = [known_metric(metric, comparison.runs) for metric in figure.metrics]
    over = f" over {AXES[figure.over].partition(' (')[0]}" if figure.over != "round" else ""
    drawn, axes = canvas.new(figure.title or ", ".join(map(title, metrics)) + over)
    colours = coloured(comparison)
    names = legend_names(colours)
    for group, colour in colours.items():
        by_style = len(colours) > 1 or len(metrics) <= len(STYLES)
        looks = [(style, colour) for style in STYLES] if by_style else [("-", each) for each in COLOURS]
        for metric, (style, shade) in zip(metrics, cycle(looks), strict=False):
            rounds, values = over_rounds(group, metric, figure)
            places = rounds if figure.over == "round" else over_effort(group, figure.over, rounds)
            if not len(rounds) or np.isnan(places).all():
                continue
            middle = np.nanmean(values, axis=0)
            words = [names[group]] * (len(colours) > 1) + [title(metric)] * (len(metrics) > 1)
            label, marker = ", ".join(words) if names[group] else "", "." if len(rounds) < 2 else ""
            end = shortest(values)  # later means are of fewer runs
            axes.plot(places[:end], middle[:end], marker=marker, linestyle=style, color=shade, label=label)
            if 0 < end < len(places):
                axes.plot(places[end - 1 :], middle[end - 1 :], linestyle=":", color=shade, linewidth=1)
            if len(values) > 1:
                low, high = _band(values, figure.band)
                axes.fill_between(places[:end], low[:end], high[:end], color=shade, alpha=0.15, linewidth=0)
    draw_baseline(axes, figure.baseline, metrics[0], comparison)
    if figure.log:
        canvas.logarithmic(axes, "y")
    axes.set_xlabel(AXES[figure.over])
    axes.xaxis.set_major_locator(MaxNLocator(integer=figure.over in COUNTED, steps=[1, 2, 5, 10]))
    units = {unit(metric) for metric in metrics}
    axes.set_ylabel(with_unit(metrics[0]) if len(metrics) == 1 else units.pop() if len(units) == 1 else "")
    return canvas.with_legend(drawn, axes)


def shortest(values: np.ndarray) -> int:
    """How many of the rounds of `values` [runs, rounds] there are until the first run has no more."""
    last = [np.flatnonzero(~np.isnan(run))[-1] for run in values if not np.isnan(run).all()]
    return int(min(last, default=-1)) + 1


def over_rounds(group: Group, metric: str, figure: Curves) -> tuple[np.ndarray, np.ndarray]:
    """Rounds [n] in which any run has a value, and smoothed values [runs, n]; NaN where a run has none."""
    found: list[dict[int, float]] = []
    for run in group.runs:
        start = [(0, run.seed_model[metric])] if metric in run.seed_model else []
        points = [*start, *((int(row["round"]), row[metric]) for row in run.rows if row.get(metric) is not None)]
        if points:
            numbers, values = zip(*points, strict=True)
            smooth = smoothed(np.array(values, np.float64), figure.smooth).tolist()
            found.append(dict(zip(numbers, smooth, strict=True)))
    rounds = np.array(sorted({number for values in found for number in values}), np.int64)
    if figure.last is not None and len(rounds):
        rounds = rounds[rounds > rounds[-1] - figure.last]
    table = [[scaled(values.get(number, np.nan), metric) for number in rounds.tolist()] for values in found]
    return rounds, np.array(table)


def over_effort(group: Group, axis: str, rounds: np.ndarray) -> np.ndarray:
    """What a run had spent after each of these rounds, mean over the runs that reached it, float64 [n]."""
    table = np.full((len(group.runs), len(rounds)), np.nan)
    for place, run in enumerate(group.runs):
        after = {0: 0.0} | dict(zip(run.column("round").tolist(), effort.spent(run, axis).tolist(), strict=True))
        table[place] = [after.get(number, np.nan) for number in rounds.tolist()]
    known = ~np.isnan(table)
    return np.where(known.any(0), np.nansum(table, 0) / np.maximum(known.sum(0), 1), np.nan)


def smoothed(values: np.ndarray, weight: float) -> np.ndarray:
    """TensorBoard's moving average: s_t = w s_(t-1) + (1 - w) x_t, divided by 1 - w^t to correct the start at 0."""
    past, found = 0.0, np.empty_like(values)
    for step, value in enumerate(values, 1):
        past = weight * past + (1 - weight) * value
        found[step - 1] = past / (1 - weight**step)
    return found


def phases(figure: Phases, comparison: Comparison) -> Canvas:
    """The time of a round by phase, a bar for each group of runs."""
    found = [group for group in comparison.groups if any(run.rows for run in group.runs)]
    drawn, axes = canvas.new(figure.title or "Time of a round", 1.2 + 0.34 * len(found))
    before = np.zeros(len(found))
    parts = {name: np.array([_seconds(group, metric) for group in found]) for metric, name in PHASES.items()}
    whole = np.array([_seconds(group, "time/round_s") + _seconds(group, "time/checkpoint_s") for group in found])
    parts["other"] = np.maximum(whole - sum(parts.values()), 0)
    for (name, seconds), colour in zip(parts.items(), (*COLOURS[: len(PHASES)], GREY), strict=True):
        axes.barh(range(len(found)), seconds, 0.62, left=before, color=colour, label=name)
        before += seconds
    canvas.label_rows(drawn, axes, [group.label for group in found])
    axes.set_xlabel("seconds, mean over rounds")
    return canvas.with_legend(drawn, axes)


def _band(values: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
    if band == "range":
        return np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    middle, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    return middle - spread, middle + spread


def _seconds(group: Group, metric: str) -> float:
    means = [np.nanmean(column) for run in group.runs if not np.isnan(column := run.column(metric)).all()]
    return float(np.mean(means)) if means else 0.0
