"""FedMLAC's personal models where they belong: on what each client holds out, beside the common test of new speakers.

    python -m benchmarks.studies.fedmlac_own [--seeds 0 1 2] [--rounds 100] [--actors 1] [--runs DIR]
                                             [--clients speakers "Dirichlet 0.1"] [--only FedAvg FedMLAC]

A client is a speaker, or has skewed classes (Dirichlet). It keeps a quarter of its 40 clips back. All clients have one
learning rate. FedAvg's personal score is that of the global model after the client's training. Writes
benchmarks/results/fedmlac_own.md and .json; a choice of rounds and clients is part of the name
(fedmlac_own_400_speakers). The same command resumes; finished runs are kept.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study
from fedray.report.bootstrap import Counts

METHODS = {
    "FedAvg": "baselines/fedavg",
    "Ditto": "baselines/ditto",
    "isolated": "ablations/isolated",
    "FedMLAC": "embedded",
}
CLIENTS = {"speakers": "{by: speaker}"} | {
    f"Dirichlet {alpha:g}": f"{{by: dirichlet, count: 50, alpha: {alpha}, min_utterances: 2}}"
    for alpha in (0.1, 0.3, 1.0)
}
ROUNDS = 100
REFERENCE, OWN, COMMON = "FedAvg", "own", "test"


def play(clients: str, method: str, seed: int, settings: Sequence[str], runs: Path) -> dict[str, Any]:
    """The personal accuracy of each client on what it holds out and on test, that of the shared model, and dev."""
    out = runs / f"seed-{seed}" / folder(clients) / method.lower()
    print(f"seed {seed}, {clients}, {method}: {out}", flush=True)
    common = [f"seed={seed}", f"data.seed={seed}", "data.own_share=0.25", f"data.clients={CLIENTS[clients]}"]
    results = study.run(f"configs/fedmlac/{METHODS[method]}.yaml", [*common, *settings], out)
    found: dict[str, dict[str, float]] = {OWN: {}, COMMON: {}}
    for row in csv.DictReader((out / "personal.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t"):
        if row["split"] in found and row["accuracy"]:
            found[row["split"]][row["client"]] = float(row["accuracy"])
    in_rounds = [(row["round"], row["personal/own_accuracy"]) for row in study.rounds(out)
                 if row.get("personal/own_accuracy") is not None]  # fmt: skip
    return {"personal": found, "shared": results["best"], "rounds": in_rounds}


def folder(clients: str) -> str:
    """The name of a kind of clients in paths: "Dirichlet 0.1" is dirichlet-0.1."""
    return clients.lower().replace(" ", "-")


def counts(results: Sequence[dict[str, Any]], split: str) -> list[Counts]:
    """The clients' accuracies as counts, in which every client weighs the same."""
    return [{client: (100, score) for client, score in one["personal"][split].items()} for one in results]


def average(one: dict[str, Any], split: str) -> float:
    """The mean over a run's clients."""
    return mean(one["personal"][split].values())


def averaged(one: dict[str, Any]) -> dict[str, Any]:
    """A run for the JSON file: without each client's scores."""
    return {**one, "personal": {split: average(one, split) for split in (OWN, COMMON)}}


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """A row for each method."""
    rows = []
    for method, results in found.items():
        row = {"method": method}
        for title, split in (("own clips", OWN), ("common test", COMMON)):
            row[title] = study.spread([average(one, split) for one in results])
            if REFERENCE in found:
                before = counts(found[REFERENCE], split)
                change = "" if method == REFERENCE else str(study.change(before, counts(results, split), "points"))
                row[f"{title}, beside {REFERENCE}"] = change
        row["shared model, common test"] = study.spread([one["shared"]["test/accuracy"] for one in results])
        ends = [[score for _, score in one["rounds"]] for one in results]
        half = [scores[(len(scores) - 1) // 2] for scores in ends]
        row["own clips of cohorts, half time and end"] = f"{study.spread(half)}, {study.spread([s[-1] for s in ends])}"
        rows.append(row)
    return study.table(rows)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac-own", rounds=ROUNDS)
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS), help="methods")
    chosen = parser.parse_args()
    settings = [f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        clients: {method: [] for method in chosen.only} for clients in chosen.clients
    }
    for seed in chosen.seeds:
        for clients, methods in found.items():
            for method, results in methods.items():
                results.append(play(clients, method, seed, settings, chosen.runs))
    text = f"""# FedMLAC: whom do personal models serve?

Embedded keywords, 50 clients, ten of them a round, {chosen.rounds} rounds. Personal accuracy in percent after the last
round, on the clips that each client holds out ("own clips") and on a common test of new speakers: mean over clients,
mean ± SD over seeds. Differences to FedAvg after the client's training: points, 95 % intervals by paired bootstrap over
clients.
"""
    text += "".join(f"\n## Clients: {clients}\n\n{table(methods)}\n" for clients, methods in found.items())
    print(text)
    if len(chosen.seeds) > 1:
        numbers = {
            clients: {method: [averaged(one) for one in results] for method, results in methods.items()}
            for clients, methods in found.items()
        }
        names = [str(chosen.rounds)] if chosen.rounds != ROUNDS else []
        names += [folder(clients) for clients in chosen.clients] if chosen.clients != list(CLIENTS) else []
        page = "_".join(["fedmlac_own", *names])
        study.write(page, text, {"found": numbers}, study.command(parser, chosen), chosen.seeds)


if __name__ == "__main__":
    main()
