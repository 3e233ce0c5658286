"""FedSTAR from random and from contrastively pre-trained weights: accuracy after ten rounds, and curves; three trials.

    python -m benchmarks.studies.fedstar_pretraining [--seeds 0 1 2] [--runs runs/study-fedstar-pretraining]

Embedded keywords, 15 clients, 3 % and 50 % of the clips labelled (the paper's curves are at 50 %). Pre-training uses
unlabelled embedded sentences by other speakers (configs/fedstar/pretraining.yaml), once for all trials. Scores are
those of the best of ten rounds by dev. A linear classifier on the network's features shows what each start knows of
words and speakers before any federation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import study
from fedray import experiment
from fedray.data.features.dataset import batches
from fedray.experiment.pretraining import pretrain
from fedray.models.weights import load_weights
from fedray.report.canvas import COLOURS, STYLE

SHARES = {"3 %": ["data.labelled.share=0.03"], "50 %": ["data.labelled.share=0.5"]}
SHORT = ["rounds=10", "evaluation.every=1"]
CURVES = {"train/loss": "training loss", "dev/accuracy": "dev accuracy (%)"}


def play(share: str, start: str, weights: Path, seed: int, runs: Path) -> dict[str, Any]:
    """The results of a run, and the values of its curves by round."""
    out = runs / f"seed-{seed}" / f"{share.partition(' ')[0]}-{start}"
    print(f"seed {seed}, L = {share}, {start}: {out}", flush=True)
    init = [] if start == "random" else [f"model.init={weights}"]
    results = study.run(
        "configs/fedstar/embedded.yaml", [f"seed={seed}", f"data.seed={seed}", *SHARES[share], *SHORT, *init], out
    )
    rows = study.rounds(out)
    return {"best": results["best"], "rounds": {key: [row.get(key) for row in rows] for key in CURVES}}


def probe(weights: Path | None) -> dict[str, float]:
    """Accuracy in percent of logistic regressions on the features of dev, five-fold: for words and for speakers."""
    config, source = experiment.load(study.ROOT / "configs" / "fedstar" / "embedded.yaml")
    data, _ = experiment.build_data(config, source)
    task = experiment.build_algorithm(config, data).task
    torch.manual_seed(0)
    model = task.model().eval()
    if weights is not None:
        load_weights(model, weights)
    dev, features = data.evaluation("dev"), {}
    frames = round(1000 * config.task.settings.window / config.features.hop_ms)
    with torch.inference_mode():
        for batch in batches(dev, 32, None):
            cut = batch.features[:, :frames]
            window = torch.nn.functional.pad(cut, (0, 0, 0, frames - cut.shape[1]))
            embedded = model.embed(window, torch.full((len(window),), frames))
            features |= dict(zip(batch.positions, embedded.numpy(), strict=True))
    rows = np.stack([features[place] for place in range(len(dev))])
    asked = {"words": task.targets(dev), "speakers": [dev.manifest.column("speaker")[row] for row in dev.rows]}
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return {
        name: 100 * float(cross_val_score(classifier, rows, np.asarray(y), cv=5).mean()) for name, y in asked.items()
    }


def draw(losses: Sequence[float], found: dict[str, dict[str, list[dict[str, Any]]]], path: Path) -> None:
    """Plot the loss of pre-training by epoch, and for each share the curves of both starts, mean over trials."""
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
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-pretraining")
    chosen = parser.parse_args()
    config, folder = study.ROOT / "configs" / "fedstar" / "pretraining.yaml", chosen.runs.resolve() / "pretrained"
    weights = pretrain(config, out=folder, say=lambda text: print(text, flush=True)).weights
    losses = [json.loads(line)["loss"] for line in (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {
        share: {
            start: [play(share, start, weights, seed, chosen.runs) for seed in chosen.seeds]
            for start in ("random", "pre-trained")
        }
        for share in SHARES
    }
    draw(losses, found, study.RESULTS / "fedstar_pretraining.png")
    rows = []
    for share, starts in found.items():
        scores = {start: [one["best"]["test/accuracy"] for one in results] for start, results in starts.items()}
        gains = [after - before for before, after in zip(*scores.values(), strict=True)]
        rows.append(
            {"labels": share}
            | {start: study.spread(values) for start, values in scores.items()}
            | {"gain": study.spread(gains)}
        )
    title = "# FedSTAR after ten rounds: random and pre-trained starts"
    text = f"{title}\n\nTest accuracy in percent, mean ± SD over trials.\n\n{study.table(rows)}"
    read = {start: probe(None if start == "random" else weights) for start in ("random", "pre-trained")}
    text += (
        "\n\nAccuracy in percent, on dev, of a linear classifier on the features of each start before any federation:"
    )
    text += "\n\n" + study.table([{"start": start} | scores for start, scores in read.items()])
    study.write(
        "fedstar_pretraining",
        text,
        {"losses": losses, "found": found, "read": read},
        study.command(parser, chosen),
        chosen.seeds,
    )
    print(text)


if __name__ == "__main__":
    main()
