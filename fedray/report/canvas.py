"""The style of all figures, and how they become SVG and PNG."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, NullFormatter

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

INK = "#24292f"  # of text and axes; a page replaces it with the colour of its text
GREY = "#8b949e"
# Legible on white and on black.
COLOURS = ("#2f7fd1", "#e0823d", "#3fa66a", "#b05cc6", "#d6536d", "#1aa3a3", "#a68a2d", "#6f74d9")
STYLE: dict[RcKeyType, object] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.6,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a user's label stays a $
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small files, readable by screen readers
    "svg.hashsalt": "fedray",  # equal figures give equal bytes
}
WIDTH, HEIGHT, LEGEND_LINE = 5.6, 3.0, 0.17  # inches
TITLE_CHARACTERS = 62  # per line of a figure of this width
LEGEND_CHARACTERS = 76  # per line, below the axes
SHORT = 200  # times the least value is the largest one on a short logarithmic axis
ROW_CHARACTERS, ROW_LINE = 32, 0.16  # characters per line left of the axes, and its height in inches


@dataclass(frozen=True)
class Drawing:
    """A figure rendered as SVG and PNG; `words` is its title."""

    words: str
    svg: str
    png: bytes

    @classmethod
    def of(cls, canvas: Canvas) -> Drawing:
        """Render a canvas; call it inside `style()`."""
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")  # no second layout for each format
        svg, png = io.StringIO(), io.BytesIO()
        canvas.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        canvas.savefig(png, format="png", dpi=160, facecolor="white")
        suptitle = " ".join(canvas.get_suptitle().split("\n"))
        return cls(suptitle or canvas.axes[0].get_title("left"), svg.getvalue(), png.getvalue())

    def _repr_png_(self) -> bytes:
        return self.png

    def inline(self, name: str) -> str:
        """The <svg> element for a page: full width, in the page's text colour, ids prefixed with `name`."""
        text = self.svg[self.svg.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
        text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
        text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", text)
        label = f'<svg role="img" aria-label="{escape(self.words)}"'
        return text.replace(INK, "currentColor").replace("<svg", label, 1)


def style() -> AbstractContextManager[None]:
    """The context manager in which figures are drawn and saved."""
    return matplotlib.rc_context(dict(STYLE))


class Powers(LogLocator):
    """Ticks at the powers of ten; on a short axis also at 2 and 5 times each."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """The ticks from `vmin` to `vmax`."""
        self.set_params(subs=(1.0, 2.0, 5.0) if vmax <= SHORT * vmin else (1.0,))
        found: Sequence[float] = super().tick_values(vmin, vmax)
        return found


def new(words: str, height: float = HEIGHT) -> tuple[Canvas, Axes]:
    """A canvas with one pair of axes and a title; `height` in inches."""
    canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
    axes = canvas.add_subplot()
    head(canvas, words)
    return canvas, axes


def head(canvas: Canvas, words: str) -> None:
    """Give a canvas its title, on as many lines as it takes."""
    lines = textwrap.wrap(words[:1].upper() + words[1:], round(TITLE_CHARACTERS * canvas.get_figwidth() / WIDTH))
    canvas.set_figheight(canvas.get_figheight() + LEGEND_LINE * (len(lines) - 1))
    canvas.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10, fontweight="bold")


def logarithmic(axes: Axes, name: str) -> None:
    """Scale the axis `name` ("x" or "y") by logarithm, with plain numbers."""
    axes.set(**{f"{name}scale": "log"})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(Powers())
    axis.set_major_formatter("{x:,.7g}")  # matplotlib's powers of ten are mathematics, which the style switches off
    axis.set_minor_formatter(NullFormatter())


def bins(first: int, last: int) -> np.ndarray:
    """The edges of at most 40 bins for the whole numbers from `first` to `last`: of one width, as counts are drawn."""
    width = max(1, -(-(last - first + 1) // 40))
    return np.arange(first, last + 1 + width, width)


def label_rows(canvas: Canvas, axes: Axes, labels: Sequence[str]) -> None:
    """Label horizontal bars, the first at the top; long labels are wrapped."""
    folded = [textwrap.wrap(label, ROW_CHARACTERS) or [""] for label in labels]
    further_lines = max(0, max(map(len, folded), default=0) - 2)
    canvas.set_figheight(canvas.get_figheight() + ROW_LINE * len(labels) * further_lines)
    axes.set_yticks(range(len(labels)), ["\n".join(lines) for lines in folded])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def with_legend(canvas: Canvas, axes: Axes) -> Canvas:
    """Add a legend below the axes, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = max(1, min(len(labels), LEGEND_CHARACTERS // (max(map(len, labels)) + 5)))
        canvas.set_figheight(canvas.get_figheight() + LEGEND_LINE * -(-len(labels) // columns))
        spacing = {"columnspacing": 1.4, "handlelength": 1.5}
        canvas.legend(handles, labels, loc="outside lower left", ncols=columns, fontsize=8, **spacing)
    return canvas
