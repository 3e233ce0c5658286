"""SCAFFOLD against FedAvg on keywords whose classes are dealt to clients by Dirichlet(0.1), three seeds.

    python -m benchmarks.studies.scaffold_keywords [--seeds 0 1 2] [--runs runs/study-scaffold] [key=value ...]

Both methods take the same steps on the same clients with the same weights, first with 10 of 50 clients a round, then
with all of them, so that no control variate is out of date. Each method's learning rate is chosen on dev of seed 0 from
LRS. Further overrides hold for every run.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import study

CONFIGS = {"SCAFFOLD": "configs/scaffold/embedded.yaml", "FedAvg": "configs/scaffold/baselines/fedavg.yaml"}
LRS = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class Part:
    """Runs of both methods with the same clients per round. All parts train as many clients in total."""

    clients: int  # per round, of 50
    rounds: int

    @property
    def settings(self) -> list[str]:
        return [f"cohort.size={self.clients}", f"rounds={self.rounds}", f"evaluation.every={self.rounds // 50}"]

    @property
    def marks(self) -> list[int]:
        """Rounds at which the table shows dev."""
        return [self.rounds * fifth // 5 for fifth in range(1, 6)]


PARTS = (Part(clients=10, rounds=250), Part(clients=50, rounds=50))


def play(
    part: Part, method: str, lr: float, seed: int, runs: Path, overrides: list[str]
) -> tuple[dict[str, Any], Path]:
    out = runs / f"{method.lower()}-{part.clients}-{lr:g}-{seed}"
    print(f"{method}, {part.clients} clients a round, lr {lr:g}, seed {seed}: {out}", flush=True)
    settings = [f"seed={seed}", f"data.seed={seed}", f"algorithm.client.lr={lr:g}", *part.settings, *overrides]
    return study.run(CONFIGS[method], settings, out), out


def dev(out: Path, last: int) -> float:
    """Dev accuracy in percent, the mean of the last five scored rounds up to round `last`."""
    scored = [(row["round"], row["dev/accuracy"]) for row in study.rounds(out) if row.get("dev/accuracy") is not None]
    kept = [value for at, value in scored if at <= last][-5:]
    return sum(kept) / len(kept)


def played(part: Part, chosen: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Two tables of a part, and the numbers behind them."""
    tuning, rows, kept = [], [], {}
    for method in CONFIGS:
        outs = {lr: play(part, method, lr, 0, chosen.runs, chosen.overrides)[1] for lr in LRS}
        scores = {lr: dev(out, part.rounds) for lr, out in outs.items()}
        tuning.append({"method": method, **{f"lr {lr:g}": f"{score:.1f}" for lr, score in scores.items()}})
        best = max(scores, key=lambda lr: scores[lr])
        found = [play(part, method, best, seed, chosen.runs, chosen.overrides) for seed in chosen.seeds]
        kept[method] = {"lr": best, "dev": scores, "best": [results["best"] for results, _ in found]}
        row: dict[str, Any] = {"method": method, "lr": best}
        row |= {f"dev, round {mark}": study.spread([dev(out, mark) for _, out in found]) for mark in part.marks}
        row |= {"test, best round": study.spread([results["best"]["test/accuracy"] for results, _ in found])}
        row |= {"best rounds": ", ".join(str(results["best"]["round"]) for results, _ in found)}
        rows.append(row | {"MB": f"{found[0][0]['traffic/total_bytes'] / 1e6:.0f}"})
    text = (
        f"## {part.clients} of 50 clients a round\n\n{study.table(rows)}\n\n"
        f"Each method's learning rate is the best by dev accuracy of seed 0:\n\n{study.table(tuning)}"
    )
    return text, kept


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-scaffold")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    chosen = parser.parse_args()
    texts, kept = [], {}
    for part in PARTS:
        text, kept[f"{part.clients} clients"] = played(part, chosen)
        texts.append(text)
    text = (
        "# SCAFFOLD against FedAvg\n\n50 clients, ten words dealt by Dirichlet(0.1), four local epochs, CRNN-Lite. "
        "Accuracy in percent, mean ± SD over\nseeds; dev is the mean of the last five scored rounds.\n\n"
        + "\n\n".join(texts)
    )
    command = " ".join(["python -m benchmarks.studies.scaffold_keywords", *chosen.overrides])
    study.write("scaffold_keywords", text, {"found": kept}, command, chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
