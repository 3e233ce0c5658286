"""Reports of run folders: tables, intervals, figures and a page.

from fedray import report
found = report.read("runs/study", baseline="first")
found.table()  # for the terminal, by rich
found.save("report")  # report.html, report.md, report.csv, figures/
"""

from fedray.report.figures import (
    KINDS,
    Audits,
    Bars,
    Curves,
    Fairness,
    Figure,
    Inversions,
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
from fedray.report.report import Report, read, write

__all__ = [
    "KINDS",
    "Audits",
    "Bars",
    "Curves",
    "Fairness",
    "Figure",
    "Inversions",
    "Labels",
    "Personal",
    "Participation",
    "Phases",
    "Report",
    "Retrievals",
    "Scatter",
    "Speakers",
    "Staleness",
    "Trend",
    "Trips",
    "read",
    "write",
]
