"""Figures of speakers and clients: rates by speaker, personal scores by client, and how often clients take part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from fedray.core.metrics import ALONE
from fedray.report import canvas
from fedray.report.bootstrap import by_unit
from fedray.report.canvas import GREY
from fedray.report.comparison import Comparison
from fedray.report.drawing.common import Series, having, side_by_side
from fedray.report.errors import LABELS, of_labels
from fedray.report.figures import Labels, Participation, Personal, Speakers
from fedray.report.groups import Group
from fedray.report.recorded import Run
from fedray.report.words import title, with_unit

NAMED = 20  # the most clients whose names an axis shows; with more it shows none
MARKERS = "osDv^<>p"  # outlines: points of several groups stay visible where they coincide


def speakers(figure: Speakers, comparison: Comparison) -> Canvas:
    """The score of each speaker, sorted, with the seed model's as a reference."""
    drawn, axes = canvas.new(figure.title or f"{title(figure.metric)} of each speaker, sorted")

    def rates(group: Group, model: str) -> list[float] | None:
        counts = [run.predictions.counts(model, figure.metric) for run in group.finished if run.predictions is not None]
        return [rate for found in counts if found for rate in by_unit(found)] or None

    best = having(comparison, lambda group: rates(group, "best"))
    found = [(group.label, colour, values) for group, colour, values in best]
    if comparison.seed_score(figure.metric) is not None:
        first = next((seed for group in comparison.groups if (seed := rates(group, "seed")) is not None), None)
        found = [(comparison.first_model, GREY, first), *found] if first is not None else found
    for label, colour, values in found:
        axes.plot(_shares(len(values)), np.sort(values), ".", markersize=5, color=colour, label=label)
    if not found:
        raise ValueError(f"no finished run has scored {figure.metric} by speaker")
    axes.set_xlabel("share of the speakers (%)")
    axes.set_ylabel(with_unit(figure.metric))
    return canvas.with_legend(drawn, axes)


def labels(figure: Labels, comparison: Comparison) -> Canvas:
    """For each label a bar per group, and a line at the seed model's score."""
    found = []
    for group, colour, best in having(comparison, lambda one: of_labels(one.finished, figure.metric, "best") or None):
        marks = of_labels(group.finished, figure.metric, "seed")
        found.append(Series(group.label if len(comparison.groups) > 1 else "", colour, best, marks))
    if not found:
        raise ValueError(f"no finished run has scored {figure.metric} by 2 to {LABELS} labels or groups")
    names = list(dict.fromkeys(name for series in found for name in series.values))
    words = figure.title or f"{title(figure.metric)} of each label"
    return side_by_side(words, names, found, comparison.first_model, with_unit(figure.metric))


def personal(figure: Personal, comparison: Comparison) -> Canvas:
    """Clients sorted by personal score; in grey the score of each shared model alone, drawn once."""
    drawn, axes = canvas.new(figure.title or f"{title(figure.metric)} of each client, sorted")
    clients: list[str] = []
    shown: list[dict[str, float]] = []
    found = having(comparison, lambda one: client_means(one.finished, figure.metric) or None)
    for (group, colour, scores), marker in zip(found, cycle(MARKERS), strict=False):
        order = sorted(scores, key=lambda client: scores[client])
        places = _shares(len(order))
        clients = clients or order
        alone = client_means(group.finished, figure.metric + ALONE)
        both = [(x, scores[one], alone[one]) for x, one in zip(places, order, strict=True) if one in alone]
        if both and alone not in shown:
            shown.append(alone)
            where, reached, before = np.array(both).T
            axes.vlines(where, reached, before, color=GREY, linewidth=0.8, alpha=0.6)
            label = comparison.start(figure.metric) if len(shown) == 1 else None
            axes.plot(where, before, ".", markersize=5, color=GREY, label=label)
        values = [scores[client] for client in order]
        axes.plot(places, values, marker, markersize=4.5, fillstyle="none", color=colour, label=group.label)
    if not clients:
        raise ValueError(f"no finished run has {figure.metric} of each client: set evaluation.personal_final=true")
    if len(comparison.groups) == 1 and len(clients) <= NAMED:
        axes.set_xticks(places, clients, rotation=45, ha="right")
    else:
        axes.set_xlabel("share of the clients (%)")
    axes.set_ylabel(with_unit(figure.metric))
    return canvas.with_legend(drawn, axes)


def client_means(runs: Sequence[Run], metric: str) -> dict[str, float]:
    """Client -> mean over runs of its personal score; a client without a score is missing."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for client, value in run.of_clients(metric).items():
            found.setdefault(client, []).append(value)
    return {client: float(np.mean(values)) for client, values in found.items()}


def participation(figure: Participation, comparison: Comparison) -> Canvas:
    """A histogram of the number of rounds that clients took part in."""
    drawn, axes = canvas.new(figure.title or "Rounds that a client took part in")

    def took_part(group: Group) -> list[np.ndarray] | None:
        tables = [run.clients for run in group.runs if run.clients is not None and len(run.clients)]
        return [table["rounds"].to_numpy() for table in tables] or None

    found = having(comparison, took_part)
    if not found:
        raise ValueError("no finished run has a table of its clients")
    most = max(int(rounds.max(initial=0)) for *_, each in found for rounds in each)
    edges = canvas.bins(1, most)
    drawn_as: dict[tuple[float, ...], list[Group]] = {}  # methods of one study often have the same cohorts
    for group, _, each in found:
        counts = np.mean([np.histogram(rounds, edges)[0] for rounds in each], axis=0)
        drawn_as.setdefault(tuple(counts), []).append(group)
    colours = {group: colour for group, colour, _ in found}
    for counts, groups in drawn_as.items():
        alike = len(drawn_as) == 1
        label = " and ".join(group.label for group in groups)
        if alike:
            label = f"the same in all {len(groups)}" if len(groups) > 1 else ""
        axes.stairs(counts, edges - 0.5, color=colours[groups[0]], fill=alike, label=label, linewidth=1.6)
    axes.set_xlabel("rounds")
    axes.set_ylabel("clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return canvas.with_legend(drawn, axes)


def _shares(count: int) -> np.ndarray:
    """The places of sorted items on an axis from 0 to 100 %: float64 [count]."""
    return (np.arange(count) + 0.5) / count * 100
