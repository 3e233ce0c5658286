"""Numbers of many clients or utterances, in few characters."""

from __future__ import annotations

import numpy as np
from rich.padding import Padding
from rich.table import Table

BAR = 40  # characters
BINS = 10


def histogram(counts: np.ndarray) -> Padding:
    """A histogram of clients by number of utterances, in bins of equal width.

    The bins have equal ratios if the largest client has more than 20 times the median.
    """
    least, most = int(counts.min()), int(counts.max())
    if most > 20 * np.median(counts):
        edges = np.unique(np.rint(np.geomspace(least, most + 1, BINS + 1)).astype(np.int64))
    else:
        edges = np.arange(least, most + 1 + (step := -(-(most + 1 - least) // BINS)), step)
    bars, _ = np.histogram(counts, edges)
    table = Table(title="Utterances a client", title_justify="left", box=None, show_header=False, padding=(0, 1))
    table.add_column("", justify="right")
    table.add_column("")
    for low, high, count in zip(edges[:-1].tolist(), (edges[1:] - 1).tolist(), bars.tolist(), strict=True):
        size = max(1, round(BAR * count / bars.max())) if count else 0
        table.add_row(f"{low:,}" if low == high else f"{low:,} to {high:,}", f"[cyan]{'█' * size}[/cyan] {count:,}")
    return Padding(table, (0, 0, 1, 0))


def spread(values: np.ndarray, form: str) -> str:
    """`1 / 4 5 9 / 30`: minimum, quartiles, maximum."""
    if not len(values):
        return ""
    least, low, middle, high, most = (form.format(value) for value in np.quantile(values, (0, 0.25, 0.5, 0.75, 1)))
    return f"{least} / {low} {middle} {high} / {most}"
