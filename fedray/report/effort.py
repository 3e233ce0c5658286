"""What runs spend on their scores, and whether the compared groups spend the same.

An axis (`fedray.report.figures.AXES`) counts rounds, virtual hours, hours and energy of devices, visits of clients,
gradient steps or bytes, each from the start of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import numpy as np

from fedray.report.groups import Group
from fedray.report.recorded import Run
from fedray.report.words import number

TOTALS = {  # axis -> the column of metrics.jsonl that holds its total after each round
    "round": "round",
    "hours": "virtual/hours",
    "device_hours": "virtual/device_hours",
    "energy": "virtual/energy_wh",
    "bytes": "traffic/total_bytes",
}
SAME = 1.05  # groups spend the same if the largest value is at most this many times the smallest


def spent(run: Run, axis: str) -> np.ndarray:
    """What a run has spent after each of its rows, float64 [rows]; NaN where the rows do not record it.

    Steps are the gradient steps behind the updates, those of the clients and of the server. Bytes are in GB.
    """
    if axis in TOTALS:
        return run.column(TOTALS[axis]) / (1e9 if axis == "bytes" else 1)
    answered = run.column("clients/ok")
    if axis == "visits":
        return np.cumsum(answered)
    steps, of_server = run.column("train/steps"), run.column("server/steps")
    if np.isnan(steps).all():
        return steps
    return np.cumsum(np.nan_to_num(steps) * answered + np.nan_to_num(of_server))


def unequal(groups: Sequence[Group]) -> list[str]:
    """A sentence for each amount in which the groups differ, with the least and the most."""
    amounts = {
        "gradient steps": ({group: _last(group, "steps") for group in groups}, ""),
        "client learning rates": ({group: _rate(group) for group in groups}, "lr/client"),
        "traffic in GB": ({group: _last(group, "bytes") for group in groups}, ""),
    }
    found = []
    for name, (values, metric) in amounts.items():
        known = {group: value for group, value in values.items() if value is not None}
        if len(known) < 2:
            continue
        least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
        if known[most] > SAME * known[least]:
            ends = (f"{number(known[group], metric)} ({group.label})" for group in (least, most))
            found.append(f"The rows differ in {name}: {' to '.join(ends)}.")
    return found


def _last(group: Group, axis: str) -> float | None:
    """What a run of the group spent in total, mean over its runs; None if a run does not record it."""
    ends = [spent(run, axis)[-1:] for run in group.finished or group.runs]
    values = np.concatenate(ends) if ends else np.empty(0)
    return float(values.mean()) if len(values) and not np.isnan(values).any() else None


def _rate(group: Group) -> float | None:
    """The clients' learning rate in the first round, mean over the group's runs."""
    rates = [run.rows[0]["lr/client"] for run in group.runs if run.rows and run.rows[0].get("lr/client") is not None]
    return mean(rates) if rates else None
