"""What several kinds of figures share: colours of groups, bars side by side, short names of keys, baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from fedray.report import canvas
from fedray.report.canvas import COLOURS, GREY, INK
from fedray.report.comparison import Comparison
from fedray.report.groups import Group, named_group
from fedray.report.words import scaled

Found = TypeVar("Found")


def coloured(comparison: Comparison) -> dict[Group, str]:
    """A colour per group. With more groups than colours, the best get one; the others are grey and come first."""
    if len(comparison.groups) <= len(COLOURS):
        return dict(zip(comparison.groups, COLOURS, strict=False))
    ranked = comparison.ranked()[: len(COLOURS)]
    others = [group for group in comparison.groups if group not in ranked]
    return dict.fromkeys(others, GREY) | dict(zip(ranked, COLOURS, strict=False))


def having(comparison: Comparison, find: Callable[[Group], Found | None]) -> list[tuple[Group, str, Found]]:
    """The groups that have a colour and the data, each with both.

    If none has both: grey groups that have the data, as many as there are colours.
    """
    each = [(group, colour, find(group)) for group, colour in coloured(comparison).items()]
    found = [(group, colour, data) for group, colour, data in each if data is not None]
    bright = [one for one in found if one[1] != GREY]
    return bright or [(group, colour, data) for (group, _, data), colour in zip(found, COLOURS, strict=False)]


def legend_names(coloured: Mapping[Group, str]) -> dict[Group, str]:
    """The label of each group in a legend; the entry of the last grey group stands for all grey groups."""
    grey = [group for group, colour in coloured.items() if colour == GREY]
    names = {group: group.label for group in coloured} | dict.fromkeys(grey, "")
    return names | {group: f"{len(grey)} others" for group in grey[-1:]}


@dataclass(frozen=True)
class Series:
    """Bars of one colour, name -> length, and lines across them that mark a reference, name -> length."""

    label: str
    colour: str
    values: Mapping[str, float]
    marks: Mapping[str, float]


def side_by_side(words: str, names: Sequence[str], series: Sequence[Series], mark: str, unit: str) -> Canvas:
    """For each name, a bar of each series; `mark` names the lines."""
    thick = 0.8 / len(series)
    drawn, axes = canvas.new(words, 0.9 + max(0.34, 0.16 * len(series)) * len(names))
    for place, one in enumerate(series):
        rows = np.arange(len(names)) + (place + 0.5) * thick - 0.4
        lengths = [one.values.get(name, np.nan) for name in names]
        axes.barh(rows, lengths, 0.9 * thick, color=one.colour, alpha=0.85, label=one.label)
        marks = [one.marks.get(name, np.nan) for name in names]
        label = mark if place == len(series) - 1 else ""
        axes.vlines(marks, rows - thick / 2, rows + thick / 2, color=INK, linewidth=1.6, label=label)
    canvas.label_rows(drawn, axes, names)
    axes.set_xlabel(unit)
    return canvas.with_legend(drawn, axes)


def short(key: str) -> str:
    """The last part of a dotted key: algorithm.kind -> algorithm, cohort.size -> size."""
    return key.removesuffix(".kind").rpartition(".")[2]


def draw_baseline(axes: Axes, baseline: str | float | None, metric: str, comparison: Comparison) -> None:
    """A dashed line at the seed model's score ("seed"), at the score of the group with this label, or at a number."""
    if baseline is None:
        return
    words = str(baseline)
    if baseline == "seed":
        value, words = comparison.seed_score(metric), comparison.first_model
    elif isinstance(baseline, str):
        group = named_group(baseline, comparison.groups)
        value, words = group.score(metric), group.label
    else:
        value = baseline
    if value is not None:
        axes.axhline(scaled(value, metric), color=GREY, linestyle="--", linewidth=1.2, label=words)
