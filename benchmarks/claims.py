"""The picture of docs/findings.md: the papers' claims with our intervals, beside the papers' numbers.

    python -m benchmarks.claims

Claims and verdicts are read from the page's tables, numbers from claims.yaml. Writes docs/findings.png. The tests
compare the numbers with the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedray.report.canvas import STYLE

ROOT = Path(__file__).resolve().parents[1]
PAGE, NUMBERS = ROOT / "docs" / "findings.md", ROOT / "benchmarks" / "claims.yaml"
PICTURE = ROOT / "docs" / "findings.png"
COLOURS = {"reproduced": "#3fa66a", "in part": "#2f7fd1", "not reproduced": "#d6536d", "open": "#8a8a8a"}


@dataclass(frozen=True)
class Claim:
    """A row of the page, and its numbers.

    `told`: the page's cell of our numbers; `found`: mean, low end, high end; `sign`: -1 where lower is better.
    """

    title: str
    told: str
    verdict: str
    unit: str
    paper: tuple[float, ...]
    found: tuple[float, float, float]
    sign: int

    @classmethod
    def of(cls, cells: Sequence[str], numbers: Mapping[str, Any]) -> Claim:
        """`cells`: of the page's row; `numbers`: of claims.yaml."""
        number, title, _, told, verdict = cells
        sign = -1 if numbers.get("better") == "lower" else 1
        return cls(
            f"{number}. {title}", told, verdict, numbers["unit"], tuple(numbers["paper"]), tuple(numbers["here"]), sign
        )

    def words(self) -> str:
        """The numbers, as the page writes them."""
        mean, low, high = in_words(self.found)
        return f"{' to '.join(in_words(self.paper)) or 'no number'}; here {mean} [{low}, {high}] {self.unit}"


def claims(page: str, numbers: str) -> dict[str, list[Claim]]:
    """Paper -> its claims that have numbers. KeyError: the page lacks one of them."""
    listed = {}
    for paper, rows in yaml.safe_load(numbers).items():
        section = page.partition(f"\n## {paper}\n")[2].partition("\n## ")[0]
        table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()]
        cells = {row[0]: row for row in table if row}
        listed[paper] = [Claim.of(cells[f"{number}"], row) for number, row in rows.items()]
    return listed


def in_words(numbers: Sequence[float]) -> list[str]:
    """Numbers as the page has them, all with as many decimals as the one with most."""
    decimals = max((len(f"{number}".partition(".")[2]) for number in numbers), default=0)
    return [f"{number:.{decimals}f}".replace("-", "−") for number in numbers]


def draw(listed: Mapping[str, Sequence[Claim]], path: Path) -> None:
    """A row for each claim, on a scale of its own: the line is 0, and to its right is what the claim says."""
    heights = [len(rows) for rows in listed.values()]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 0.6 + 0.27 * sum(heights) + 0.4 * len(heights)), layout="constrained")
        panels = figure.subplots(len(listed), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (paper, rows) in zip(panels, listed.items(), strict=True):
            _panel(axes, rows)
            axes.set_title(paper)
        panels[0].text(1.12, -1, "right of the line: as the paper claims", fontsize=8)
        marks = [Line2D([], [], color="black", marker="D", markerfacecolor="none", linestyle="", label="the paper")]
        marks += [Line2D([], [], color=c, marker="o", label=f"here: {verdict}") for verdict, c in COLOURS.items()]
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
        figure.savefig(path, dpi=110)


def _panel(axes: Axes, rows: Sequence[Claim]) -> None:
    for at, row in enumerate(rows):
        scale = row.sign * max(map(abs, (*row.paper, *row.found)))
        mean, *ends = (number / scale for number in row.found)
        colour = COLOURS[row.verdict]
        axes.plot([min(ends), max(ends)], [at, at], color=colour)
        axes.plot(mean, at, "o", color=colour, markersize=5)
        told = [number / scale for number in row.paper]
        axes.plot(told, [at] * len(told), "D", color="black", markerfacecolor="none", markersize=6)
        axes.text(1.12, at, row.words(), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [_short(row.title) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-1.1, 1.1)
    axes.axvline(0, color="black", linewidth=0.8, zorder=0)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)


def _short(title: str) -> str:
    """A claim without what stands in brackets."""
    plain = re.sub(r"\s*\([^)]*\)", "", title)
    return plain if len(plain) < 72 else f"{plain[:70].rstrip()}…"


def main() -> None:
    draw(claims(PAGE.read_text(encoding="utf-8"), NUMBERS.read_text(encoding="utf-8")), PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
