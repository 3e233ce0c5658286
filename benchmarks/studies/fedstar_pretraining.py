"""FedSTAR from random and from contrastively pre-trained weights: where a pre-trained start helps, and for how long.

    python -m benchmarks.studies.fedstar_pretraining [--only keywords events] [--labels 0.03 0.5] [--seeds 0 1 2]
                                                     [--arms random] [--rounds 50] [--actors 1] [--runs DIR]

Five clients and the settings of `fedstar_long`. Keywords start from weights trained on unlabelled embedded sentences by
other speakers (configs/fedstar/pretraining.yaml), sound events from weights trained on unlabelled sounds of other
sources (pretraining_events.yaml), once for all trials. Scores are those of the best round by dev. A linear classifier
on the network's features shows what each start knows of classes and speakers before any federation. Writes
benchmarks/results/fedstar_pretraining.md, .json and .png. The same command resumes the study: it keeps finished runs,
and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
from benchmarks.studies.fedstar_long import BATCH, best_rounds, curves, gain, play, save
from fedray import experiment
from fedray.data.features.dataset import batches
from fedray.experiment.pretraining import pretrain
from fedray.models.weights import load_weights
from fedray.report.canvas import COLOURS, STYLE


@dataclass(frozen=True)
class Corpus:
    """The configurations below configs/fedstar of a corpus and of its pre-training."""

    config: str
    pretraining: str


CORPORA = {
    "keywords": Corpus("embedded", "pretraining"),
    "events": Corpus("events", "pretraining_events"),
}
RANDOM, TRAINED = "random", "pre-trained"
ARMS = {f"{start}, beta = {beta:g}": (start, beta) for beta in (0, 0.5) for start in (RANDOM, TRAINED)}
EARLY = 10  # rounds, as in the paper's figure


@functools.cache
def pretrained(corpus: Corpus, folder: Path) -> tuple[Path, list[float]]:
    """The weights of a corpus' pre-training in a folder, made on first use, and its loss by epoch."""
    config = study.ROOT / "configs" / "fedstar" / f"{corpus.pretraining}.yaml"
    weights = pretrain(config, out=folder, say=lambda text: print(text, flush=True)).weights
    rows = (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines()
    return weights, [json.loads(row)["loss"] for row in rows]


def probe(corpus: Corpus, weights: Path | None) -> dict[str, float]:
    """Accuracy in percent of logistic regressions on the features of dev, five-fold: for classes and for speakers."""
    config, source = experiment.load(study.ROOT / "configs" / "fedstar" / f"{corpus.config}.yaml")
    data, _ = experiment.build_data(config, source)
    task = experiment.build_algorithm(config, data).task
    torch.manual_seed(0)
    model = task.model().eval()
    if weights is not None:
        load_weights(model, weights)
    dev, features = data.evaluation("dev"), {}
    frames = config.features.frames(config.task.settings.window)
    with torch.inference_mode():
        for batch in batches(dev, 32, None):
            cut = batch.features[:, :frames]
            window = torch.nn.functional.pad(cut, (0, 0, 0, frames - cut.shape[1]))
            embedded = model.embed(window, torch.full((len(window),), frames))
            features |= dict(zip(batch.positions, embedded.numpy(), strict=True))
    rows = np.stack([features[place] for place in range(len(dev))])
    asked = {"classes": task.targets(dev), "speakers": [dev.manifest.column("speaker")[row] for row in dev.rows]}
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return {
        name: 100 * float(cross_val_score(classifier, rows, np.asarray(y), cv=5).mean()) for name, y in asked.items()
    }


def table(found: study.Found) -> str:
    """A row per arm: dev after the paper's ten rounds, test of the best round, and what the pre-trained start gains."""
    rows = []
    for arm, runs in found.items():
        start, beta = ARMS[arm]
        early = [max(score for at, score in run["dev"] if at <= EARLY) for run in runs]
        row = {"start": arm, f"dev, best of {EARLY} rounds": study.spread(early)}
        row["test accuracy"] = study.spread([run["best"]["test/accuracy"] for run in runs])
        for title, other in ((f"gain over {RANDOM}", (RANDOM, beta)), ("gain from pseudo-labels", (start, 0))):
            (name,) = (name for name, same in ARMS.items() if same == other)
            row[title] = gain(found.get(name, []), runs) if name != arm else ""
        row["best rounds"] = best_rounds(runs)
        rows.append(row | {"seeds": ", ".join(str(run["seed"]) for run in runs)})
    return study.table(rows)


def draw(losses: Mapping[str, Sequence[float]], parts: Mapping[str, study.Found], path: Path) -> None:
    """The loss of each pre-training by epoch, and dev accuracy by round of each part, mean over the seeds."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4 * (1 + len(parts)), 4.2), layout="constrained")
        axes = figure.add_subplot(1, 1 + len(parts), 1)
        for colour, (name, values) in zip(COLOURS[len(ARMS) :], losses.items(), strict=False):
            axes.plot(range(1, len(values) + 1), values, color=colour, label=f"pre-training on {name}")
        axes.set_title("contrastive loss")
        axes.set_xlabel("epoch")
        for place, (title, found) in enumerate(parts.items(), 2):
            axes = figure.add_subplot(1, 1 + len(parts), place)
            curves(axes, found, [*ARMS])
            axes.set_title(f"dev accuracy (%): {title}")
        save(figure, path)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-pretraining", rounds=50)
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    parser.add_argument("--labels", type=float, nargs="+", default=[0.03, 0.5], metavar="L")
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("fedstar_pretraining", rounds=chosen.rounds)
    parts: dict[str, study.Found] = before.get("found", {})
    losses, read = before.get("losses", {}), before.get("read", {})
    for name in chosen.only:
        corpus = CORPORA[name]
        folder = chosen.runs.resolve() / corpus.pretraining
        for labels in chosen.labels:
            title = f"{name}, L = {100 * labels:g} %"
            parts[title] = played(name, labels, folder, parts.get(title, {}), chosen)
        if folder.exists():  # a run here started from it; runs on the earlier page keep its numbers
            weights, losses[name] = pretrained(corpus, folder)
            read[name] = {RANDOM: probe(corpus, None), TRAINED: probe(corpus, weights)}
    text = f"""# FedSTAR from random and pre-trained weights, {chosen.rounds} rounds

Test accuracy in percent of the best round by dev, mean ± SD over trials. Gains are in points, over the random start and
over the same steps without pseudo-labels (beta = 0), with the 95 % interval of a paired bootstrap over speakers (for
events over sources). Five clients.
"""
    text += "".join(f"\n## {title}\n\n{table(found)}\n" for title, found in parts.items())
    text += "\n## Linear probes of each start\n\nAccuracy in percent on dev of a linear classifier on the features of "
    text += "each start, before any federated training:\nfor the classes (words or sounds), and for the speakers or "
    text += "sources.\n\n"
    text += study.table(
        [{"corpus": name, "start": start} | scores for name, both in read.items() for start, scores in both.items()]
    )
    print(text)
    text += "\n\n![Contrastive loss by epoch, and dev accuracy by round](fedstar_pretraining.png)\n"
    only = [name for name in CORPORA if any(title.startswith(name) for title in parts)]
    labels = sorted({float(title.rpartition("= ")[2][:-2]) / 100 for title in parts})
    command = study.command(parser, chosen, only=only, labels=labels, arms=study.on_page(ARMS, *parts.values()))
    numbers = {"rounds": chosen.rounds, "losses": losses, "read": read, "found": parts}
    study.write("fedstar_pretraining", text, numbers, command, study.seeds(*parts.values()))
    draw(losses, parts, study.RESULTS / "fedstar_pretraining.png")


def played(name: str, labels: float, pretraining: Path, known: study.Found, chosen: argparse.Namespace) -> study.Found:
    """The runs on a corpus with a share of labels, by arm. `pretraining`: the folder of the weights."""
    common = [f"data.labelled.share={labels:g}", "data.clients.count=5", BATCH]
    common += [f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]

    def place(arm: str, seed: int) -> Path:
        return Path(chosen.runs / f"{name}-l{labels:g}" / f"seed-{seed}" / study.folder_name(arm))

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        start, beta = ARMS[arm]
        init = [f"model.init={pretrained(CORPORA[name], pretraining)[0]}"] if start == TRAINED else []
        return play(to, CORPORA[name].config, [*common, f"algorithm.beta={beta:g}", *init], seed)

    return study.gathered(known, ARMS, chosen, place, one)


if __name__ == "__main__":
    main()
