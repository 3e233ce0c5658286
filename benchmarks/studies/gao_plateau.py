"""Gao et al. from a model whose warm-up has converged: who weights best, and what are the clients worth?

    python -m benchmarks.studies.gao_plateau [--arms 'two speakers' 'one speaker'] [--seeds 0 1 2] [--rounds 40]

The embedded twin of benchmarks.studies.gao_table1, whose clients start from a warm-up of 1,500 steps that is still
improving, so that a weighting may win because it moves fastest. Here the warm-up has 12,000 steps, each arm takes the
rate that is best on dev with seed TUNING, in half of the rounds, and fine-tuning follows the clients' falling rate. The
control goes on with the warm-up: an arm that does not beat it has learnt nothing from clients. Silos are left out:
they have equal hours, and all weightings of them are the same. Writes benchmarks/results/gao_plateau.md and .json. The
same command resumes the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.rates import best_of, table, tune
from benchmarks.studies.gao_table1 import CENTRAL, EXAMPLES, FALLING, REGIMES, TWIN, WEIGHTS, Arm, page
from benchmarks.studies.gao_table1 import play as played

STEPS, TUNING = 12_000, 7
RATES, CENTRAL_RATES = (0.01, 0.03, 0.1, 0.3), (1e-4, 3e-4, 1e-3, 3e-3)  # of the clients; of the control, by AdamW
CONTROL = CENTRAL["warm_up_continued"]
ARMS = {CONTROL: Arm("warm_up_continued", [EXAMPLES])} | {
    f"{REGIMES[regime]}, {weight}": Arm(regime, [f"strategy={WEIGHTS[weight]}", FALLING])
    for regime in ("pairs", "one")
    for weight in ("examples", "loss", "WER")
}


def play(arm: str, lr: float, seed: int, rounds: int, place: Path) -> dict[str, Any]:
    """A run of an arm, as `gao_table1.play` describes it. `lr`: the clients' rate, or the control's."""
    twin, given = replace(TWIN, rounds=rounds), [f"algorithm.pretrain.steps={STEPS}"]
    if arm == CONTROL:
        twin = replace(twin, of_adamw=(*twin.of_adamw, f"algorithm.adamw.lr={lr:g}"))
    else:
        given.append(f"algorithm.client.lr={lr:g}")
    return played(twin, ARMS[arm], seed, given, place)


def settled(known: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Arm -> the dev WER of each rate. `known`: those of the earlier page."""

    def tried(arm: str, lr: float) -> float:
        print(f"{arm}, rate {lr:g}, seed {TUNING}", flush=True)
        place = chosen.runs / "tuning" / study.folder_name(f"{arm} {lr:g}")
        return float(play(arm, lr, TUNING, chosen.rounds // 2, place)["dev"])

    wanted = [arm for arm in ARMS if any(text in arm for text in chosen.arms)]
    lists = {arm: CENTRAL_RATES if arm == CONTROL else RATES for arm in wanted}
    return {**known} | {
        arm: tune(rates, slice(1, 3), partial(tried, arm), min, known.get(arm)) for arm, rates in lists.items()
    }


def compared() -> list[tuple[str, str]]:
    """Pairs of arms: the page has the change from the first to the second."""
    by_weight = [
        (f"{REGIMES[regime]}, {worse}", f"{REGIMES[regime]}, {better}")
        for regime in ("pairs", "one")
        for worse, better in (("examples", "loss"), ("examples", "WER"), ("loss", "WER"))
    ]
    by_regime = [
        (f"{REGIMES['one']}, {weight}", f"{REGIMES['pairs']}, {weight}") for weight in ("examples", "loss", "WER")
    ]
    return by_weight + by_regime + [(CONTROL, arm) for arm in ARMS if arm != CONTROL]


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-gao-plateau")
    parser.add_argument("--rounds", type=int, default=40)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("gao_plateau", rounds=chosen.rounds)
    tuned = settled(before.get("tuned", {}), chosen)

    def one(arm: str, seed: int, place: Path) -> dict[str, Any]:
        return play(arm, best_of(tuned[arm], min), seed, chosen.rounds, place)

    found = study.gathered(before.get("found", {}), ARMS, chosen, study.place(chosen.runs), one)
    length = {arm: replace(TWIN, rounds=chosen.rounds).length(ARMS[arm]) for arm in found}
    text = f"""# Gao et al. from a long warm-up

Test WER in percent of the best round by dev, and of the model that the arm starts from ("before"), after a warm-up of
{STEPS:,} steps. Means over seeds, with 95 % intervals from a paired bootstrap over speakers.

{page(found, length, compared())}

## Rates, by dev WER of seed {TUNING} after {chosen.rounds // 2} rounds

{table(sorted({*RATES, *CENTRAL_RATES}), tuned)}
"""
    print(text)
    numbers = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("gao_plateau", text, numbers, command, study.seeds(found))


if __name__ == "__main__":
    main()
