"""Draws what each client's own model scores, such as the shared one with the client's memory, beside what it scores alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure as Canvas

from fedray.core.metrics import ALONE
from fedray.report import canvas
from fedray.report.canvas import GREY
from fedray.report.figures import Own
from fedray.report.words import start, title, with_unit

if TYPE_CHECKING:
    from fedray.report.recorded import Run
    from fedray.report.report import Report

NAMED = 20  # of more clients the names are left out


def own(figure: Own, report: Report) -> Canvas:
    """Clients from left to right by their own score; grey above or below it, of the first group, what all share alone."""
    drawn, axes = canvas.new(figure.title or f"{title(figure.metric)} of each client, sorted")
    clients: list[str] = []
    for group, colour in canvas.coloured(report).items():
        scores = means(group.finished, figure.metric)
        if not scores or colour == GREY:  # that is what is shared; of many groups the best have colours
            continue
        order = sorted(scores, key=lambda client: scores[client])
        places = (np.arange(len(order)) + 0.5) / len(order) * 100
        if not clients:
            clients, alone = order, means(group.finished, figure.metric + ALONE)
            told = [(place, scores[client], alone[client]) for place, client in zip(places, order, strict=True) if client in alone]
            if told:
                where, reached, before = np.array(told).T
                axes.vlines(where, reached, before, color=GREY, linewidth=0.8, alpha=0.6)
                axes.plot(where, before, ".", markersize=5, color=GREY, label=start(figure.metric))
        axes.plot(places, [scores[client] for client in order], ".", markersize=5, color=colour, label=group.label)
    if not clients:
        raise ValueError(f"no finished run has {figure.metric} of each client: set evaluation.own_final=true")
    if len(report.groups) == 1 and len(clients) <= NAMED:
        axes.set_xticks(places, clients, rotation=45, ha="right")
    else:
        axes.set_xlabel("share of the clients (%)")
    axes.set_ylabel(with_unit(figure.metric))
    return canvas.with_legend(drawn, axes)


def means(runs: Sequence[Run], metric: str) -> dict[str, float]:
    """Of each client, over runs; a client that never scored is missing."""
    _, split, name = metric.split("/")
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.own is not None and name in run.own.column_names:
            columns = (run.own[each].to_pylist() for each in ("client", "split", name))
            for client, where, value in zip(*columns, strict=True):
                if where == split and value is not None and np.isfinite(value):
                    found.setdefault(client, []).append(value)
    return {client: float(np.mean(values)) for client, values in found.items()}
