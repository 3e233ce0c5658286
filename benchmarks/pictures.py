"""Pictures of studies: scores of arms as dots with intervals, or as coloured squares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedray.report.canvas import COLOURS, STYLE

Dot = tuple[float, float, float]  # mean, low, high
Panel = Mapping[str, Mapping[str, Dot]]  # arm (a row) -> series (a colour) -> its score


def dots(panels: Mapping[str, Panel], axis: str, path: Path, line: float | None = None) -> None:
    """A panel for each title, two beside each other: a row for each arm, a colour for each series.

    `axis`: what the scores are. `line`: a score to mark, such as chance.
    """
    across, arms = min(2, len(panels)), [len(panel) for panel in panels.values()]
    heights = [1.2 + 0.42 * max(arms[first : first + across]) for first in range(0, len(arms), across)]
    series = dict.fromkeys(name for panel in panels.values() for scores in panel.values() for name in scores)
    colours = dict(zip(series, cycle(COLOURS), strict=False))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 4.5 * across, sum(heights) + 0.4), layout="constrained")
        ratios = {"height_ratios": heights}
        places = figure.subplots(len(heights), across, squeeze=False, sharex=True, gridspec_kw=ratios).ravel()
        for axes, (title, panel) in zip(places, panels.items(), strict=False):
            _panel(axes, panel, colours)
            axes.set_title(title)
            axes.set_xlabel(axis)
            axes.tick_params(labelbottom=True)
            if line is not None:
                axes.axvline(line, color="black", linewidth=0.8, zorder=0)
        for axes in places[len(panels) :]:
            axes.remove()
        marks = [Line2D([], [], marker="o", markersize=4, color=colour, label=name) for name, colour in colours.items()]
        figure.legend(handles=marks, frameon=False, fontsize=8, loc="outside lower center", ncols=min(6, len(marks)))
        figure.savefig(path, dpi=130, bbox_inches="tight")


def _panel(axes: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    series = [name for name in colours if any(name in scores for scores in panel.values())]
    for number, name in enumerate(series):
        shift = 0.6 * ((number + 0.5) / len(series) - 0.5)  # of rows, so that intervals do not cover each other
        found = [(place + shift, scores[name]) for place, scores in enumerate(panel.values()) if name in scores]
        means = [mean for _, (mean, _, _) in found]
        ends = [[mean - low for _, (mean, low, _) in found], [high - mean for _, (mean, _, high) in found]]
        axes.errorbar(means, [at for at, _ in found], xerr=ends, fmt="o", color=colours[name], markersize=4)
    axes.set_yticks(range(len(panel)), list(panel))
    axes.set_ylim(len(panel) - 0.5, -0.5)


def squares(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]], columns: Sequence[str], bad: Collection[str], path: Path
) -> None:
    """A panel for each title: scores in percent, 0 red and 100 green. `bad`: columns where 100 is red.

    `panels`: title -> row -> column -> score. A score that is missing leaves its square white.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2 + 5 * len(panels), 4.6), layout="constrained")
        places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, table) in zip(places, panels.items(), strict=True):
            shown = np.array([[row.get(column, np.nan) for column in columns] for row in table.values()])
            good = np.where([column in bad for column in columns], 100 - shown, shown)
            axes.imshow(good, cmap="RdYlGn", vmin=0, vmax=100, aspect="auto")
            for (row, column), value in np.ndenumerate(shown):
                if not np.isnan(value):
                    ink = "white" if abs(good[row, column] - 50) > 40 else "black"  # the map is dark at both ends
                    axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=8, color=ink)
            axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
            axes.set_yticks(range(len(table)), list(table))
            axes.set_title(title)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.grid(False)
        figure.savefig(path, dpi=130)
