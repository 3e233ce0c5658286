"""The page of a soak: faults by kind, and the driver's memory and open files over the hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from benchmarks import study
from tests.chaos.faults import FAULTS

WORDS = {
    "actor": "a client actor is killed",
    "hang": "a client actor is stopped for good",
    "slow": "a client actor is stopped for a second",
    "memory": "a client has no memory",
    "driver": "the driver is killed",
    "everything": "the run and its Ray are killed",
    "node": "one node of two is killed",
    "gcs": "Ray's control service (GCS) is killed",
    "disk": "the disk is full, or one call fails",
    "clock": "the clock jumps by an hour or a day",
    "cut": "no way to the bucket for up to 20 s",
}


def write(done: Sequence[Mapping[str, Any]], command: str, seed: int) -> None:
    """Write benchmarks/results/soak.md, soak.json and soak.png."""
    total = sum((Counter(row["strikes"]) for row in done), Counter[str]())
    rows = [{"fault": WORDS[name], "times": total[name]} for name in FAULTS]
    hours = sum(row["seconds"] for row in done) / 3600
    starts = sum(row["starts"] for row in done)
    text = f"""# Soak

{len(done)} runs of the toy in {hours:.1f} hours were disturbed {total.total()} times and started {starts} times. Each
ended with the rows, parameters and client states of the undisturbed run, and no client was blamed.

{study.table(rows)}

![The driver's memory and open files](soak.png)
"""
    draw(done)
    study.write("soak", text, {"runs": list(done)}, command, [seed])


def draw(done: Sequence[Mapping[str, Any]]) -> None:
    import matplotlib.pyplot as plt

    ends = accumulate(row["seconds"] / 3600 for row in done)
    measured = [(end, row) for end, row in zip(ends, done, strict=True) if row["driver_mb"]]  # some ended too soon
    figure, panes = plt.subplots(2, 1, sharex=True, figsize=(7, 4), layout="constrained")
    for pane, key, label in zip(panes, ("driver_mb", "driver_files"), ("memory (MB)", "open files"), strict=True):
        pane.plot([end for end, _ in measured], [row[key] for _, row in measured], ".", markersize=4)
        pane.set_ylabel(label)
        pane.set_ylim(bottom=0)
        pane.spines[["top", "right"]].set_visible(False)
    panes[1].set_xlabel("hours")
    figure.suptitle("Each driver's most memory and most open files")
    figure.savefig(study.RESULTS / "soak.png", dpi=110)
    plt.close(figure)
