"""Gao et al. without a warm-up: can a federation of single speakers learn to recognise speech from nothing?

    python -m benchmarks.studies.gao_scratch [--arms LAMB 'CRDNN, FedAvg'] [--seeds 0 1 2] [--rounds 200]

The embedded twin of benchmarks.studies.gao_table1: 20 of about 200 single speakers a round, weighted by examples. The
paper's recogniser, a CRDNN, trains by FedAvg and by FedAdam, with the server's fine-tuning after each round. So does a
Conformer with pre-layer normalisation. The last federation has the recipe with which Azam et al. (2023,
arXiv:2309.13102) and Pelikan et al. (2023, arXiv:2310.00098) train Conformers from scratch: LAMB on the server, ten
local epochs, and no data of the server. Central training hears as much speech in a round as 20 clients do in five
epochs. Dev chooses rates with seed TUNING in a fifth of the rounds: the clients' by FedAvg, with which FedAdam and LAMB
choose the server's. Writes benchmarks/results/gao_scratch.md and .json. The same command resumes the study: it keeps
finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import study
from benchmarks.rates import best_of, table, tune
from benchmarks.studies.gao_table1 import FALLING, TWIN, page
from benchmarks.studies.gao_table1 import Arm as Setup
from benchmarks.studies.gao_table1 import play as played

TUNING = 7
SCRATCH, CONFORMER = "algorithm.pretrain.steps=0", "model={kind: conformer}"
CLIENTS, SERVER, CENTRAL = "algorithm.client.lr", "server_optimizer.lr", "algorithm.adamw.lr"
RATES = {
    CLIENTS: (0.03, 0.1, 0.3, 1.0, 3.0),
    SERVER: (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    CENTRAL: (3e-4, 1e-3, 3e-3, 1e-2),
}


class Arm(NamedTuple):
    """A row of the page."""

    rate: str  # the setting that dev chooses
    config: str  # of gao_table1
    overrides: list[str]


FEDAVG, LAST = "{}, FedAvg", "Conformer, LAMB, ten local epochs"
LAMB = ["server_optimizer={kind: lamb}", "algorithm.client.epochs=10", "algorithm.server_finetune=false"]
ARMS = {
    "CRDNN, FedAvg": Arm(CLIENTS, "scratch", [FALLING]),
    "CRDNN, FedAdam": Arm(SERVER, "scratch_fedadam", [FALLING]),
    "Conformer, FedAvg": Arm(CLIENTS, "scratch", [FALLING, CONFORMER]),
    "Conformer, FedAdam": Arm(SERVER, "scratch_fedadam", [FALLING, CONFORMER]),
    LAST: Arm(SERVER, "scratch", [CONFORMER, *LAMB]),
    "CRDNN, central": Arm(CENTRAL, "central", [SCRATCH]),
    "Conformer, central": Arm(CENTRAL, "central", [SCRATCH, CONFORMER]),
}
PAIRS = (
    ("CRDNN, FedAvg", "CRDNN, FedAdam"),
    ("Conformer, FedAvg", "Conformer, FedAdam"),
    ("Conformer, FedAvg", LAST),
    ("Conformer, FedAdam", LAST),
    ("CRDNN, FedAvg", "CRDNN, central"),
    (LAST, "Conformer, central"),
)


def play(arm: str, lr: float, seed: int, rounds: int, place: Path, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """A run of an arm, as `gao_table1.play` describes it. `lr`: the value of the arm's `rate`."""
    rate, config, overrides = ARMS[arm]
    twin, given = replace(TWIN, rounds=rounds), [*overrides, f"evaluation.every={max(1, rounds // 20)}"]
    if rate == CENTRAL:
        twin = replace(twin, of_adamw=(*twin.of_adamw, f"{rate}={lr:g}"))
    else:
        given.append(f"{rate}={lr:g}")
    if rate == SERVER:
        given.append(f"{CLIENTS}={best_of(tuned[fedavg(arm)], min):g}")
    return played(twin, Setup(config, given), seed, [], place)


def fedavg(arm: str) -> str:
    """FedAvg of the arm's model, whose clients' rate the arm takes."""
    return FEDAVG.format(arm.split(",")[0])


def settled(known: Mapping[str, Any], wanted: list[str], rounds: int, runs: Path) -> dict[str, dict[str, float]]:
    """Arm -> the dev WER of each rate. `known`: those of the earlier page."""
    tuned = {**known}
    for arm in dict.fromkeys([fedavg(arm) for arm in wanted if ARMS[arm].rate == SERVER] + wanted):

        def tried(lr: float, arm: str = arm) -> float:
            print(f"{arm}, {ARMS[arm].rate}={lr:g}, seed {TUNING}", flush=True)
            place = runs / "tuning" / study.folder_name(f"{arm} {lr:g}")
            return float(play(arm, lr, TUNING, max(1, rounds // 5), place, tuned)["dev"])

        tuned[arm] = tune(RATES[ARMS[arm].rate], slice(1, 3), tried, min, known.get(arm))
    return tuned


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-gao-scratch", rounds=200)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("gao_scratch", rounds=chosen.rounds)
    wanted = [arm for arm in ARMS if any(text in arm for text in chosen.arms)]
    tuned = settled(before.get("tuned", {}), wanted, chosen.rounds, chosen.runs)

    def one(arm: str, seed: int, place: Path) -> dict[str, Any]:
        return play(arm, best_of(tuned[arm], min), seed, chosen.rounds, place, tuned)

    found = study.gathered(before.get("found", {}), ARMS, chosen, study.place(chosen.runs), one)
    text = f"""# Gao et al. from scratch

Test WER in percent of the best round by dev, and of the random model that the arm starts from ("before"), over
{chosen.rounds} rounds. Means over seeds, with 95 % intervals from a paired bootstrap over speakers.

{page(found, dict.fromkeys(found, chosen.rounds), PAIRS)}

## Rates, by dev WER of seed {TUNING} after {max(1, chosen.rounds // 5)} rounds

{table(sorted({rate for rates in RATES.values() for rate in rates}), tuned)}
"""
    print(text)
    numbers = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("gao_scratch", text, numbers, command, study.seeds(found))


if __name__ == "__main__":
    main()
