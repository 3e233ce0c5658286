"""FedSTAR on embedded keywords beside the supervised federation with the same labels: three trials, 5 to 30 clients.

    python benchmarks/fedstar_keywords.py [--seeds 0 1 2] [--runs runs/study-fedstar] [--only labels half threshold network]

A trial has its own corpus and its own training. Scored is the model of the last round on speakers that nobody has heard. `beta = 0` takes
the same steps as FedSTAR and makes nothing of its pseudo-labels: what it gains over the supervised federation, which takes one pass over
the labelled clips a round, is gained by steps alone. Runs that are finished are kept; the same command goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import study

Arm = tuple[str, list[str]]  # configuration, overrides
CLIENTS = (5, 10, 15, 30)
FEDERATIONS: dict[str, Arm] = {
    "supervised": ("supervised", []),
    "beta = 0": ("embedded", ["algorithm.beta=0"]),
    "FedSTAR": ("embedded", []),
}


def arms() -> dict[str, dict[str, Arm]]:
    """Part -> arm -> what is run."""

    def by_clients(share: float, clients: Sequence[int]) -> dict[str, Arm]:
        labels = f"data.labelled.share={share}"
        return {
            f"L = {share:.0%}, N = {count}, {name}": (file, [labels, f"data.clients.count={count}", *own])
            for count in clients
            for name, (file, own) in FEDERATIONS.items()
        }

    fixed = {f"fixed at {tau}": ("embedded", [f"algorithm.threshold={{first: {tau}, last: {tau}}}"]) for tau in (0.5, 0.9)}
    return {
        "labels": by_clients(0.03, CLIENTS),
        "half": by_clients(0.5, [15]),
        "threshold": {"rising, 0.5 to 0.9": ("embedded", []), **fixed, "the paper's T = 4": ("embedded", ["algorithm.temperature=4"])},
    }


def play(part: str, arm: str, seed: int, runs: Path) -> dict[str, Any]:
    """The results of a run, and of its rounds the threshold, the share of pseudo-labels kept and how many of them were right."""
    config, own = arms()[part][arm]
    out = runs / f"seed-{seed}" / part / "".join(letter if letter.isalnum() else "-" for letter in arm.lower())
    print(f"seed {seed}, {part}, {arm}: {out}", flush=True)
    results = study.run(f"configs/fedstar/{config}.yaml", [f"seed={seed}", f"data.seed={seed}", *own], out)
    rows = study.rounds(out)
    told = {key: [row.get(key) for row in rows] for key in ("settings/threshold", "train/labels_kept", "train/label_accuracy")}
    return {"final": results["final"], "best": results["best"], "rounds": told}


def spread(values: Sequence[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"
