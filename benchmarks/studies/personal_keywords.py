"""Which personal models pay on keywords: FedAvg, Ditto, FedPer, FedRep, FedBABU, MOON, FedDyn, FedNTD and FedBN.

    python -m benchmarks.studies.personal_keywords [--seeds 0 1 2] [--rounds 200] [--runs DIR]
                                                   [--clients speakers "Dirichlet 0.1"] [--arms FedAvg FedPer]

A client is a speaker, or has skewed classes (Dirichlet 0.1). It holds out a quarter of its clips, on which its personal
model is scored halfway, after three quarters of the rounds and after the last. Each arm takes the rate whose personal
models are best, halfway, on the clips that the clients of another seed (TUNING) hold out. Everything else is as in
configs/personal, but that there are fewer clients (SMALLER), and FedRep's head is fitted for five epochs. FedBN needs a
network with norms, and is compared with FedAvg on that network. All rounds are stepped through in this process. Writes
benchmarks/results/personal_keywords.md and .json; other rounds become part of the name. The same command resumes the
study: it keeps finished runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import fedray
from benchmarks import study
from benchmarks.rates import best_of, tune
from benchmarks.stepped import kept
from fedray.report.bootstrap import Counts

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
    "Dirichlet 0.1": "{by: dirichlet, count: 30, alpha: 0.1, min_utterances: 2}",
}
SMALLER = ["cohort.size=6"] + [
    f"data.options.{part}_speakers={n}" for part, n in (("client", 30), ("dev", 5), ("test", 20))
]
CHANGES = {"FedRep": ["algorithm.head_epochs=5"]}  # the paper: 10, for twice the time
RATES = (0.03, 0.1, 0.3, 0.6, 1.2)
RATES_OF_NORMS = (0.0001, 0.0003, 0.001, 0.003)  # of Adam: that network learns nothing with SGD at the other rates
ROUNDS, TUNING = 200, 3
NORMS = 0.3  # the share of the rounds that the network with norms trains: its clips take six times as long
NO_SHARED = ("FedPer", "FedRep", "FedBABU", "FedBN")  # what they share is no model without a client's part
WHOLE = 100_000  # the items of a client's count; its accuracy says how many are right


def reference(arm: str) -> str:
    """The arm that an arm is compared with, of the same network and rounds."""
    return "FedAvg, norms" if arm in ("FedAvg, norms", "FedBN") else "FedAvg"


def rates_of(arm: str) -> tuple[float, ...]:
    """The rates that an arm may try, rising."""
    return RATES if reference(arm) == "FedAvg" else RATES_OF_NORMS


def described(clients: str, arm: str, rate: float, seed: int, rounds: int) -> dict[str, Any]:
    """All on which a run depends: its configuration, the overrides, and its rounds. `rounds`: of the small network."""
    rounds = rounds if reference(arm) == "FedAvg" else round(NORMS * rounds)
    given = [f"seed={seed}", f"data.seed={seed}", f"data.clients={CLIENTS[clients]}", f"rounds={rounds}"]
    given += [f"algorithm.client.lr={rate:g}", "evaluation.personal_every=0", f"evaluation.every={rounds}"]
    given += [*SMALLER, *CHANGES.get(arm, [])]
    return {"config": f"configs/personal/{ARMS[arm]}.yaml", "overrides": given, "rounds": rounds}


def play(clients: str, arm: str, rate: float, seed: int, rounds: int) -> dict[str, Any]:
    """The personal accuracy of each client on what it holds out, as training goes, and that of the shared model."""
    given = described(clients, arm, rate, seed, rounds)
    bench, rounds = fedray.open(study.ROOT / given["config"], given["overrides"]), given["rounds"]
    state, scores, scored = bench.start(), list[dict[str, float]](), (rounds // 2, rounds * 3 // 4, rounds)
    for done in range(1, rounds + 1):
        state, _ = bench.step(state)
        if done in scored:
            names = [one for one in bench.data.client_ids() if state.progress.took_part(one)]  # the same for all arms
            scores.append({one: bench.evaluate_personal(state, one, "own").metrics["accuracy"] for one in names})
    counts = {client: (WHOLE, round(WHOLE * score / 100)) for client, score in scores[-1].items() if score == score}
    shared = {split: bench.evaluate(state, split).metrics[f"{split}/accuracy"] for split in ("own", "test")}
    traffic = state.progress.totals
    found = {
        "seed": seed,
        "rate": rate,
        "own": study.packed(counts),
        "rounds": [(done, average(each)) for done, each in zip(scored, scores, strict=True)],
        "shared": shared,
        "MB": (traffic["up_bytes"] + traffic["down_bytes"]) / 1e6,
    }
    return found


def average(scores: dict[str, float]) -> float:
    """The mean over the clients that hold clips out, in percent."""
    return mean(score for score in scores.values() if score == score)


def counts(results: Sequence[dict[str, Any]]) -> list[Counts]:
    """The counts of each run by client."""
    return [study.unpacked(one["own"]) for one in results]


def played(clients: str, known: dict[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """The rates and the runs of each arm on a kind of clients: those on the earlier page, and what is missing."""
    at = Path(chosen.runs / f"{chosen.rounds}-rounds" / study.folder_name(clients))
    tuned: dict[str, dict[str, float]] = dict(known.get("tuned", {}))

    def score(arm: str, rate: float) -> float:
        print(f"{clients}, {arm}, rate {rate:g}, seed {TUNING}", flush=True)
        place = at / "tuning" / f"{study.folder_name(arm)}-{rate:g}"
        of = clients, arm, rate, TUNING, chosen.rounds // 2
        run = kept(place, described(*of), lambda: play(*of))
        return float(run["rounds"][-1][1])

    for arm in ARMS:
        if arm in chosen.arms:
            tuned[arm] = tune(rates_of(arm), slice(1, 3), partial(score, arm), known=tuned.get(arm))

    def place_of(arm: str, seed: int) -> Path:
        return at / f"seed-{seed}" / f"{study.folder_name(arm)}-{best_of(tuned[arm]):g}"

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        of = clients, arm, best_of(tuned[arm]), seed, chosen.rounds
        return kept(to, described(*of), lambda: play(*of))

    return {"tuned": tuned, "found": study.gathered(known.get("found", {}), ARMS, chosen, place_of, one)}


def table(part: dict[str, Any]) -> str:
    """A row for each arm."""
    rows = []
    for arm, results in part["found"].items():
        rate, other = best_of(part["tuned"][arm]), reference(arm)
        row = {"method": arm, "rate": f"{rate:g}{'' if min(rates_of(arm)) < rate < max(rates_of(arm)) else '*'}"}
        row["own clips"] = study.spread([one["rounds"][-1][1] for one in results])
        before, after = study.common(part["found"].get(other, []), results)
        change = study.change(counts(before), counts(after), "points") if before else ""
        row["against FedAvg"] = "" if arm == other else str(change)
        row["by seed"] = ", ".join(f"{one['rounds'][-1][1]:.1f}" for one in results)
        for part_of_run, title in enumerate(("halfway", "three quarters")):
            row[title] = study.spread([one["rounds"][part_of_run][1] for one in results])
        for title, split in (("shared model, own clips", "own"), ("shared model, test", "test")):
            row[title] = "" if arm in NO_SHARED else study.spread([one["shared"][split] for one in results])
        rows.append(row | {"MB": f"{mean(one['MB'] for one in results):.1f}"})
    return study.table(rows)


def rates(part: dict[str, Any]) -> str:
    """The scores by which rates were chosen."""
    tuned = part["tuned"].items()
    return study.table(
        [{"method": a, "scores": ", ".join(f"{s:.1f} at {r}" for r, s in tried.items())} for a, tried in tuned]
    )


def write(page: str, found: dict[str, Any], parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """Write the page of the kinds of clients that are done."""
    text = f"""# Which personal models pay on keywords?

Embedded keywords, ten words, 30 clients with 30 clips to train on and 10 held out each (on average, with Dirichlet),
six clients a round, {chosen.rounds} rounds, two local epochs, CRNN-Lite; FedBN and "FedAvg, norms":
{round(NORMS * chosen.rounds)} rounds of FedSTAR's network, which has group norms, with Adam. Accuracy in percent of
the clients' personal models after the last round on the clips that each client holds out: mean over clients, mean ± SD
over seeds.
Differences from FedAvg (for FedBN, "FedAvg, norms") are in points, with 95 % intervals from a paired bootstrap over
clients. FedAvg, MOON, FedDyn and FedNTD are scored after the client's training, FedBABU after five epochs of
fine-tuning, FedPer, FedRep and FedBN with the part that the client kept, without further training; Ditto's personal
model trains two epochs beside the shared one. "Shared model": without training on the client, on all clients' own clips
and on new speakers. MB: traffic of a run, both ways. *: the best rate is at the edge of those that may be tried.
"""
    for kind, part in found.items():
        text += f"\n## Clients: {kind}\n\n{table(part)}\n\nOwn clips halfway by rate, seed {TUNING}:\n\n{rates(part)}\n"
    print(text)
    arms = study.on_page(ARMS, *(part["found"] for part in found.values()))
    command = study.command(parser, chosen, clients=list(found), arms=list(ARMS) if arms == [""] else arms)
    seeds = study.seeds(*(part["found"] for part in found.values()))
    study.write(page, text, {"rounds": chosen.rounds, "found": found}, command, seeds)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-personal")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    chosen = parser.parse_args()
    page = "personal_keywords" if chosen.rounds == ROUNDS else f"personal_keywords_{chosen.rounds}"
    before = study.page_before(page, rounds=chosen.rounds).get("found", {})
    found = dict(before)
    for kind in chosen.clients:
        found[kind] = played(kind, before.get(kind, {}), chosen)
        write(page, found, parser, chosen)


if __name__ == "__main__":
    main()
