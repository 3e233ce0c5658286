"""`fedray report`: tables, intervals, figures and a page from run folders.

from fedray import report
found = report.read("runs/study", baseline="first")
found.table()  # for rich
found.save("report")  # report.html, report.md, report.csv, figures/
"""

from fedray.report.figures import KINDS, Bars, Curves, Figure, Own, Participation, Phases, Retrievals, Scatter, Speakers, Trend
from fedray.report.report import Report, read, write

__all__ = [
    "KINDS",
    "Bars",
    "Curves",
    "Figure",
    "Own",
    "Participation",
    "Phases",
    "Report",
    "Retrievals",
    "Scatter",
    "Speakers",
    "Trend",
    "read",
    "write",
]
