"""FedSTAR from random and from contrastively pre-trained weights: accuracy after ten rounds, and the curves. Three trials.

    python benchmarks/fedstar_pretraining.py [--seeds 0 1 2] [--runs runs/study-fedstar-pretraining]

Embedded keywords, 15 clients, 3 % and 50 % of the clips labelled (the paper's curves are at 50 %); pre-training hears embedded sentences by
other speakers, without labels (configs/fedstar/pretraining.yaml), once for all trials. Scored is the best of the ten rounds by dev.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import study
from matplotlib.figure import Figure

from fedray.pretraining import pretrain
from fedray.report.canvas import COLOURS, STYLE

SHARES = {"3 %": ["data.labelled.share=0.03"], "50 %": ["data.labelled.share=0.5", "algorithm.labelled_batch=null"]}
SHORT = ["rounds=10", "evaluation.every=1"]
CURVES = {"train/loss": "training loss", "dev/accuracy": "dev accuracy (%)"}


def play(share: str, start: str, weights: Path, seed: int, runs: Path) -> dict[str, Any]:
    """The results of a run, and of its rounds what the curves show."""
    out = runs / f"seed-{seed}" / f"{share.partition(' ')[0]}-{start}"
    print(f"seed {seed}, L = {share}, {start}: {out}", flush=True)
    init = [] if start == "random" else [f"model.init={weights}"]
    results = study.run("configs/fedstar/embedded.yaml", [f"seed={seed}", f"data.seed={seed}", *SHARES[share], *SHORT, *init], out)
    rows = study.rounds(out)
    return {"best": results["best"], "rounds": {key: [row.get(key) for row in rows] for key in CURVES}}


def draw(losses: Sequence[float], found: dict[str, dict[str, list[dict[str, Any]]]], path: Path) -> None:
    """Pre-training's loss by epoch, and for each share the curves of both starts: mean over trials."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.5), layout="constrained")
        axes = figure.add_subplot(2, 3, 1)
        axes.plot(range(1, len(losses) + 1), losses, color=COLOURS[0])
        axes.set_title("pre-training: contrastive loss")
        axes.set_xlabel("epoch")
        for row, (share, starts) in enumerate(found.items()):
            for column, (key, title) in enumerate(CURVES.items()):
                axes = figure.add_subplot(2, 3, 3 * row + column + 2)
                for colour, (start, results) in zip(COLOURS, starts.items(), strict=False):
                    values = [mean(known) for known in zip(*(one["rounds"][key] for one in results), strict=True)]
                    axes.plot(range(1, len(values) + 1), values, color=colour, label=start)
                axes.set_title(f"{title}, L = {share}")
                axes.set_xlabel("round")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-fedstar-pretraining", help="where the runs are kept")
    chosen = parser.parse_args()
    config, folder = study.ROOT / "configs" / "fedstar" / "pretraining.yaml", chosen.runs.resolve() / "pretrained"
    weights = pretrain(config, out=folder, say=lambda text: print(text, flush=True)).weights
    losses = [json.loads(line)["loss"] for line in (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {
        share: {start: [play(share, start, weights, seed, chosen.runs) for seed in chosen.seeds] for start in ("random", "pre-trained")}
        for share in SHARES
    }
    draw(losses, found, study.ROOT / "benchmarks" / "fedstar_pretraining.png")
    rows = []
    for share, starts in found.items():
        scores = {start: [one["best"]["test/accuracy"] for one in results] for start, results in starts.items()}
        gains = [after - before for before, after in zip(*scores.values(), strict=True)]
        rows.append({"labels": share} | {start: study.spread(values) for start, values in scores.items()} | {"gain": study.spread(gains)})
    title = "# FedSTAR after ten rounds: random and pre-trained starts"
    text = f"{title}\n\nTest accuracy in percent, mean ± SD over trials.\n\n{study.table(rows)}"
    study.write("fedstar_pretraining", text, {"losses": losses, "found": found}, "python benchmarks/fedstar_pretraining.py", chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
