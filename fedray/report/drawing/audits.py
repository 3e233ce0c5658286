"""The figure of audits: how many candidates an attacker finds, and how many non-members it takes for clients."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Canvas

from fedray.report import canvas
from fedray.report.canvas import GREY
from fedray.report.comparison import Comparison
from fedray.report.drawing.common import having
from fedray.report.figures import Audits
from fedray.report.groups import Group
from fedray.report.recorded import Run


def audits(figure: Audits, comparison: Comparison) -> Canvas:
    """True against false positives at every threshold, a line per run. Dashes: random guesses."""
    drawn, axes = canvas.new(figure.title or "Who took part: an attacker's true positives over false ones")

    def audited(group: Group) -> list[tuple[np.ndarray, np.ndarray]] | None:
        return [found for run in group.finished if (found := rates(run)) is not None] or None

    for group, colour, lines in having(comparison, audited):
        for place, line in enumerate(lines):
            axes.plot(*line, color=colour, label=None if place else group.label, drawstyle="steps-post")
    if not axes.lines:
        raise ValueError("no finished run has an audit: set audit.kind")
    axes.plot([0, 100], [0, 100], color=GREY, linestyle="--", linewidth=1.2, label="guesses at random")
    axes.set_xlabel("false positives (%)")
    axes.set_ylabel("true positives (%)")
    return canvas.with_legend(drawn, axes)


def rates(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    """False and true positives in percent, float64 [thresholds + 1], from none to all; None without an audit."""
    if run.audit is None:
        return None
    inside, scores = run.audit["inside"].to_numpy() == 1, run.audit["score"].to_numpy()
    thresholds = np.concatenate([[np.inf], np.unique(scores)[::-1]])
    shares = ([np.mean(scores[side] >= one) for one in thresholds] for side in (~inside, inside))
    false, true = (100 * np.array(share) for share in shares)
    return false, true
