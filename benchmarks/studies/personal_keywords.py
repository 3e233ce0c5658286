"""Which personal models pay on keywords: FedAvg, Ditto, FedPer, FedRep, FedBN, FedBABU, MOON, FedDyn and FedNTD.

    python -m benchmarks.studies.personal_keywords [--seeds 0 1 2] [--rounds 100] [--actors 1] [--runs DIR]
                                                   [--clients speakers "Dirichlet 0.1"] [--arms FedAvg FedPer]

A client is a speaker, or has skewed classes (Dirichlet 0.1). It holds out a quarter of its clips, on which its personal
model is scored after the last round. Each arm takes the rate of RATES whose personal models are best on the clips that
the clients of another seed (TUNING) hold out; everything else is as in configs/personal. FedBN needs a network with
norms, and is compared with FedAvg on that network. Writes benchmarks/results/personal_keywords.md and .json; other
rounds become part of the name. The same command resumes the study.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study
from fedray.report.bootstrap import Counts
from fedray.report.discover import find

ARMS = {
    "FedAvg": "baselines/fedavg",
    "Ditto": "baselines/ditto",
    "FedPer": "fedper",
    "FedRep": "fedrep",
    "FedBABU": "fedbabu",
    "MOON": "moon",
    "FedDyn": "feddyn",
    "FedNTD": "fedntd",
    "FedAvg, norms": "baselines/fedavg_norms",
    "FedBN": "fedbn",
}
CLIENTS = {
    "speakers": "{by: speaker}",
    "Dirichlet 0.1": "{by: dirichlet, count: 50, alpha: 0.1, min_utterances: 2}",
}
RATES = (0.1, 0.3, 0.6)
ROUNDS, TUNING = 100, 3
NORMS = 0.4  # the share of the rounds that the network with norms trains: its clips take ten times as long
NO_SHARED = ("FedPer", "FedRep", "FedBABU", "FedBN")  # what they share is no model without a client's part
OWN, COMMON = "own", "test"
WHOLE = 100_000  # the items of a client's count; its accuracy says how many are right


def reference(arm: str) -> str:
    """The arm that an arm is compared with, of the same network and rounds."""
    return "FedAvg, norms" if arm in ("FedAvg, norms", "FedBN") else "FedAvg"


def play(clients: str, arm: str, rate: float, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The personal accuracy of each client on what it holds out and on test, that of the shared model, and traffic."""
    rounds = chosen.rounds if reference(arm) == "FedAvg" else round(NORMS * chosen.rounds)
    settings = [f"seed={seed}", f"data.seed={seed}", f"data.clients={CLIENTS[clients]}", f"rounds={rounds}"]
    settings += [f"algorithm.client.lr={rate:g}", f"engine.actors={chosen.actors}"]
    settings += [f"evaluation.personal_every={rounds // 2}"]
    results = study.run(f"configs/personal/{ARMS[arm]}.yaml", settings, place)
    (run,) = find([place])
    scores = {split: run.of_clients(f"personal/{split}/accuracy") for split in (OWN, COMMON)}
    in_rounds = [(row["round"], row["personal/own_accuracy"]) for row in study.rounds(place)
                 if row.get("personal/own_accuracy") is not None]  # fmt: skip
    found = {
        split: study.packed({client: (WHOLE, round(WHOLE * score / 100)) for client, score in by_client.items()})
        for split, by_client in scores.items()
    }
    shared = {split: results["best"][f"{split}/accuracy"] for split in (OWN, COMMON)}
    megabytes = results["traffic/total_bytes"] / 1e6
    return {"seed": seed, "rate": rate, "personal": found, "shared": shared, "rounds": in_rounds, "MB": megabytes}


def counts(results: Sequence[dict[str, Any]], split: str) -> list[Counts]:
    """The counts of each run by client."""
    return [study.unpacked(one["personal"][split]) for one in results]


def average(one: dict[str, Any], split: str) -> float:
    """The mean over a run's clients, in percent."""
    (found,) = counts([one], split)
    return 100 * mean(right / whole for whole, right in found.values())


def played(clients: str, known: dict[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """The rates and the runs of each arm on a kind of clients: those on the earlier page, and what is missing."""
    at = Path(chosen.runs / f"{chosen.rounds}-rounds" / study.folder_name(clients))

    def folder(arm: str, rate: float, seed: int) -> Path:
        return at / f"seed-{seed}" / f"{study.folder_name(arm)}-{rate:g}"

    tuned: dict[str, dict[str, float]] = dict(known.get("tuned", {}))
    for arm in ARMS:
        if arm in chosen.arms and arm not in tuned:
            tried = {}
            for rate in RATES:
                print(f"{clients}, {arm}, rate {rate:g}, seed {TUNING}", flush=True)
                tried[f"{rate:g}"] = average(play(clients, arm, rate, TUNING, folder(arm, rate, TUNING), chosen), OWN)
            tuned[arm] = tried

    def place(arm: str, seed: int) -> Path:
        return folder(arm, best(tuned[arm]), seed)

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        return play(clients, arm, best(tuned[arm]), seed, to, chosen)

    return {"tuned": tuned, "found": study.gathered(known.get("found", {}), ARMS, chosen, place, one)}


def best(tried: dict[str, float]) -> float:
    """The rate with the best score."""
    return float(max(tried, key=lambda rate: tried[rate]))


def table(part: dict[str, Any]) -> str:
    """A row for each arm."""
    rows = []
    for arm, results in part["found"].items():
        tried = part["tuned"][arm]
        rate, other = best(tried), reference(arm)
        edge = "" if min(RATES) < rate < max(RATES) else "*"
        row = {"method": arm, "rate": f"{rate:g}{edge}"}
        for title, split in (("own clips", OWN), ("common test", COMMON)):
            row[title] = study.spread([average(one, split) for one in results])
            before, after = study.common(part["found"].get(other, []), results)
            change = study.change(counts(before, split), counts(after, split), "points") if before else ""
            row[f"{title}, against FedAvg"] = "" if arm == other else str(change)
        for title, split in (("shared model, own clips", OWN), ("shared model, common test", COMMON)):
            row[title] = "" if arm in NO_SHARED else study.spread([one["shared"][split] for one in results])
        row["own clips of cohorts, halfway and at the end"] = study.half_and_end(results)
        rows.append(row | {"MB": f"{mean(one['MB'] for one in results):.1f}"})
    return study.table(rows)


def rates(part: dict[str, Any]) -> str:
    """The scores by which rates were chosen."""
    rows = [
        {"method": arm, **{f"rate {rate}": f"{score:.1f}" for rate, score in tried.items()}}
        for arm, tried in part["tuned"].items()
    ]
    return study.table(rows)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-personal", rounds=ROUNDS)
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    chosen = parser.parse_args()
    page = "personal_keywords" if chosen.rounds == ROUNDS else f"personal_keywords_{chosen.rounds}"
    before = study.page_before(page, rounds=chosen.rounds).get("found", {})
    found = dict(before)
    for kind in chosen.clients:
        found[kind] = played(kind, before.get(kind, {}), chosen)
        write(page, found, parser, chosen)


def write(page: str, found: dict[str, Any], parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """Write the page of the kinds of clients that are done."""
    text = f"""# Which personal models pay on keywords?

Embedded keywords, ten words, 50 clients with 30 clips to train on and 10 held out each (on average, with Dirichlet),
ten clients a round, {chosen.rounds} rounds, two local epochs, CRNN-Lite; FedBN and "FedAvg, norms":
{round(NORMS * chosen.rounds)} rounds of FedSTAR's network, which has group norms.
Accuracy in percent of the clients' personal models after the last round, mean over clients, mean ± SD over seeds: on
the clips that each client holds out ("own clips") and on a common test of new speakers. Differences from FedAvg (for
FedBN, "FedAvg, norms") are in points, with 95 % intervals from a paired bootstrap over clients. FedAvg, MOON, FedDyn
and FedNTD are scored after the client's training, FedBABU after five epochs of fine-tuning, FedPer, FedRep and FedBN
with the part that the client kept, without further training. The shared model is that of the round with the best dev.
MB: traffic of a run, both ways. *: the best of three rates is at the edge.
"""
    for kind, part in found.items():
        text += f"\n## Clients: {kind}\n\n{table(part)}\n\nOwn clips by rate, seed {TUNING}:\n\n{rates(part)}\n"
    print(text)
    arms = study.on_page(ARMS, *(part["found"] for part in found.values()))
    command = study.command(parser, chosen, clients=list(found), arms=list(ARMS) if arms == [""] else arms)
    seeds = study.seeds(*(part["found"] for part in found.values()))
    study.write(page, text, {"rounds": chosen.rounds, "found": found}, command, seeds)


if __name__ == "__main__":
    main()
