"""engine.png: one panel each for the ratio to the floor, the cost of a client, memory, and bytes through the driver."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}
COLOURS = {
    "fedray": "#1b6ca8",
    "fedray's steps alone, a process a core": "#b0b0b0",
    "pfl-research": "#e08a3c",
    "Flower": "#7a5ba6",
}
Numbers = Mapping[str, Any]


def draw(numbers: Numbers, path: Path) -> None:
    """Draw the panels of the parts that were measured."""
    panels = [(panel, needs) for panel, needs in PANELS.items() if any(name in numbers for name in needs)]
    with matplotlib.rc_context(STYLE):
        rows = (len(panels) + 1) // 2
        figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
        for place, (panel, _) in enumerate(panels, 1):
            panel(figure.add_subplot(rows, min(2, len(panels)), place), numbers)
        figure.savefig(path, dpi=150)


def ratios(axes: Axes, numbers: Numbers) -> None:
    models = numbers["floor"]
    names = [name for name in COLOURS if any(name in found["ratios"] for found in models.values())]
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places, values, spread = [], [], ([], [])
        for place, found in enumerate(models.values()):
            if name in found["ratios"]:
                value, each = found["ratio"][name], found["ratios"][name]
                places.append(place + (number - (len(names) - 1) / 2) * width)
                values.append(value)
                spread[0].append(value - min(each))
                spread[1].append(max(each) - value)
        bars = axes.bar(
            places,
            values,
            0.9 * width,
            yerr=spread,
            color=COLOURS[name],
            label=name,
            capsize=2,
            error_kw={"linewidth": 0.8},
        )
        axes.bar_label(
            bars,
            [f"{value:.2f}" for value in values],
            padding=3,
            fontsize=7,
            bbox={"color": "white", "pad": 0.5, "alpha": 0.8},
        )
    axes.axhline(1.0, color="black", linewidth=0.8, zorder=0)  # behind the bars and their numbers
    axes.set_xticks(range(len(models)), [textwrap.fill(found["title"], 13) for found in models.values()], fontsize=7)
    axes.set_title("Seconds a round over the floor (1 = bare torch)")
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def client(axes: Axes, numbers: Numbers) -> None:
    lane = dict(reversed(numbers["phases"]["lane_ms"].items()))
    bars = axes.barh(list(lane), list(lane.values()), color=COLOURS["fedray"])
    axes.bar_label(bars, [f"{value:.2f}" for value in lane.values()], padding=2, fontsize=7)
    axes.set_xlabel("ms")
    axes.set_title("A client in a lane (CRNN-Base)")


def memory(axes: Axes, numbers: Numbers) -> None:
    for part, key, label, marker in (
        ("population", "population", "population (toy, 100 clients a round)", "o"),
        ("cohort", "cohort", "cohort (CRNN-Lite, of 4,000)", "s"),
        ("speakers", "cohort", "cohort (Conformer, of 4,000 speakers)", "^"),
    ):
        runs = numbers.get(part, {"runs": []})["runs"]
        if runs:
            axes.plot(
                [run[key] for run in runs],
                [sum(run["memory"].values()) / 1e9 for run in runs],
                marker=marker,
                label=label,
            )
    axes.set_xscale("log")
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.set_xlabel("clients")
    axes.set_ylabel("GB, all processes, Ray's too")
    axes.set_title("Memory")
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def driver(axes: Axes, numbers: Numbers) -> None:
    found = numbers["size"]
    for parameters in sorted({run["parameters"] for run in found["runs"]}, reverse=True):
        runs = [run for run in found["runs"] if run["parameters"] == parameters]
        label = f"{parameters / 1e6:g}M parameters"
        axes.plot([run["cohort"] for run in runs], [run["driver_bytes"] / 1e6 for run in runs], marker="o", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    cohorts = sorted({run["cohort"] for run in found["runs"]})
    axes.set_xticks(cohorts)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.set_xlabel("clients a round")
    axes.set_ylabel("MB a round")
    axes.set_title("Parameters through the driver")
    axes.set_ylim(top=20 * axes.get_ylim()[1])  # room for the legend
    axes.legend(frameon=False, fontsize=8, loc="upper right")


PANELS: dict[Callable[[Axes, Numbers], None], tuple[str, ...]] = {
    ratios: ("floor",),
    client: ("phases",),
    memory: ("population", "cohort", "speakers"),
    driver: ("size",),
}
