"""FedMLAC's personal models scored on what each client holds out, and on the common test of new speakers.

    python -m benchmarks.studies.fedmlac_own [--seeds 0 1 2] [--rounds 100] [--clips 40] [--actors 1] [--runs DIR]
                                             [--clients speakers "Dirichlet 0.1"] [--arms FedAvg FedMLAC]

A client is a speaker, or has skewed classes (Dirichlet). It holds out a quarter of its clips. All clients have one
learning rate. FedAvg's personal score is that of the global model after the client's training; FedMLAC's plug-in is
scored after it too, alone and together with the personal model. Writes benchmarks/results/fedmlac_own.md and .json;
other rounds, clips or clients become part of the name (fedmlac_own_400_speakers, fedmlac_own_300-clips). The same
command resumes the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page. Methods
and seeds that were not chosen stay on the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study
from fedray.report.bootstrap import Counts
from fedray.report.discover import find

METHODS = {
    "FedAvg": "baselines/fedavg",
    "Ditto": "baselines/ditto",
    "isolated": "ablations/isolated",
    "FedMLAC": "embedded",
}
CLIENTS = {"speakers": "{by: speaker}"} | {
    f"Dirichlet {alpha:g}": f"{{by: dirichlet, count: 50, alpha: {alpha}, min_utterances: 2}}"
    for alpha in (0.1, 0.3, 0.5, 1.0)
}
ROUNDS, CLIPS = 100, 40
WHOLE = 100_000  # the items of a client's count; its accuracy says how many are right
REFERENCE, OWN, COMMON = "FedAvg", "own", "test"
ALSO = {"plugin": "plug-in, own clips", "both": "both, own clips"}  # scored for methods with a plug-in
TWO_MODELS = ("isolated", "FedMLAC")


def play(clients: str, method: str, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The personal accuracy of each client on what it holds out and on test, that of the shared model, and dev."""
    settings = [f"seed={seed}", f"data.seed={seed}", "data.own_share=0.25", f"data.clients={CLIENTS[clients]}"]
    settings += [f"rounds={chosen.rounds}", f"data.options.client_utterances={chosen.clips}"]
    settings += [f"engine.actors={chosen.actors}"]
    also = [*ALSO] if method in TWO_MODELS else []
    settings += [f"algorithm.also_score=[{','.join(also)}]"] if also else []
    results = study.run(f"configs/fedmlac/{METHODS[method]}.yaml", settings, place)
    (run,) = find([place])
    scores = {split: run.of_clients(f"personal/{split}/accuracy") for split in (OWN, COMMON)}
    scores |= {name: run.of_clients(f"personal/{OWN}/{name}_accuracy") for name in also}
    in_rounds = [(row["round"], row["personal/own_accuracy"]) for row in study.rounds(place)
                 if row.get("personal/own_accuracy") is not None]  # fmt: skip
    found = {split: packed(by_client) for split, by_client in scores.items()}
    return {"seed": seed, "personal": found, "shared": results["best"], "rounds": in_rounds}


def packed(scores: Mapping[str, float]) -> str:
    """The clients' accuracies in percent as counts, in which all clients have equal weight."""
    return study.packed({client: (WHOLE, round(WHOLE * score / 100)) for client, score in scores.items()})


def folder(clients: str) -> str:
    """The name of a kind of clients in paths: "Dirichlet 0.1" is dirichlet-0.1."""
    return clients.lower().replace(" ", "-")


def counts(results: Sequence[dict[str, Any]], split: str) -> list[Counts]:
    """The counts of each run, unpacked: those that `packed` made."""
    return [study.unpacked(one["personal"][split]) for one in results]


def average(one: dict[str, Any], split: str) -> float:
    """The mean over a run's clients, in percent."""
    (found,) = counts([one], split)
    return 100 * mean(right / whole for whole, right in found.values())


def table(found: study.Found) -> str:
    """A row for each method."""
    rows = []
    for method, results in found.items():
        row = {"method": method}
        for title, split in (("own clips", OWN), ("common test", COMMON)):
            row[title] = study.spread([average(one, split) for one in results])
            before, after = study.common(found.get(REFERENCE, []), results)
            change = study.change(counts(before, split), counts(after, split), "points") if before else ""
            row[f"{title}, against {REFERENCE}"] = "" if method == REFERENCE else str(change)
        for name, title in ALSO.items():
            there = all(name in one["personal"] for one in results)
            row[title] = study.spread([average(one, name) for one in results]) if there else ""
        # The model as it is broadcast, without training on the client.
        row["shared model, own clips"] = study.spread([one["shared"]["own/accuracy"] for one in results])
        row["shared model, common test"] = study.spread([one["shared"]["test/accuracy"] for one in results])
        row["own clips of cohorts, halfway and at the end"] = study.half_and_end(results)
        rows.append(row | {"seeds": ", ".join(str(one["seed"]) for one in results)})
    return study.table(rows)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac-own", rounds=ROUNDS)
    parser.add_argument("--clips", type=int, default=CLIPS, help="of each client")
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    study.choose_arms(parser)
    chosen = parser.parse_args()
    study.check_arms(parser, chosen, METHODS)
    names = [str(chosen.rounds)] if chosen.rounds != ROUNDS else []
    names += [f"{chosen.clips}-clips"] if chosen.clips != CLIPS else []
    names += [folder(clients) for clients in chosen.clients] if chosen.clients != list(CLIENTS) else []
    page = "_".join(["fedmlac_own", *names])
    same = {"rounds": chosen.rounds, "clips": chosen.clips}
    before = study.page_before(page, **same).get("found", {})
    found = {clients: played(clients, before.get(clients, {}), chosen) for clients in chosen.clients}
    text = f"""# FedMLAC: whom do personal models serve?

Embedded keywords, 50 clients with {chosen.clips} clips each, ten clients a round, {chosen.rounds} rounds. Personal
accuracy in percent after the last round, on the clips that each client holds out ("own clips") and on a common test of
new speakers: mean over clients, mean ± SD over seeds. Differences from FedAvg after the client's training are in
points, with 95 % intervals from a paired bootstrap over clients.
"""
    text += "".join(f"\n## Clients: {clients}\n\n{table(methods)}\n" for clients, methods in found.items())
    print(text)
    command = study.command(parser, chosen, arms=study.on_page(METHODS, *found.values()))
    study.write(page, text, {**same, "found": found}, command, study.seeds(*found.values()))


def played(clients: str, known: study.Found, chosen: argparse.Namespace) -> study.Found:
    """The runs of a kind of clients by method."""
    length = f"{chosen.rounds}-rounds-{chosen.clips}-clips"

    def place(method: str, seed: int) -> Path:
        return Path(chosen.runs / length / f"seed-{seed}" / folder(clients) / method.lower())

    def one(method: str, seed: int, to: Path) -> dict[str, Any]:
        return play(clients, method, seed, to, chosen)

    return study.gathered(known, METHODS, chosen, place, one)


if __name__ == "__main__":
    main()
