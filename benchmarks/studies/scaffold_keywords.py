"""SCAFFOLD against FedAvg on keywords whose classes are dealt to clients by Dirichlet(0.1), three seeds.

    python -m benchmarks.studies.scaffold_keywords [--seeds 0 1 2] [--runs runs/study-scaffold] [key=value ...]

Both methods take the same steps on the same clients with the same weights. Each method's learning rate is chosen on dev
of seed 0 from LRS. Further overrides hold for every run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import study

CONFIGS = {"SCAFFOLD": "configs/scaffold/embedded.yaml", "FedAvg": "configs/scaffold/baselines/fedavg.yaml"}
LRS = (0.1, 0.3, 0.6)
MARKS = (50, 100, 150, 200, 250)  # rounds


def play(method: str, lr: float, seed: int, runs: Path, overrides: list[str]) -> tuple[dict[str, Any], Path]:
    out = runs / f"{method.lower()}-{lr:g}-{seed}"
    print(f"{method}, lr {lr:g}, seed {seed}: {out}", flush=True)
    settings = [f"seed={seed}", f"data.seed={seed}", f"algorithm.client.lr={lr:g}", *overrides]
    return study.run(CONFIGS[method], settings, out), out


def dev(out: Path, last: int) -> float:
    """Dev accuracy in percent, the mean of the last five scored rounds up to round `last`."""
    scored = [row["dev/accuracy"] for row in study.rounds(out) if row.get("dev/accuracy") is not None]
    rounds = [row["round"] for row in study.rounds(out) if row.get("dev/accuracy") is not None]
    kept = [value for value, at in zip(scored, rounds, strict=True) if at <= last][-5:]
    return sum(kept) / len(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-scaffold")
    chosen = parser.parse_args()
    tuning, rows, kept = [], [], {}
    for method in CONFIGS:
        outs = {lr: play(method, lr, 0, chosen.runs, chosen.overrides)[1] for lr in LRS}
        scores = {lr: dev(out, MARKS[-1]) for lr, out in outs.items()}
        tuning.append({"method": method, **{f"lr {lr:g}": f"{score:.1f}" for lr, score in scores.items()}})
        best = max(scores, key=lambda lr: scores[lr])
        found = [play(method, best, seed, chosen.runs, chosen.overrides) for seed in chosen.seeds]
        kept[method] = {"lr": best, "dev": scores, "best": [results["best"] for results, _ in found]}
        row: dict[str, Any] = {"method": method, "lr": best}
        row |= {f"dev, round {mark}": study.spread([dev(out, mark) for _, out in found]) for mark in MARKS}
        row |= {"test, best round": study.spread([results["best"]["test/accuracy"] for results, _ in found])}
        row |= {"best rounds": ", ".join(str(results["best"]["round"]) for results, _ in found)}
        rows.append(row | {"MB": f"{found[0][0]['traffic/total_bytes'] / 1e6:.0f}"})
    text = (
        "# SCAFFOLD against FedAvg\n\n50 clients, ten words dealt by Dirichlet(0.1), ten clients a round, four local "
        "epochs, CRNN-Lite. Accuracy in\npercent, mean ± SD over seeds; dev is the mean of the last five scored "
        "rounds.\n\n"
        f"{study.table(rows)}\n\nDev accuracy of seed 0 by learning rate, from which each method's rate is chosen:\n\n"
        f"{study.table(tuning)}"
    )
    command = " ".join(["python -m benchmarks.studies.scaffold_keywords", *chosen.overrides])
    study.write("scaffold_keywords", text, {"found": kept}, command, chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
