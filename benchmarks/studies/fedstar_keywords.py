"""FedSTAR on embedded keywords against the supervised federation with the same labels: three trials, 5 to 30 clients.

    python -m benchmarks.studies.fedstar_keywords [--seeds 0 1 2] [--only labels half threshold]
                                                  [--runs runs/study-fedstar]

Each trial draws a corpus and trains from a new seed. Scores are those of the best round by dev, on new speakers.
`beta = 0` takes the same steps as FedSTAR without its pseudo-labels: its gain over the supervised federation, which
takes one pass over the labelled clips a round, comes from the steps alone. So does the gain of ten times the rounds.
The same command resumes; finished runs are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks import study
from fedray.report.canvas import COLOURS, STYLE

Arm = tuple[str, list[str]]  # configuration, overrides
TOLD = {
    "threshold": "Threshold",
    "train/labels_kept": "Pseudo-labels kept (%)",
    "train/label_accuracy": "Right (%)",
}  # of a round
CLIENTS = (5, 10, 15, 30)
FEDERATIONS = {"supervised": "baselines/supervised", "FedSTAR": "embedded"}
THRESHOLDS: dict[str, list[str]] = {
    "rising, 0.5 to 0.9": [],
    "fixed at 0.5": ["algorithm.threshold={first: 0.5, last: 0.5}"],
    "fixed at 0.9": ["algorithm.threshold={first: 0.9, last: 0.9}"],
    "none used (beta = 0)": ["algorithm.beta=0"],
}
LITTLE, HALF = "data.labelled.share=0.03", "data.labelled.share=0.5"


def arms() -> dict[str, dict[str, Arm]]:
    """Part -> arm -> configuration and overrides."""
    each: dict[str, Arm] = {}
    for count in CLIENTS:
        each |= {
            f"N = {count}, {name}": (file, [LITTLE, f"data.clients.count={count}"])
            for name, file in FEDERATIONS.items()
        }
    return {
        "labels": each,
        "half": {
            "N = 15, supervised": (FEDERATIONS["supervised"], [HALF]),
            "N = 15, FedSTAR": ("embedded", [HALF]),
        },
        "threshold": {
            "rising, 0.5 to 0.9": each["N = 15, FedSTAR"],
            **{name: ("embedded", overrides) for name, overrides in THRESHOLDS.items() if overrides},
            "supervised": each["N = 15, supervised"],
            "supervised, ten times the rounds": (FEDERATIONS["supervised"], ["rounds=200", "evaluation.every=20"]),
        },
    }


def play(arm: Arm, seed: int, runs: Path) -> dict[str, Any]:
    """The results of a run, and by round the threshold and the shares of pseudo-labels kept and right."""
    config, overrides = arm
    out = (
        runs
        / f"seed-{seed}"
        / "-".join([Path(config).name, *("".join(filter(str.isalnum, text)) for text in overrides)])
    )
    print(f"seed {seed}, {' '.join([config, *overrides])}: {out}", flush=True)
    results = study.run(f"configs/fedstar/{config}.yaml", [f"seed={seed}", f"data.seed={seed}", *overrides], out)
    told = {key: [row.get(key) for row in study.rounds(out)] for key in TOLD}
    return {"best": results["best"], "rounds": told}


def score(results: Sequence[dict[str, Any]]) -> list[float]:
    return [one["best"]["test/accuracy"] for one in results]


def by_clients(found: dict[str, list[dict[str, Any]]], share: str) -> str:
    """One row per number of clients; the gain is over the same trial of the supervised federation."""
    rows = []
    for count in dict.fromkeys(arm.partition(",")[0] for arm in found):
        scores = {name: score(found[f"{count}, {name}"]) for name in FEDERATIONS}
        gains = [after - before for before, after in zip(scores["supervised"], scores["FedSTAR"], strict=True)]
        row = {"labels": share, "clients": count} | {name: study.spread(values) for name, values in scores.items()}
        rows.append(row | {"gain": study.spread(gains)})
    return study.table(rows)


def thresholds(found: dict[str, list[dict[str, Any]]]) -> str:
    """One row per threshold: the shares of pseudo-labels kept and right in the first and the last five rounds."""
    rows = []
    for arm, results in found.items():
        row = {"threshold": arm, "test accuracy": study.spread(score(results))}
        for name, key in (("labels kept (%)", "train/labels_kept"), ("labels correct (%)", "train/label_accuracy")):
            for when, part in (("first", slice(None, 5)), ("last", slice(-5, None))):
                known = [value for one in results for value in one["rounds"][key][part] if value is not None]
                row[f"{name}, {when} 5 rounds"] = f"{mean(known):.1f}" if known else "none"
        rows.append(row)
    return study.table(rows)


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Plot the threshold, the share of pseudo-labels kept and their accuracy by round, mean over trials."""
    star = {arm: results for arm, results in found.items() if not arm.startswith("supervised")}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 3), layout="constrained")
        for place, (key, title) in enumerate(TOLD.items(), 1):
            axes = figure.add_subplot(1, 3, place)
            for colour, (arm, results) in zip(COLOURS, star.items(), strict=False):
                per_round = zip(*(one["rounds"][key] for one in results), strict=True)
                rounds = [[value for value in values if value is not None] for values in per_round]
                axes.plot(
                    range(1, len(rounds) + 1),
                    [mean(values) if values else nan for values in rounds],
                    color=colour,
                    label=arm,
                )
            axes.set_title(title)
            axes.set_xlabel("round")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(star))
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar")
    parser.add_argument("--only", nargs="+", choices=list(arms()), default=list(arms()))
    chosen = parser.parse_args()
    found = {
        part: {name: [play(arm, seed, chosen.runs) for seed in chosen.seeds] for name, arm in each.items()}
        for part, each in arms().items()
        if part in chosen.only
    }
    tables = []
    if "labels" in found:
        tables.append(by_clients(found["labels"], "3 %"))
        both = {
            name: mean(mean(score(found["labels"][f"N = {count}, {name}"])) for count in CLIENTS)
            for name in FEDERATIONS
        }
        gain = both["FedSTAR"] - both["supervised"]
        tables.append(
            f"FedSTAR's gain over the supervised federation at L = 3 %, mean over N and trials: {gain:.1f} points."
        )
    if "half" in found:
        tables.append(by_clients(found["half"], "50 %"))
    if "threshold" in found:
        tables.append(thresholds(found["threshold"]))
        draw(found["threshold"], study.RESULTS / "fedstar_keywords.png")
    text = "# FedSTAR on embedded keywords\n\nTest accuracy in percent, mean ± SD over trials.\n\n" + "\n\n".join(
        tables
    )
    command = study.command(parser, chosen)
    command = "make study-fedstar" if command == parser.prog else command
    study.write("fedstar_keywords", text, {"found": found}, command, chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
