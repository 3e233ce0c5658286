"""FedSTAR at the length where its effects show: what pseudo-labels are worth at equal steps, 100 rounds.

    python -m benchmarks.studies.fedstar_long [--clients 5 30] [--labels 0.03 0.2] [--seeds 0 1 2] [--arms beta]
                                              [--rounds 100] [--actors 1] [--runs DIR]

Embedded keywords, temperature 1, batches of four clips in all arms. Each step of FedSTAR has as many labelled clips as
unlabelled ones, if a client has that many; `beta = 0` takes the same steps without pseudo-labels. "As many steps" is
the supervised federation with 1/L - 1 passes a round, and so with as many labelled clips. It takes 2 % more steps with
N = 5 and 25 to 33 % more with N = 30, since each of its passes ends with a smaller batch. Scores are those of the best
round by dev, on new speakers. Writes benchmarks/results/fedstar_long.md, .json and .png. The same command resumes the
study: it keeps finished runs, and takes runs whose folders are gone from the earlier page. Settings, arms and seeds
that were not chosen stay on the page. Several processes, each with its own --seeds, can share the work; the last
command writes the page from their runs.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import study
from fedray.report.canvas import COLOURS, STYLE

SUPERVISED, NONE = "supervised", "FedSTAR, beta = 0"
BATCH = "algorithm.client.batch=4"


def arms(labels: float) -> dict[str, tuple[str, list[str]]]:
    """Arm -> configuration below configs/fedstar and overrides, for a share of labelled clips."""
    passes = round((1 - labels) / labels)
    star = {f"FedSTAR, beta = {beta:g}": ("embedded", [f"algorithm.beta={beta:g}", BATCH]) for beta in (0, 0.5, 1)}
    return {
        SUPERVISED: ("baselines/supervised", [BATCH]),
        "supervised, as many steps": ("baselines/supervised", [BATCH, f"algorithm.client.epochs={passes}"]),
        **star,
    }


def play(place: Path, config: str, settings: Sequence[str], seed: int, unit: str = "speaker") -> dict[str, Any]:
    """The scores of a run, its right answers by `unit` (speaker or utterance), dev and pseudo-labels by round."""
    results = study.run(f"configs/fedstar/{config}.yaml", [f"seed={seed}", f"data.seed={seed}", *settings], place)
    rows = study.rounds(place)
    return {
        "seed": seed,
        "best": results["best"],
        "right of": study.packed(study.right_by(unit, study.predictions(place, "best"))),
        "dev": [(row["round"], row["dev/accuracy"]) for row in rows if row.get("dev/accuracy") is not None],
        "kept": [row.get("train/labels_kept") for row in rows],
        "right": [row.get("train/label_accuracy") for row in rows],
    }


def table(found: study.Found) -> str:
    """One row per arm: its accuracy, its gains, and the shares of pseudo-labels kept and right."""
    rows = []
    for arm, runs in found.items():
        row = {"arm": arm, "test accuracy": study.spread([run["best"]["test/accuracy"] for run in runs])}
        for name, other in (("beta = 0", NONE), ("supervised", SUPERVISED)):
            row[f"gain over {name}"] = gain(found.get(other, []), runs) if arm != other else ""
        for name, key in (("pseudo-labels kept", "kept"), ("of these correct", "right")):
            last = [value for run in runs for value in run[key][-5:] if value is not None]
            row[f"{name}, last 5 rounds (%)"] = f"{mean(last):.0f}" if last and arm.startswith("FedSTAR") else ""
        row["best rounds"] = best_rounds(runs)
        rows.append(row | {"seeds": ", ".join(str(run["seed"]) for run in runs)})
    return study.table(rows)


def best_rounds(runs: Sequence[dict[str, Any]]) -> str:
    """The best round of each run, of all its rounds."""
    return study.best_rounds([run["best"]["round"] for run in runs], [run["dev"][-1][0] for run in runs])


def gain(theirs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> str:
    """The change in points, over the seeds that both arms have, with its interval; "" without such seeds."""
    before, after = ([study.unpacked(run["right of"]) for run in runs] for runs in study.common(theirs, ours))
    return str(study.change(before, after, "points")) if before else ""


def curves(axes: Axes, found: study.Found, names: Sequence[str]) -> None:
    """Draw dev accuracy by round, mean over the seeds, of each arm in the colour of its place in `names`."""
    for arm, runs in found.items():
        rounds = [at for at, _ in runs[0]["dev"]]
        scores = [mean(run["dev"][at][1] for run in runs) for at in range(len(rounds))]
        axes.plot(rounds, scores, color=COLOURS[names.index(arm)], label=arm)
    axes.set_xlabel("round")


def save(figure: Figure, path: Path) -> None:
    """Write the figure with one legend of the lines of all its panels."""
    drawn = {line.get_label(): line for axes in figure.axes for line in axes.lines}
    figure.legend(drawn.values(), drawn, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=150)


def draw(parts: Mapping[str, study.Found], path: Path) -> None:
    """Dev accuracy by round, mean over the seeds, one panel per setting, four in a row."""
    across, down = min(len(parts), 4), -(-len(parts) // 4)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(7, 5 * across), 4.2 * down), layout="constrained")
        for place, (title, found) in enumerate(parts.items(), 1):
            axes = figure.add_subplot(down, across, place)
            curves(axes, found, [*arms(1.0)])
            axes.set_title(title)
            axes.set_ylabel("dev accuracy (%)")
        save(figure, path)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-long", rounds=100)
    parser.add_argument("--clients", type=int, nargs="+", default=[5, 30], metavar="N")
    parser.add_argument("--labels", type=float, nargs="+", default=[0.03, 0.2], metavar="L")
    chosen = study.chosen(parser, arms(1.0))
    parts: dict[str, study.Found] = study.page_before("fedstar_long", rounds=chosen.rounds).get("found", {})
    for count, labels in itertools.product(chosen.clients, chosen.labels):
        title = f"N = {count}, L = {100 * labels:g} %"
        parts[title] = played(count, labels, parts.get(title, {}), chosen)
    text = f"# FedSTAR over {chosen.rounds} rounds\n\nTest accuracy in percent, mean ± SD over trials. Gains are "
    text += "in points, over the same steps without pseudo-labels\n(beta = 0) and over the supervised federation, with "
    text += "the 95 % interval of a paired bootstrap over speakers.\n"
    text += "".join(f"\n## {title}\n\n{table(found)}\n" for title, found in parts.items())
    print(text)
    text += "\n![Dev accuracy by round](fedstar_long.png)\n"
    command = study.command(parser, chosen, **of_page(parts))
    study.write("fedstar_long", text, {"rounds": chosen.rounds, "found": parts}, command, study.seeds(*parts.values()))
    draw(parts, study.RESULTS / "fedstar_long.png")


def of_page(parts: Mapping[str, study.Found]) -> dict[str, Any]:
    """--clients, --labels and --arms of the command that repeats all settings of the page."""
    titles = [re.findall(r"[\d.]+", title) for title in parts]
    clients = sorted({int(count) for count, _ in titles})
    shares = sorted({float(share) / 100 for _, share in titles})
    return {"clients": clients, "labels": shares, "arms": study.on_page(arms(1.0), *parts.values())}


def played(count: int, labels: float, known: study.Found, chosen: argparse.Namespace) -> study.Found:
    """The runs of a setting by arm."""
    found = arms(labels)
    common = [f"data.clients.count={count}", f"data.labelled.share={labels:g}"]
    common += [f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]

    def place(arm: str, seed: int) -> Path:
        return Path(chosen.runs / f"n{count}-l{labels:g}" / f"seed-{seed}" / f"arm-{[*found].index(arm)}")

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        config, overrides = found[arm]
        return play(to, config, [*common, *overrides], seed)

    return study.gathered(known, found, chosen, place, one)


if __name__ == "__main__":
    main()
