"""Heat maps of FedMem's scores by k, lambda and temperature: a row per group, a column per k."""

from __future__ import annotations

import re

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from fedray.report import canvas
from fedray.report.canvas import COLOURS, WIDTH
from fedray.report.comparison import Comparison
from fedray.report.figures import Retrievals
from fedray.report.groups import Group

NUMBER = r"([\d.e+-]+)"
SETTING = re.compile(rf"personal/dev/k={NUMBER} lambda={NUMBER} T={NUMBER}(?: rho={NUMBER})?$")
ROW, TOP = 1.9, 0.5  # inches


def retrievals(figure: Retrievals, comparison: Comparison) -> Canvas:
    """The dev score of each k, lambda and temperature, a map for each k and group."""
    found = {group: costs for group in comparison.groups if (costs := settings_scores(group))}
    if not found:
        raise ValueError(
            "no finished run scored settings of a memory: set algorithm.costs=true and evaluation.personal_final=true"
        )
    settings = {setting for costs in found.values() for setting in costs}
    ks, shares, temperatures = (sorted({setting[place] for setting in settings}) for place in range(3))
    drawn = Canvas(figsize=(WIDTH * 1.6, ROW * len(found) + TOP), layout="constrained")
    words = figure.title or "Personal dev score by k, lambda and temperature, mean over clients; the lowest is framed"
    canvas.head(drawn, words)
    for row, (group, costs) in enumerate(found.items()):
        least = min(costs, key=lambda setting: costs[setting])
        # The scale ends at the 90 % quantile: a few very bad settings would hide the rest.
        low, high = costs[least], float(np.quantile(list(costs.values()), 0.9))
        scale = Normalize(low, max(high, low + 1e-9))
        for column, k in enumerate(ks):
            axes = drawn.add_subplot(len(found), len(ks), row * len(ks) + column + 1)
            values = np.array([[costs.get((k, share, t), np.nan) for share in shares] for t in temperatures])
            image = axes.imshow(values, aspect="auto", origin="lower", cmap="viridis_r", norm=scale)
            axes.grid(visible=False)
            axes.set_xticks(range(len(shares)), [f"{share:g}" for share in shares], fontsize=7)
            axes.set_yticks(range(len(temperatures)), [f"{t:g}" for t in temperatures], fontsize=7)
            axes.set_title((f"{group.label}, " if len(found) > 1 else "") + f"k = {k:g}", fontsize=8)
            if row == len(found) - 1:
                axes.set_xlabel("lambda")
            if column == 0:
                axes.set_ylabel("temperature")
            if least[0] == k:
                corner = (shares.index(least[1]) - 0.5, temperatures.index(least[2]) - 0.5)
                axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=2))
        drawn.colorbar(image, ax=drawn.axes[-len(ks) :], shrink=0.9)
    return drawn


def settings_scores(group: Group) -> dict[tuple[float, float, float], float]:
    """(k, lambda, temperature) -> dev score with the best radius, mean over clients, then over runs."""
    found: dict[tuple[float, float, float], dict[str | None, list[float]]] = {}
    for run in group.finished:
        for name, value in run.best.items():
            if told := SETTING.match(name):
                k, share, temperature = map(float, told.groups()[:3])
                radii = found.setdefault((k, share, temperature), {})
                radii.setdefault(told.group(4), []).append(value)
    return {setting: min(float(np.mean(values)) for values in radii.values()) for setting, radii in found.items()}
