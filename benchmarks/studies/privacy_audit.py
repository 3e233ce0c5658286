"""What released models give away: audits of one small federation, without privacy and at epsilon 8.

    python -m benchmarks.studies.privacy_audit [--seeds 0 1 2] [--arms canaries] [--rounds 60] [--actors N] [--runs DIR]

Keywords, a few clients and many steps, so that the model memorises its clients: the hardest case for privacy.
`canaries`: made-up clients with random labels, in federations of 8, 20 and 100 other clients. `speakers`: the corpus'
own speakers, of whom half train. `directions`: canaries without data, whose bound is compared with the claim. The same
command resumes the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import scipy
from matplotlib.figure import Figure

from benchmarks import study
from fedray.core.privacy.attacks import Scores, auroc
from fedray.report.bootstrap import Interval
from fedray.report.canvas import COLOURS, STYLE

CONFIG = "configs/privacy/audit.yaml"
NONE, PRIVATE = "no privacy", "epsilon 8"
PRIVACY = "privacy={kind: gaussian, epsilon: 8, delta: 1e-5, clip: {norm: 1.0}}"
SPEAKERS = ("data.options.client_speakers=40", "audit={kind: speakers, clients: 40, utterances: 10}")
ARMS = {
    f"canaries among 100 clients, {NONE}": ("data.options.client_speakers=100", "cohort.fraction=0.15"),
    f"canaries among 20 clients, {NONE}": ("data.options.client_speakers=20", "cohort.fraction=0.5"),
    f"canaries among 8 clients, {NONE}": (),
    f"canaries among 8 clients, {PRIVATE}": (PRIVACY,),
    f"speakers, {NONE}": SPEAKERS,
    f"speakers, {PRIVATE}": (*SPEAKERS, PRIVACY),
    f"directions, {PRIVATE}": ("audit={kind: directions, clients: 200}", PRIVACY),
}
DRAWS = 2000


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The run's results of its audit, the scores of the candidates, and the last model's accuracy on dev."""
    overrides = [f"seed={seed}", f"data.seed={seed}", f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]
    audit = study.run(CONFIG, [*ARMS[arm], *overrides], place)["audit"]
    candidates = pd.read_csv(place / "audit.tsv", sep="\t")
    return {
        "seed": seed,
        "accuracy": [row["dev/accuracy"] for row in study.rounds(place) if row.get("dev/accuracy") is not None][-1],
        "visits": float(pd.read_parquet(place / "clients.parquet")["rounds"].mean()),
        **{name: audit.get(name) for name in ("true_positives", "epsilon_low", "epsilon_claimed")},
        "inside": packed(candidates.score[candidates.inside == 1]),
        "outside": packed(candidates.score[candidates.inside == 0]),
    }


def packed(scores: Sequence[float]) -> str:
    """Scores as one text, for the JSON file of the page."""
    return " ".join(f"{score:.6g}" for score in scores)


def scores(run: dict[str, Any], side: str) -> Scores:
    """The scores of the candidates inside or outside, float64 [candidates]."""
    return np.array(run[side].split(), dtype=np.float64)


def told_apart(runs: Sequence[dict[str, Any]]) -> Interval:
    """AUROC, mean over seeds, with the 95 % interval of a bootstrap over the candidates of each seed and side."""
    samples = [scores(run, side) for run in runs for side in ("inside", "outside")]

    def average(*drawn: Scores) -> float:
        return mean(auroc(inside, outside) for inside, outside in zip(drawn[::2], drawn[1::2], strict=True))

    found = scipy.stats.bootstrap(
        samples, average, n_resamples=DRAWS, vectorized=False, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return Interval(average(*samples), float(found.low), float(found.high))


def table(found: study.Found) -> str:
    """One row per arm: what an attacker knows, and what the account claims."""
    rows = []
    for arm, runs in found.items():
        area, sides = told_apart(runs), [[len(scores(run, side)) for side in ("inside", "outside")] for run in runs]
        claimed = runs[0]["epsilon_claimed"]
        rows.append({
            "audit": arm,
            "inside, outside": "; ".join(f"{inside}, {outside}" for inside, outside in sides),
            "rounds of a client": f"{mean(run['visits'] for run in runs):.0f}",
            "AUROC": f"{area.mean:.2f} [{area.low:.2f}, {area.high:.2f}]",
            "AUROC by seed": ", ".join(f"{auroc(scores(run, 'inside'), scores(run, 'outside')):.2f}" for run in runs),
            "found at 1 % false positives (%)": study.spread([100 * run["true_positives"] for run in runs]),
            "epsilon at least": ", ".join(f"{run['epsilon_low']:.1f}" for run in runs),
            "epsilon claimed": "" if claimed is None else f"{claimed:.1f}",
            "dev accuracy (%)": study.spread([run["accuracy"] for run in runs]),
            "seeds": ", ".join(str(run["seed"]) for run in runs),
        })  # fmt: skip
    return study.table(rows)


def draw(found: study.Found, path: Path) -> None:
    """The scores of the first seed's candidates, a panel per arm: those inside in the upper row."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.1 * len(found) + 0.6), layout="constrained")
        for place, (arm, runs) in enumerate(found.items(), 1):
            axes = figure.add_subplot(len(found), 1, place)
            for height, (side, colour) in enumerate(zip(("outside", "inside"), COLOURS, strict=False)):
                values = scores(runs[0], side)
                axes.scatter(values, np.full(len(values), height), color=colour, alpha=0.5, s=18, linewidths=0)
            axes.set_title(arm, loc="left")
            axes.set_yticks([0, 1], ["outside", "inside"])
            axes.set_ylim(-0.6, 1.6)
            axes.grid(visible=False, axis="y")
        axes.set_xlabel("score of a candidate")
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-privacy-audit", rounds=60)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("privacy_audit", rounds=chosen.rounds).get("found", {})

    def place(arm: str, seed: int) -> Path:
        return Path(chosen.runs / study.folder_name(arm) / f"seed-{seed}")

    found = study.gathered(before, ARMS, chosen, place, lambda arm, seed, to: play(arm, seed, to, chosen))
    text = f"""# What released models reveal

Audits of FedAvg on keywords, {chosen.rounds} rounds. A fair coin puts each candidate inside the federation or outside,
and an attacker guesses which from the last model. *AUROC* is the probability that a candidate inside scores higher than
one outside, mean over seeds with the 95 % interval of a bootstrap over candidates; 0.5 is guessing. *Epsilon at least*
is the lower bound of each seed, with 95 % confidence.

{table(found)}

![The scores of the first seed's candidates](privacy_audit.png)"""
    print(text)
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("privacy_audit", text, {"rounds": chosen.rounds, "found": found}, command, study.seeds(found))
    draw(found, study.RESULTS / "privacy_audit.png")


if __name__ == "__main__":
    main()
