"""What privacy costs models of different sizes, and whether bounds by layer help the larger ones.

    python -m benchmarks.studies.privacy_sizes [--arms "keywords, 2.6M"] [--seeds 0 1 2] [--rounds 40] [--actors N]

FedAvg with 50 clients a round, without privacy and at epsilon 8 as if a round had 1,000 of 100,000 clients: one
adaptive bound for the whole update and, for Conformers, C / sqrt(H) for each of H layers ("uniform") and bounds by
dimension ("dim"); CRNNs have four layers, of which one holds nearly all numbers. Keywords: CRNNs. Sentences: Conformers
with CTC. Both start from a seed model: from random weights keywords stay near chance for as many rounds. Each
size takes the rate that is best on dev after half of the rounds with seed TUNING, without privacy. Writes
benchmarks/results/privacy_sizes.md, .json and .png. The same command resumes the study: it keeps finished runs, and
takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.pictures import Dot, dots
from benchmarks.rates import best_of, table, tune
from fedray.report.bootstrap import Counts, rate

COHORT, TUNING = 50, 3
RATES = (0.03, 0.1, 0.3, 1.0)
NONE = "no privacy"
BOUNDS = {"one bound": "global", "uniform": "uniform", "dim": "dim"}
PRIVATE = {"kind": "gaussian", "epsilon": 8, "delta": 1e-6, "as_if": {"cohort": 1_000, "population": 100_000}}


@dataclass(frozen=True)
class Setup:
    """A task, and its models by size. `epochs`, `batch`: of a client."""

    config: str
    metric: str
    given: dict[str, Any]
    models: dict[str, dict[str, Any]]
    best: Any = max


SETUPS = {
    "keywords": Setup(
        "configs/fedavg/keywords.yaml",
        "accuracy",
        {
            "data.options.client_speakers": 500,
            "data.options.server_speakers": 20,
            "algorithm.client": {"batch": 10, "epochs": 1, "clip": 5},
            "algorithm.pretrain": {"steps": 300, "lr": 3e-3, "warmup": 50, "batch": 8},
            "server_optimizer": {"kind": "momentum", "lr": 1.0},
        },
        {
            "0.03M": {"kind": "crnn", "size": "lite"},
            "0.2M": {"kind": "crnn", "size": "base"},
            "2.6M": {"kind": "crnn", "size": "wide"},
            "10M": {"kind": "crnn", "size": "large"},
        },
    ),
    "sentences": Setup(
        "configs/privacy/embedded.yaml",
        "wer",
        {
            "data.options.client_speakers": 500,
            "algorithm.client": {"batch": 6, "epochs": 2, "clip": 5},
            "cohort.fraction": None,
            "cohort.sampling": "uniform",
            "cohort.limit": None,
        },
        {
            "0.03M": {"kind": "conformer", "d_model": 32, "ffn": 64, "layers": 1},
            "0.2M": {"kind": "conformer", "d_model": 64, "ffn": 256, "layers": 2},
            "3.1M": {"kind": "conformer", "d_model": 144, "ffn": 576, "layers": 6},
        },
        min,
    ),
}
ARMS = {
    f"{name}, {size}, {privacy}": (name, size, privacy)
    for name, setup in SETUPS.items()
    for size in setup.models
    for privacy in (NONE, *(BOUNDS if name == "sentences" else ["one bound"]))
}


def overrides(arm: str, lr: float, seed: int, rounds: int, chosen: argparse.Namespace) -> list[str]:
    """The overrides of a run."""
    name, size, privacy = ARMS[arm]
    setup = SETUPS[name]
    given = {"seed": seed, "data.seed": seed, "rounds": rounds, "cohort.size": COHORT, "evaluation.every": 2}
    given |= {"strategy.kind": "uniform", "algorithm.buffers": "frozen", "model": setup.models[size], **setup.given}
    given["algorithm.client"] = setup.given["algorithm.client"] | {"lr": lr}
    if privacy == NONE:
        given["privacy"] = {"kind": "none"}
    else:
        given["privacy"] = PRIVATE | {"clip": {"kind": "adaptive", "norm": 1.0, "layers": BOUNDS[privacy]}}
    return [*study.overrides(given), f"engine.actors={chosen.actors}"]


def play(arm: str, lr: float, seed: int, rounds: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The counts of test by speaker in the best round, and how far the signal stands above the noise."""
    name, *_ = ARMS[arm]
    setup = SETUPS[name]
    results = study.run(setup.config, overrides(arm, lr, seed, rounds, chosen), place)
    snr = [row["privacy/snr"] for row in study.rounds(place) if row.get("privacy/snr") is not None]
    predicted = {model: study.predictions(place, model) for model in ("seed", "best")}
    found = {
        model: study.by_speaker(rows) if setup.metric == "wer" else study.right_by("speaker", rows)
        for model, rows in predicted.items()
    }
    return {
        "seed": seed,
        "rate": lr,
        "round": results["best"]["round"],
        "dev": results["best"][f"dev/{setup.metric}"],
        "epsilon": results.get("privacy", {}).get("epsilon"),
        "snr": sum(snr) / len(snr) if snr else None,
        "before": study.packed(found["seed"]),
        "best": study.packed(found["best"]),
    }


def tuned_rates(chosen: argparse.Namespace, known: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Arm without privacy -> the dev score of each rate."""
    tuned = dict(known)

    def score(arm: str, lr: float) -> float:
        print(f"{arm}, rate {lr:g}, seed {TUNING}", flush=True)
        place = chosen.runs / "tuning" / study.folder_name(f"{arm} {lr:g}")
        return float(play(arm, lr, TUNING, chosen.rounds // 2, place, chosen)["dev"])

    wanted = {f"{name}, {size}" for arm, (name, size, _) in ARMS.items() if any(text in arm for text in chosen.arms)}
    for name, size, privacy in ARMS.values():
        if privacy == NONE and (model := f"{name}, {size}") in wanted:
            trial = partial(score, f"{model}, {NONE}")
            tuned[model] = tune(RATES, slice(1, 3), trial, SETUPS[name].best, tuned.get(model))
    return tuned


def counts(runs: Sequence[dict[str, Any]], model: str = "best") -> list[Counts]:
    return [study.unpacked(run[model]) for run in runs]


def rows(found: study.Found, name: str, rounds: int) -> list[dict[str, str]]:
    """A row for each size and bound, with the change against the same size without privacy."""
    listed = []
    for arm, runs in found.items():
        setup, size, privacy = ARMS[arm]
        if setup != name:
            continue
        row = {"parameters": size, "bound": privacy, "test": str(rate(counts(runs)))}
        row |= {"by seed": ", ".join(f"{rate([one]).mean:.1f}" for one in counts(runs))}
        row |= {"seed model": str(rate(counts(runs, "before")))}
        for title, other in (("without privacy", NONE), ("one bound", "one bound")):
            here, there = study.common(runs, found.get(f"{name}, {size}, {other}", []))
            if here and privacy not in (NONE, other):
                row[f"minus {title} (points)"] = str(study.change(counts(there), counts(here), "points"))
        snr = [run["snr"] for run in runs if run["snr"] is not None]
        row["signal to noise"] = f"{sum(snr) / len(snr):.2g}" if snr else ""
        row["best rounds"] = study.best_rounds([run["round"] for run in runs], [rounds] * len(runs))
        listed.append(row | {"seeds": ", ".join(str(run["seed"]) for run in runs)})
    return listed


def draw(found: study.Found, path: Path) -> None:
    """Test scores by size and bound, a panel for each task."""
    panels: dict[str, dict[str, dict[str, Dot]]] = {}
    for arm, runs in found.items():
        name, size, privacy = ARMS[arm]
        score = rate(counts(runs))
        title = f"{name.capitalize()}: {'WER' if SETUPS[name].metric == 'wer' else SETUPS[name].metric}"
        panels.setdefault(title, {}).setdefault(size, {})[privacy] = score.mean, score.low, score.high
    dots(panels, "percent", path)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-privacy-sizes", rounds=40)
    chosen = study.chosen(parser, ARMS)
    page = study.page_before("privacy_sizes", rounds=chosen.rounds)
    tuned = tuned_rates(chosen, page.get("tuned", {}))

    def one(arm: str, seed: int, place: Path) -> dict[str, Any]:
        name, size, _ = ARMS[arm]
        lr = best_of(tuned[f"{name}, {size}"], SETUPS[name].best)
        return play(arm, lr, seed, chosen.rounds, place, chosen)

    found = study.gathered(page.get("found", {}), ARMS, chosen, study.place(chosen.runs), one)
    parts = [
        f"""# Privacy by the size of the model

FedAvg, {COHORT} clients a round, {chosen.rounds} rounds at a falling rate; epsilon 8 as if a round had 1,000 of
100,000 clients. Keywords: test accuracy of CRNNs, in percent. Sentences: test WER of Conformers with CTC, greedy. All
start from a seed model. A size has one rate, the best without privacy. Means over seeds with 95 % intervals from a
bootstrap over speakers: what other draws of noise and cohorts would give, the column by seed shows.

![Test scores by size and bound](privacy_sizes.png)"""
    ]
    for name in SETUPS:
        if listed := rows(found, name, chosen.rounds):
            parts.append(f"## {name.capitalize()}\n\n{study.table(listed)}")
    parts.append(f"## Rates, by dev without privacy\n\n{table(RATES, tuned)}")
    text = "\n\n".join(parts)
    print(text)
    draw(found, study.RESULTS / "privacy_sizes.png")
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    numbers = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    study.write("privacy_sizes", text, numbers, command, study.seeds(found))


if __name__ == "__main__":
    main()
