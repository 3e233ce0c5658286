"""FedSTAR on embedded keywords beside the supervised federation with the same labels: three trials, 5 to 30 clients.

    python benchmarks/fedstar_keywords.py [--seeds 0 1 2] [--runs runs/study-fedstar] [--only labels half threshold network]

A trial has its own corpus and its own training. Scored is the model of the last round on speakers that nobody has heard. `beta = 0` takes
the same steps as FedSTAR and makes nothing of its pseudo-labels: what it gains over the supervised federation, which takes one pass over
the labelled clips a round, is gained by steps alone. Runs that are finished are kept; the same command goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import nan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib
import study
from matplotlib.figure import Figure

from fedray.report.canvas import COLOURS, STYLE

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


def score(results: Sequence[dict[str, Any]]) -> list[float]:
    return [one["best"]["test/accuracy"] for one in results]


def by_clients(found: dict[str, list[dict[str, Any]]], share: float, clients: Sequence[int]) -> str:
    """A row a number of clients; the gain is that over the same trial of the supervised federation."""
    rows = []
    for count in clients:
        scores = {name: score(found[f"L = {share:.0%}, N = {count}, {name}"]) for name in FEDERATIONS}
        gains = {
            name: [after - before for before, after in zip(scores["supervised"], values, strict=True)] for name, values in scores.items()
        }
        row = {"L": f"{share:.0%}", "N": count} | {name: spread(values) for name, values in scores.items()}
        rows.append(row | {"gain": spread(gains["FedSTAR"]), "of which steps": spread(gains["beta = 0"])})
    return study.table(rows)


def thresholds(found: dict[str, list[dict[str, Any]]]) -> str:
    """A row a threshold: the share of pseudo-labels kept, and how many of them were right, in the first and the last ten rounds."""
    rows = []
    for arm, results in found.items():
        row = {"threshold": arm, "test accuracy": spread(score(results))}
        for name, key in (("kept", "train/labels_kept"), ("right", "train/label_accuracy")):
            for when, part in (("first", slice(None, 10)), ("last", slice(-10, None))):
                known = [value for one in results for value in one["rounds"][key][part] if value is not None]
                row[f"{name}, {when} 10"] = f"{mean(known):.1f}" if known else "none"
        rows.append(row)
    return study.table(rows)


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """The threshold, the share of pseudo-labels kept and their accuracy over the rounds, mean over trials."""
    panels = {
        "settings/threshold": "Threshold",
        "train/labels_kept": "Pseudo-labels kept (%)",
        "train/label_accuracy": "Of these right (%)",
    }
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 3), layout="constrained")
        for place, (key, title) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(1, 3, place)
            for colour, (arm, results) in zip(COLOURS, found.items(), strict=False):
                per_round = zip(*(one["rounds"][key] for one in results), strict=True)
                rounds = [[value for value in values if value is not None] for values in per_round]
                axes.plot(range(1, len(rounds) + 1), [mean(values) if values else nan for values in rounds], color=colour, label=arm)
            axes.set_title(title)
            axes.set_xlabel("round")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(found))
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-fedstar", help="where the run folders are kept")
    parser.add_argument("--only", nargs="+", choices=list(arms()), default=list(arms()))
    chosen = parser.parse_args()
    found = {
        part: {arm: [play(part, arm, seed, chosen.runs) for seed in chosen.seeds] for arm in arms()[part]}
        for part in arms()
        if part in chosen.only
    }
    tables = []
    if "labels" in found:
        tables.append(by_clients(found["labels"], 0.03, CLIENTS))
        supervised, star = (
            [score(found["labels"][f"L = 3%, N = {count}, {name}"]) for count in CLIENTS] for name in ("supervised", "FedSTAR")
        )
        gain = mean(map(mean, star)) - mean(map(mean, supervised))
        tables.append(f"FedSTAR's gain over the supervised federation at L = 3 %, mean over N and trials: {gain:.1f} points.")
    if "half" in found:
        tables.append(by_clients(found["half"], 0.5, [15]))
    if "threshold" in found:
        tables.append(thresholds(found["threshold"]))
        draw(found["threshold"], study.ROOT / "benchmarks" / "fedstar_keywords.png")
    text = "# FedSTAR on embedded keywords\n\nTest accuracy in percent, mean ± SD over trials.\n\n" + "\n\n".join(tables)
    study.write("fedstar_keywords", text, {"found": found}, "make study-fedstar", chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
