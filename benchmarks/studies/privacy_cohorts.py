"""Does a small cohort with less noise stand for a large one? Keyword clients, up to 51,200 of them in a round.

    python -m benchmarks.studies.privacy_cohorts [--arms "real 1024"] [--seeds 0 1 2] [--rounds 20] [--actors N]

A federation of 51,200 clients, each one speaker with four one-second clips, trains CRNN-Lite from a seed model, one
local epoch a round, with one noise multiplier. *Real*: a cohort of that size. *From*: a smaller cohort, whose mean gets
the noise that the larger cohort's mean would have (`privacy.as_if`), which is how others extrapolate. *No privacy*:
neither bounds nor noise. All seeds train on one corpus. At a multiplier of 1 a cohort of 100 has a signal-to-noise
ratio of 0.17, and the ratio grows with the cohort: with 8 the smallest cohort's signal is lost, and the largest one's
hardly touched. Momentum and one local epoch were the best of five settings on dev of another corpus, without privacy.
Cohorts of 10,240 take half an hour of a core a run, of 51,200 three hours: the page has seed 0 alone for the largest.
Writes benchmarks/results/privacy_cohorts.md, .json and .png. The same command resumes the study: it
keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks import study
from fedray.report.bootstrap import Counts, rate
from fedray.report.canvas import COLOURS, STYLE

POPULATION, CLIPS = 51_200, 4
COHORTS = (100, 1_024, 10_240, POPULATION)
NOISE, BOUND = 8.0, 1.0
LARGEST, LARGEST_SEED = f"real {POPULATION}", 0  # the largest cohort has this seed alone
ARMS: dict[str, dict[str, Any]] = {
    **{f"no privacy {size}": {"cohort.size": size, "privacy.kind": "none"} for size in COHORTS[:2]},
    **{f"real {size}": {"cohort.size": size} for size in COHORTS},
    **{
        f"from {small} as {size}": {
            "cohort.size": small,
            "privacy.as_if": {"cohort": size, "population": POPULATION},
        }
        for small in COHORTS[:2]
        for size in COHORTS
        if size > small
    },
}
ABOUT = f"""Test accuracy in percent on 40 new speakers in the best round by dev: the mean over seeds with its 95 %
interval (bootstrap over speakers: what other draws of noise and cohorts would give, the column by seed shows), and
what a cohort of that size really reaches. {POPULATION:,} clients with {CLIPS} clips each train CRNN-Lite from a seed
model; the noise multiplier is {NOISE:g}, the bound on a client's update {BOUND:g}."""


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The right answers by speaker, seconds of a round, and how far the signal stands above the noise."""
    options = {"client_speakers": POPULATION, "client_utterances": CLIPS, "server_speakers": 20}
    given: dict[str, Any] = {f"data.options.{name}": value for name, value in options.items()}
    given |= {"seed": seed, "data.seed": 0, "rounds": chosen.rounds, "strategy": {"kind": "uniform"}}
    given |= {"model.size": "lite", "evaluation.every": 1, "engine.lanes": "auto"}
    given |= {"algorithm.client": {"lr": 0.3, "batch": CLIPS, "epochs": 1, "clip": 5}}
    given |= {"algorithm.pretrain": {"steps": 300, "lr": 3e-3, "warmup": 50, "batch": 8}}
    given |= {"server_optimizer": {"kind": "momentum", "lr": 1.0}}
    if "privacy.kind" not in ARMS[arm]:
        given |= {"privacy.kind": "gaussian", "privacy.epsilon": None, "privacy.noise": NOISE, "privacy.delta": 1e-6}
        given |= {"privacy.clip": {"kind": "fixed", "norm": BOUND}}
    overrides = study.overrides(given | ARMS[arm])
    overrides.append(f"engine.actors={chosen.actors}")
    results, rows = study.run("configs/fedavg/keywords.yaml", overrides, place), study.rounds(place)
    signals = [row["privacy/snr"] for row in rows if row.get("privacy/snr") is not None]
    return {
        "seed": seed,
        "round": results["best"]["round"],
        "dev": [row["dev/accuracy"] for row in rows],
        "epsilon": results.get("privacy", {}).get("epsilon"),
        "snr": mean(signals) if signals else None,
        "seconds": median(row["time/round_s"] for row in rows),
        "right": study.packed(study.right_by("speaker", study.predictions(place, "best"))),
    }


def counts(runs: Sequence[dict[str, Any]]) -> list[Counts]:
    return [study.unpacked(run["right"]) for run in runs]


def row(arm: str, found: study.Found, rounds: int) -> dict[str, str]:
    """An arm's accuracy, and its difference from the real cohort of the same size."""
    runs, size = found[arm], arm.split()[-1]
    cells = {"cohort": arm, "accuracy": str(rate(counts(runs)))}
    here, there = study.common(runs, found.get(f"real {size}", []))
    if here and arm != f"real {size}":
        cells["minus the real one's (points)"] = str(study.change(counts(there), counts(here), "points"))
    cells["by seed"] = ", ".join(f"{rate([one]).mean:.1f}" for one in counts(runs))
    snr = [run["snr"] for run in runs if run["snr"] is not None]
    cells |= {"signal to noise": f"{mean(snr):.3g}" if snr else ""}
    cells |= {"epsilon": f"{runs[0]['epsilon']:.3g}" if runs[0]["epsilon"] is not None else ""}
    cells |= {"s a round": f"{median(run['seconds'] for run in runs):.1f}"}
    cells["best rounds"] = study.best_rounds([run["round"] for run in runs], [rounds] * len(runs))
    return cells | {"seeds": ", ".join(str(run["seed"]) for run in runs)}


def draw(found: study.Found, path: Path) -> None:
    """Accuracy over the cohort: real, and as extrapolated."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        kinds = {"really trained": "real", "no privacy": "no privacy"}
        kinds |= {f"from {small:,} clients": f"from {small} as" for small in COHORTS[:2]}
        for colour, (label, kind) in zip(COLOURS, kinds.items(), strict=False):
            rates = {int(arm.split()[-1]): rate(counts(runs)) for arm, runs in found.items() if arm.startswith(kind)}
            sizes, means = sorted(rates), [rates[size].mean for size in sorted(rates)]
            below = [rates[size].mean - rates[size].low for size in sizes]
            above = [rates[size].high - rates[size].mean for size in sizes]
            axes.errorbar(sizes, means, (below, above), color=colour, label=label, capsize=3, marker="o")
        axes.set_xscale("log")
        axes.set_xlabel("clients a round, at one noise multiplier")
        axes.set_ylabel("test accuracy (%)")
        figure.legend(loc="outside lower center", ncols=4)
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-privacy-cohorts", rounds=20)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("privacy_cohorts", rounds=chosen.rounds).get("found", {})
    alone = argparse.Namespace(seeds=[seed for seed in chosen.seeds if seed == LARGEST_SEED], arms=chosen.arms)
    parts = ([arm for arm in ARMS if arm != LARGEST], chosen), ([LARGEST], alone)
    found: dict[str, list[dict[str, Any]]] = {}
    for arms, wanted in parts:
        found |= study.gathered(
            before, arms, wanted, study.place(chosen.runs), lambda arm, seed, place: play(arm, seed, place, chosen)
        )
    found = {arm: found[arm] for arm in ARMS if arm in found}
    text = f"# Cohorts and noise\n\n{ABOUT}\n\n{study.table([row(arm, found, chosen.rounds) for arm in found])}"
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write(
        "privacy_cohorts",
        text + "\n\n![Accuracy by cohort](privacy_cohorts.png)",
        {"rounds": chosen.rounds, "found": found},
        command,
        study.seeds(found),
    )
    draw(found, study.RESULTS / "privacy_cohorts.png")
    print(text)


if __name__ == "__main__":
    main()
