"""Does a small cohort with less noise stand for a large one? Up to 51,200 keyword clients a round, or 10,240 speakers.

    python -m benchmarks.studies.privacy_cohorts [--arms keywords "real 1024"] [--seeds 0 1 2] [--rounds 20]
                                                 [--actors N]

Keywords: 51,200 clients, each one speaker with four one-second clips, train CRNN-Lite. Sentences: 10,240 speakers with
five sentences each train a Conformer with CTC. Both start from a seed model, with one local epoch a round and one noise
multiplier. *Real*: a cohort of that size. *From*: a smaller cohort, whose mean gets the noise that the larger cohort's
mean would have (`privacy.as_if`), which is how others extrapolate. *No privacy*: neither bounds nor noise. All seeds
train on one corpus. At a multiplier of 1 a cohort of 100 keyword clients has a signal-to-noise ratio of 0.17, and the
ratio grows with the cohort: with 8 the smallest cohort's signal is lost, and the largest one's hardly touched. Momentum
and one local epoch were the best of five settings for keywords on dev of another corpus, without privacy. Cohorts of
10,240 keyword clients take half an hour of a core a run, of 51,200 three hours, of 10,240 speakers longer: the page has
seed 0 alone for the largest cohort of a task. Writes benchmarks/results/privacy_cohorts.md, .json and .png. The same
command resumes the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
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

COHORTS, SMALL = (100, 1_024, 10_240, 51_200), (100, 1_024)
NOISE, BOUND, CLIPS = 8.0, 1.0, {"keywords": 4, "sentences": 5}
POPULATIONS = {"keywords": 51_200, "sentences": 10_240}
METRICS = {"keywords": "accuracy", "sentences": "wer"}
LARGEST_SEED = 0  # the largest cohort of a task has this seed alone
LARGEST = {f"{task}, real {population}" for task, population in POPULATIONS.items()}
ABOUT = f"""Scores on new speakers in the best round by dev: the mean over seeds with its 95 % interval (bootstrap over
speakers: what other draws of noise and cohorts would give, the column by seed shows), and what a cohort of that size
really reaches. The noise multiplier is {NOISE:g}, the bound on a client's update {BOUND:g}."""
TITLES = {
    "keywords": "Keywords: test accuracy in percent, CRNN-Lite, four clips a client",
    "sentences": "Sentences: test WER in percent, a Conformer with CTC, five sentences a client",
}


def settings(task: str) -> dict[str, dict[str, Any]]:
    """Cohort -> its settings, of a task."""
    population = POPULATIONS[task]
    sizes = [size for size in COHORTS if size <= population]
    as_if = {
        f"from {small} as {size}": {"cohort.size": small, "privacy.as_if": {"cohort": size, "population": population}}
        for small in SMALL
        for size in sizes
        if size > small
    }
    without = {f"no privacy {size}": {"cohort.size": size, "privacy.kind": "none"} for size in SMALL}
    return without | {f"real {size}": {"cohort.size": size} for size in sizes} | as_if


ARMS = {f"{task}, {cohort}": (task, cohort, given) for task in POPULATIONS for cohort, given in settings(task).items()}


def overrides(arm: str, seed: int, chosen: argparse.Namespace) -> tuple[str, list[str]]:
    """The configuration of a run, and its overrides."""
    task, _, own = ARMS[arm]
    speakers = {"client_speakers": POPULATIONS[task], "client_utterances": CLIPS[task]}
    given: dict[str, Any] = {f"data.options.{name}": value for name, value in speakers.items()}
    given |= {"seed": seed, "data.seed": 0, "rounds": chosen.rounds, "strategy": {"kind": "uniform"}}
    given |= {"evaluation.every": 1, "engine.lanes": "auto", "cohort.fraction": None}
    given |= {"algorithm.client": {"lr": 0.3, "batch": CLIPS[task], "epochs": 1, "clip": 5}}
    given |= {"server_optimizer": {"kind": "momentum", "lr": 1.0}}
    if task == "keywords":
        config = "configs/fedavg/keywords.yaml"
        given |= {"model.size": "lite", "data.options.server_speakers": 20}
        given |= {"algorithm.pretrain": {"steps": 300, "lr": 3e-3, "warmup": 50, "batch": 8}}
    else:
        config = "configs/privacy/embedded.yaml"
        given |= {"cohort.sampling": "uniform", "cohort.limit": None, "privacy": {"kind": "none"}}
    if "privacy.kind" not in own:
        given["privacy"] = {"kind": "gaussian", "epsilon": None, "noise": NOISE, "delta": 1e-6}
        given["privacy"] |= {"clip": {"kind": "fixed", "norm": BOUND}, "as_if": {"cohort": None, "population": None}}
    return config, [*study.overrides(given), *study.overrides(own), f"engine.actors={chosen.actors}"]


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Right answers or errors by speaker, seconds of a round, and how far the signal stands above the noise."""
    metric = METRICS[ARMS[arm][0]]
    results, rows = study.run(*overrides(arm, seed, chosen), place), study.rounds(place)
    signals = [row["privacy/snr"] for row in rows if row.get("privacy/snr") is not None]
    predicted = study.predictions(place, "best")
    return {
        "seed": seed,
        "round": results["best"]["round"],
        "dev": [row[f"dev/{metric}"] for row in rows],
        "epsilon": results.get("privacy", {}).get("epsilon"),
        "snr": mean(signals) if signals else None,
        "seconds": median(row["time/round_s"] for row in rows),
        "best": study.packed(study.by_speaker(predicted) if metric == "wer" else study.right_by("speaker", predicted)),
    }


def counts(runs: Sequence[dict[str, Any]]) -> list[Counts]:
    return [study.unpacked(run["best"]) for run in runs]


def row(arm: str, found: study.Found, rounds: int) -> dict[str, str]:
    """An arm's score, and its difference from the real cohort of the same size."""
    task, cohort, _ = ARMS[arm]
    runs, real = found[arm], f"{task}, real {cohort.split()[-1]}"
    cells = {"cohort": cohort, METRICS[task]: str(rate(counts(runs)))}
    here, there = study.common(runs, found.get(real, []))
    if here and arm != real:
        cells["minus the real one's (points)"] = str(study.change(counts(there), counts(here), "points"))
    cells["by seed"] = ", ".join(f"{rate([one]).mean:.1f}" for one in counts(runs))
    snr = [run["snr"] for run in runs if run["snr"] is not None]
    cells |= {"signal to noise": f"{mean(snr):.3g}" if snr else ""}
    cells |= {"epsilon": f"{runs[0]['epsilon']:.3g}" if runs[0]["epsilon"] is not None else ""}
    cells |= {"s a round": f"{median(run['seconds'] for run in runs):.1f}"}
    cells["best rounds"] = study.best_rounds([run["round"] for run in runs], [rounds] * len(runs))
    return cells | {"seeds": ", ".join(str(run["seed"]) for run in runs)}


def draw(found: study.Found, path: Path) -> None:
    """The score over the cohort: real, and as extrapolated, a panel for each task."""
    tasks = [task for task in POPULATIONS if any(ARMS[arm][0] == task for arm in found)]
    kinds = {"really trained": "real", "no privacy": "no privacy"}
    kinds |= {f"from {small:,} clients": f"from {small} as" for small in SMALL}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(7, 5 * len(tasks)), 4), layout="constrained")
        for place, task in enumerate(tasks, 1):
            axes = figure.add_subplot(1, len(tasks), place)
            for colour, (label, kind) in zip(COLOURS, kinds.items(), strict=False):
                arms = [arm for arm in found if arm.startswith(f"{task}, {kind}")]
                rates = {int(arm.split()[-1]): rate(counts(found[arm])) for arm in arms}
                sizes, means = sorted(rates), [rates[size].mean for size in sorted(rates)]
                below = [rates[size].mean - rates[size].low for size in sizes]
                above = [rates[size].high - rates[size].mean for size in sizes]
                axes.errorbar(sizes, means, (below, above), color=colour, label=label, capsize=3, marker="o")
            axes.set_xscale("log")
            axes.set_title(task)
            axes.set_xlabel("clients a round, at one noise multiplier")
            axes.set_ylabel(f"test {METRICS[task]} (%)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-privacy-cohorts", rounds=20)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("privacy_cohorts", rounds=chosen.rounds).get("found", {})
    alone = argparse.Namespace(seeds=[seed for seed in chosen.seeds if seed == LARGEST_SEED], arms=chosen.arms)
    parts = ([arm for arm in ARMS if arm not in LARGEST], chosen), ([arm for arm in ARMS if arm in LARGEST], alone)
    found: dict[str, list[dict[str, Any]]] = {}
    for arms, wanted in parts:
        found |= study.gathered(
            before, arms, wanted, study.place(chosen.runs), lambda arm, seed, place: play(arm, seed, place, chosen)
        )
    found = {arm: found[arm] for arm in ARMS if arm in found}
    text = f"# Cohorts and noise\n\n{ABOUT}\n\n![Scores by cohort](privacy_cohorts.png)"
    for task, title in TITLES.items():
        if rows := [row(arm, found, chosen.rounds) for arm in found if ARMS[arm][0] == task]:
            text += f"\n\n## {title}\n\n{study.table(rows)}"
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("privacy_cohorts", text, {"rounds": chosen.rounds, "found": found}, command, study.seeds(found))
    draw(found, study.RESULTS / "privacy_cohorts.png")
    print(text)


if __name__ == "__main__":
    main()
