"""The picture of `fedray data`: text against audio, characters a second by client, levels, lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from fedray.data.analysis.audit import SILENT, Audit
from fedray.report import canvas
from fedray.report.canvas import COLOURS, GREY, INK, WIDTH, Drawing
from fedray.storage.files import write_whole

POINTS = 4000  # utterances in a scatter plot
BINS = 30


def save(audit: Audit, name: str, path: Path) -> Path:
    """Draw the audit of the corpus `name` as a PNG; returns its path."""
    with canvas.style():
        drawing = Drawing.of(picture(audit, name))
    write_whole(path, drawing.png)
    return path


def picture(audit: Audit, name: str) -> Canvas:
    """Four panels."""
    drawn = Canvas(figsize=(2 * WIDTH, 6.4), layout="constrained")
    drawn.suptitle(f"Audio and text of {name}", x=0.01, ha="left", weight="bold")
    axes = drawn.subplots(2, 2)
    for panel, where in zip((_texts, _clients, _levels, _lengths), axes.flat, strict=True):
        panel(audit, where)
    return drawn


def _texts(audit: Audit, axes: Axes) -> None:
    axes.set_title("Text against audio, by part")
    axes.set_xlabel("seconds of an utterance")
    axes.set_ylabel("characters")
    known = np.flatnonzero(~np.isnan(audit.rates))
    if not len(known):
        _none(axes, "no transcripts")
        return
    drawn = np.random.default_rng(0).permutation(known)[:POINTS]
    seconds = audit.manifest.array("seconds")
    for number, (part, colour) in enumerate(zip(audit.names, COLOURS, strict=False)):
        mine = drawn[audit.part_of[drawn] == number]
        axes.scatter(
            seconds[mine], (audit.rates * seconds)[mine], s=5, alpha=0.5, color=colour, linewidths=0, label=part
        )
    ends = np.array([seconds[drawn].min(), seconds[drawn].max()])
    for factor, style in ((1.0, "-"), (1 / 3, ":"), (3.0, ":")):
        label = {1.0: "median", 3.0: "3 times more, or fewer"}.get(factor)
        axes.plot(ends, factor * np.median(audit.rates[known]) * ends, style, color=INK, linewidth=0.8, label=label)
    canvas.logarithmic(axes, "x")
    canvas.logarithmic(axes, "y")
    axes.legend(fontsize=7, markerscale=2, loc="lower right")


def _clients(audit: Audit, axes: Axes) -> None:
    axes.set_title("Characters a second, by client")
    axes.set_xlabel("characters a second (median of a client)")
    axes.set_ylabel("clients")
    rates = audit.client_rates[~np.isnan(audit.client_rates)]
    if not len(rates):
        _none(axes, "no transcripts")
        return
    axes.hist(rates, BINS, color=COLOURS[0], alpha=0.85)
    axes.axvline(float(np.median(rates)), color=INK, linewidth=0.8)


def _levels(audit: Audit, axes: Axes) -> None:
    axes.set_title("Level and peak of decoded utterances")
    axes.set_xlabel("dB of full scale")
    axes.set_ylabel("utterances")
    if not (heard := audit.sound):
        _none(axes, "nothing was decoded")
        return
    power = 10 * np.log10([max(one.power, SILENT) for one in heard])
    peak = 20 * np.log10([max(one.peak, 1e-4) for one in heard])
    edges = np.linspace(min(power.min(), peak.min()), max(0.5, peak.max()), BINS + 1).tolist()
    for values, colour, label in ((power, COLOURS[0], "level"), (peak, COLOURS[1], "peak; 0 dB: clipped")):
        axes.hist(values, edges, alpha=0.6, color=colour, label=label)
    axes.legend(fontsize=7)


def _lengths(audit: Audit, axes: Axes) -> None:
    axes.set_title("Length of files: decoded less header and manifest")
    axes.set_xlabel("decoded seconds")
    axes.set_ylabel("difference in seconds")
    if not (files := audit.files):
        _none(axes, "nothing was decoded to its end")
        return
    rows = np.array([one.row for one in files])
    decoded = np.array([one.decoded for one in files])
    ends = audit.ends(rows)
    headers = np.array([np.nan if one.header is None else one.header for one in files])
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.scatter(decoded, decoded - ends, s=9, color=COLOURS[0], alpha=0.6, linewidths=0, label="to the manifest")
    axes.scatter(decoded, decoded - headers, s=9, color=COLOURS[1], alpha=0.6, linewidths=0, label="to the header")
    least = max(0.2, float(np.nanmax(np.abs(np.concatenate([decoded - ends, decoded - headers])))) * 1.1)
    axes.set_ylim(-least, least)
    axes.legend(fontsize=7)


def _none(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])
