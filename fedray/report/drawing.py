"""Draws the figures of a report with matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from fedray.report import canvas
from fedray.report import groups as grouping
from fedray.report.canvas import COLOURS, GREY, INK, WIDTH, Drawing
from fedray.report.figures import Bars, Curves, Figure, Own, Participation, Phases, Retrievals, Scatter, Speakers, Trend
from fedray.report.groups import Group
from fedray.report.own import own
from fedray.report.recorded import known_metric, rising
from fedray.report.retrievals import retrievals
from fedray.report.words import number, scaled, start, title, unit, with_unit

if TYPE_CHECKING:
    from fedray.report.report import Report

STYLES = ("-", "--", ":", "-.")
PHASES = {"time/train_s": "training", "time/update_s": "update", "time/evaluate_s": "evaluation", "time/checkpoint_s": "checkpoint"}


def draw(figure: Figure, report: Report) -> Drawing:
    """ValueError: there is no such metric or key, or nothing to draw of it."""
    with canvas.style():
        return Drawing.of(DRAWN[type(figure)](figure, report))


def curves(figure: Curves, report: Report) -> Canvas:
    metrics = [known_metric(metric, report.runs) for metric in figure.metrics]
    drawn, axes = canvas.new(figure.title or ", ".join(map(title, metrics)))
    lined = canvas.coloured(report)
    names = _names(lined)
    for group, colour in lined.items():
        for metric, style in zip(metrics, cycle(STYLES), strict=False):
            rounds, values = over_rounds(group, metric, figure)
            if not len(rounds):
                continue
            middle = np.nanmean(values, axis=0)
            words = [names[group]] * (len(lined) > 1) + [title(metric)] * (len(metrics) > 1)
            label, marker = ", ".join(words) if names[group] else "", "." if len(rounds) < 2 else ""
            axes.plot(rounds, middle, marker=marker, linestyle=style, color=colour, label=label)
            if len(values) > 1:
                low, high = _band(values, figure.band)
                axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    _baseline(axes, figure.baseline, metrics[0], report)
    if figure.log:
        axes.set_yscale("log")
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    units = {unit(metric) for metric in metrics}
    axes.set_ylabel(with_unit(metrics[0]) if len(metrics) == 1 else units.pop() if len(units) == 1 else "")
    return canvas.with_legend(drawn, axes)


def over_rounds(group: Group, metric: str, figure: Curves) -> tuple[np.ndarray, np.ndarray]:
    """Rounds [n], and values [runs, n], smoothed, NaN where a run has none; rounds in which no run has a value are left out."""
    found: list[dict[int, float]] = []
    for run in group.runs:
        start = [(0, run.seed_model[metric])] if metric in run.seed_model else []
        points = [*start, *((int(row["round"]), row[metric]) for row in run.rows if row.get(metric) is not None)]
        if points:
            numbers, values = zip(*points, strict=True)
            found.append(dict(zip(numbers, smoothed(np.array(values, np.float64), figure.smooth), strict=True)))
    rounds = np.array(sorted({round for values in found for round in values}), np.int64)
    if figure.last is not None and len(rounds):
        rounds = rounds[rounds > rounds[-1] - figure.last]
    return rounds, scaled(np.array([[values.get(round, np.nan) for round in rounds.tolist()] for values in found]), metric)


def smoothed(values: np.ndarray, weight: float) -> np.ndarray:
    """The moving average of TensorBoard: s_t = w s_(t-1) + (1 - w) x_t, divided by 1 - w^t so that it does not start at 0."""
    past, found = 0.0, np.empty_like(values)
    for step, value in enumerate(values, 1):
        past = weight * past + (1 - weight) * value
        found[step - 1] = past / (1 - weight**step)
    return found


def trend(figure: Trend, report: Report) -> Canvas:
    metric = known_metric(figure.metric, report.runs)
    lines: dict[str, list[tuple[float, list[float]]]] = {}
    for group in report.groups:
        value = group.runs[0].settings.get(figure.key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"a trend needs numbers: {figure.key} is {grouping.shown(value)} in {group.label}")
        others = [key for key in report.asked.keys if key not in (figure.key, figure.by, *grouping.SEEDS)]
        apart = [*([figure.by] if figure.by is not None else []), *others]
        by = ", ".join(f"{_short(key)}={grouping.shown(group.runs[0].settings.get(key))}" for key in apart)
        if scores := group.values(metric):
            lines.setdefault(by, []).append((value * (100 if figure.percent else 1), [scaled(score, metric) for score in scores]))
    drawn, axes = canvas.new(figure.title or f"{title(metric)} by {_short(figure.key)}")
    for (by, points), colour in zip(lines.items(), cycle(COLOURS), strict=False):
        points.sort()
        middle = np.array([np.mean(values) for _, values in points])
        spread = [middle - [min(values) for _, values in points], [max(values) for _, values in points] - middle]
        places = [place for place, _ in points]
        axes.errorbar(places, middle, yerr=spread, fmt="o-", markersize=4, capsize=3, color=colour, label=by or None)
    _baseline(axes, figure.baseline, metric, report)
    if figure.log:
        axes.set_xscale("log")
    axes.set_xlabel(_short(figure.key) + (" (%)" if figure.percent else ""))
    axes.set_ylabel(with_unit(metric))
    return canvas.with_legend(drawn, axes)


def bars(figure: Bars, report: Report) -> Canvas:
    metric = known_metric(figure.metric, report.runs)
    found = [(group, values) for group in report.groups if (values := group.values(metric))]
    drawn, axes = canvas.new(figure.title or title(metric), 0.9 + 0.34 * len(found))
    label = start(metric)
    for place, (group, values) in enumerate(found):
        middle = float(np.mean(values))
        words = number(middle, metric)
        interval = group.interval(metric)
        low, high = (interval.low, interval.high) if interval is not None else (min(values), max(values))
        middle, low, high = (scaled(value, metric) for value in (middle, low, high))
        axes.barh(place, middle, 0.62, color=COLOURS[0], alpha=0.85)
        if (before := group.score(metric, "seed")) is not None:
            axes.plot([scaled(before, metric)] * 2, [place - 0.5, place + 0.5], color=GREY, linestyle="--", linewidth=1.2, label=label)
            label = ""
        if high > low:
            axes.errorbar(middle, place, xerr=[[middle - low], [high - middle]], color=INK, capsize=3, linewidth=1)
        axes.annotate(words, (0, place), (5, 0), textcoords="offset points", va="center", fontsize=8, color="white")
    canvas.one_below_the_other(drawn, axes, [group.label for group, _ in found])
    axes.set_xlabel(with_unit(metric))
    return canvas.with_legend(drawn, axes)


def scatter(figure: Scatter, report: Report) -> Canvas:
    metric = known_metric(figure.metric, report.runs)
    columns = min(3, len(figure.keys))
    rows = -(-len(figure.keys) // columns)
    drawn = Canvas(figsize=(max(WIDTH, 3 * columns), 2.7 * rows), layout="constrained")
    words = figure.title or f"{title(metric)} by what is swept; the best run in orange"
    drawn.suptitle(words[:1].upper() + words[1:], x=0.01, ha="left", fontsize=10, fontweight="bold")
    runs = [(run, value) for run in report.runs if (value := run.value(metric)) is not None]
    champion = (max if rising(metric) else min)(runs, key=lambda pair: pair[1])[0] if runs else None
    for place, key in enumerate(figure.keys, 1):
        if not any(key in run.settings for run in report.runs):
            raise ValueError(f"no run's configuration has the key {key}; keys are dotted, such as algorithm.alpha")
        axes = drawn.add_subplot(rows, columns, place)
        points = [(run.settings[key], scaled(value, metric), run) for run, value in runs if key in run.settings]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value, _, _ in points)
        places = [value if numeric else grouping.shown(value) for value, _, _ in points]
        axes.scatter(places, [value for _, value, _ in points], s=16, color=COLOURS[0], alpha=0.8)
        best = [(place, value) for place, (_, value, run) in zip(places, points, strict=True) if run is champion]
        if best:
            axes.scatter(*zip(*best, strict=True), s=42, color=COLOURS[1], zorder=3)
        if numeric and places and (figure.log or (figure.log is None and min(places) > 0 and max(places) > 30 * min(places))):
            axes.set_xscale("log")
        axes.set_xlabel(_short(key))
        axes.set_ylabel(with_unit(metric) if (place - 1) % columns == 0 else "")
    return drawn


def speakers(figure: Speakers, report: Report) -> Canvas:
    drawn, axes = canvas.new(figure.title or f"{title(figure.metric)} of each speaker, sorted")
    lined = canvas.coloured(report)
    first = next(iter(lined))
    for group, model, colour in [(first, "seed", GREY), *((group, "best", colour) for group, colour in lined.items() if colour != GREY)]:
        counts = [run.predictions.counts(model, figure.metric) for run in group.finished if run.predictions is not None]
        rates = np.sort([100 * errors / length for found in counts if found for length, errors in found.values() if length])
        if len(rates):
            label = "seed model" if model == "seed" else group.label
            axes.plot((np.arange(len(rates)) + 0.5) / len(rates) * 100, rates, ".", markersize=5, color=colour, label=label)
    if not axes.lines:
        raise ValueError(f"no finished run has scored {figure.metric} by speaker")
    axes.set_xlabel("share of the speakers (%)")
    axes.set_ylabel(with_unit(figure.metric))
    return canvas.with_legend(drawn, axes)


def phases(figure: Phases, report: Report) -> Canvas:
    found = [group for group in report.groups if any(run.rows for run in group.runs)]
    drawn, axes = canvas.new(figure.title or "Time of a round", 1.2 + 0.34 * len(found))
    before = np.zeros(len(found))
    parts = {name: np.array([_seconds(group, metric) for group in found]) for metric, name in PHASES.items()}
    whole = np.array([_seconds(group, "time/round_s") + _seconds(group, "time/checkpoint_s") for group in found])
    parts["other"] = np.maximum(whole - sum(parts.values()), 0)
    for (name, seconds), colour in zip(parts.items(), (*COLOURS[: len(PHASES)], GREY), strict=True):
        axes.barh(range(len(found)), seconds, 0.62, left=before, color=colour, label=name)
        before += seconds
    canvas.one_below_the_other(drawn, axes, [group.label for group in found])
    axes.set_xlabel("seconds, mean over the rounds")
    return canvas.with_legend(drawn, axes)


def participation(figure: Participation, report: Report) -> Canvas:
    drawn, axes = canvas.new(figure.title or "Rounds that a client took part in")
    tables = []
    for group, colour in canvas.coloured(report).items():
        found = [run.clients for run in group.runs if run.clients is not None and len(run.clients)]
        if found and colour != GREY:
            tables.append((group, colour, found))
    if not tables:
        raise ValueError("no finished run tells which clients took part")
    most = max(int(table["rounds"].to_numpy().max(initial=0)) for *_, found in tables for table in found)
    edges = np.unique(np.linspace(1, most + 1, min(most + 1, 41)).round().astype(int))
    for group, colour, found in tables:
        counts = np.mean([np.histogram(table["rounds"].to_numpy(), edges)[0] for table in found], axis=0)
        axes.stairs(counts, edges - 0.5, color=colour, fill=len(tables) == 1, label=group.label if len(tables) > 1 else None, linewidth=1.6)
    axes.set_xlabel("rounds")
    axes.set_ylabel("clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return canvas.with_legend(drawn, axes)


def _seconds(group: Group, metric: str) -> float:
    means = [np.nanmean(column) for run in group.runs if not np.isnan(column := run.column(metric)).all()]
    return float(np.mean(means)) if means else 0.0


def _names(coloured: Mapping[Group, str]) -> dict[Group, str]:
    """For the legend, in which the grey ones are named together, by the last of them."""
    grey = [group for group, colour in coloured.items() if colour == GREY]
    return {group: group.label for group in coloured} | dict.fromkeys(grey, "") | {group: f"{len(grey)} others" for group in grey[-1:]}


def _band(values: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
    if band == "range":
        return np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    middle, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    return middle - spread, middle + spread


def _baseline(axes: Axes, baseline: str | float | None, metric: str, report: Report) -> None:
    if baseline is None:
        return
    words = str(baseline)
    if baseline == "seed":
        value, words = report.groups[0].score(metric, "seed"), "seed model"
    elif isinstance(baseline, str):
        group = grouping.named_group(baseline, report.groups)
        value, words = group.score(metric), group.label
    else:
        value = baseline
    if value is not None:
        axes.axhline(scaled(value, metric), color=GREY, linestyle="--", linewidth=1.2, label=words)


def _short(key: str) -> str:
    return key.removesuffix(".kind").rpartition(".")[2]


DRAWN: dict[type[Figure], Callable[[Any, Report], Canvas]] = {
    Curves: curves,
    Trend: trend,
    Bars: bars,
    Scatter: scatter,
    Speakers: speakers,
    Own: own,
    Phases: phases,
    Participation: participation,
    Retrievals: retrievals,
}
