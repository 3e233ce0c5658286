"""FedNST at the length where its effects show: table 2 and labels made again, 200 rounds, three seeds.

    python -m benchmarks.studies.fednst_long [--arms SFL FedNST] [--seeds 0 1 2] [--rounds 200] [--actors 1]

Every arm starts from the same seed model and trains on 780 utterances a round, central ones on 767. Test is scored with
the language model, as in the paper, and greedily; the round is chosen on dev by greedy WER. The server's rate follows
the clients'. The seeds draw the corpus and the training. Writes benchmarks/results/fednst_long.md, .json and .png. The
same command resumes; finished runs are kept. Several processes, each with its own --seeds, can share the work; the
command without --seeds then writes the page from their runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks import study
from fedray.report.bootstrap import Counts, recovered
from fedray.report.canvas import COLOURS, STYLE

Arm = tuple[str, list[str]]  # configuration below configs/fednst, overrides
FEDERATED = ["algorithm.server_scheduled=true"]
ARMS: dict[str, Arm] = {
    "SL": ("baselines/sl.yaml", []),
    "SFL": ("baselines/sfl.yaml", FEDERATED),
    "NST": ("baselines/nst.yaml", []),
    "FedNST": ("embedded.yaml", FEDERATED),
    "FedNST, labels every 10 rounds": ("embedded.yaml", [*FEDERATED, "algorithm.relabel=10"]),
    "FedNST, labels every round": ("embedded.yaml", [*FEDERATED, "algorithm.relabel=every_round"]),
}
SEED, REFERENCE = "seed model", "SFL"
SCORES = {"test/wer_lm": "errors_lm", "test/wer": "errors"}  # and their columns in predictions.tsv
Found = dict[str, list[dict[str, Any]]]  # arm -> its runs


def play(arm: str, seed: int, settings: Sequence[str], runs: Path) -> dict[str, Any]:
    """The scores of a run and of its seed model, errors by speaker, and dev by round."""
    config, overrides = ARMS[arm]
    out = runs / f"seed-{seed}" / study.folder_name(arm)
    print(f"seed {seed}, {arm}: {out}", flush=True)
    results = study.run(f"configs/fednst/{config}", [f"seed={seed}", f"data.seed={seed}", *settings, *overrides], out)
    return result(out, results)


def result(out: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """What the tables take of a finished run in the folder `out`."""
    rows = study.rounds(out)
    labels = [row["train/label_wer"] for row in rows if row.get("train/label_wer") is not None]
    return {
        "best": results["best"],
        "seed": results["seed"],
        "rounds": len(rows),
        "dev": [(row["round"], row["dev/wer"]) for row in rows if row.get("dev/wer") is not None],
        "labels": (labels[0], labels[-1]) if labels else None,
        "labels of all rounds": mean(labels) if labels else None,
        "counts": {model: _by_score(study.predictions(out, model)) for model in ("seed", "best")},
    }


def _by_score(rows: Sequence[Mapping[str, Any]]) -> dict[str, Counts]:
    """Score -> words and errors by speaker; a run that decodes greedily has no errors with the language model."""
    return {score: study.by_speaker(rows, column) for score, column in SCORES.items() if column in rows[0]}


def row(arm: str, found: Found) -> dict[str, str]:
    """An arm's scores, their change from the seed model, and their share of what SFL gains."""
    runs = found[arm]
    cells = {"arm": arm}
    for score in SCORES:
        title = "LM" if score.endswith("lm") else "greedy"
        cells[f"test, {title}"] = study.spread([run["best"][score] for run in runs])
        cells[f"change, {title}"] = str(study.change(_counts(runs, "seed", score), _counts(runs, "best", score)))
        if REFERENCE in found:
            gains = (_counts(each, model, score) for each in (runs, found[REFERENCE]) for model in ("seed", "best"))
            share = recovered(*gains)
            cells[f"of SFL's gain, {title} (%)"] = "100" if arm == REFERENCE else str(share or "")
    labels = [run["labels"] for run in runs if run["labels"]]
    ends = [mean(values) for values in zip(*labels, strict=True)]
    cells["labels' WER, first and last round"] = " → ".join(f"{end:.1f}" for end in ends)
    cells["best rounds"] = study.best_rounds(
        [run["best"]["round"] for run in runs], [run["dev"][-1][0] for run in runs]
    )
    return cells


def _counts(runs: Sequence[Mapping[str, Any]], model: str, score: str) -> list[Counts]:
    return [run["counts"][model][score] for run in runs]


def draw(found: Found, path: Path) -> None:
    """Dev WER by round, mean over the seeds."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for colour, (arm, runs) in zip(COLOURS, found.items(), strict=False):
            rounds = [at for at, _ in runs[0]["dev"]]
            errors = [mean(run["dev"][place][1] for run in runs) for place in range(len(rounds))]
            axes.plot(rounds, errors, color=colour, label=arm)
        axes.set_xlabel("round")
        axes.set_ylabel("dev WER (%), greedy")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=3)
        figure.savefig(path, dpi=150)


def page(found: Found, rounds: int, seeds: Sequence[int]) -> str:
    runs = next(iter(found.values()))
    start = {score: study.spread([run["seed"][score] for run in runs]) for score in SCORES}
    return f"""# FedNST over {rounds} rounds

On the embedded corpus the seed model is trained on 40 labelled speakers; 60 clients with 60 utterances each have no
labels. Word error rate in percent on 1,200 utterances by 60 new speakers, mean ± SD over {len(seeds)} seeds of corpus
and training, by beam search with the language model ("LM", the paper's metric) and greedily. The round is the best by
greedy dev WER. Changes from the seed model and shares of SFL's gain have 95 % intervals from a paired bootstrap over
speakers.

Seed model: {start["test/wer_lm"]} (LM), {start["test/wer"]} (greedy).

{study.table([row(arm, found) for arm in found])}

![Dev WER by round](fednst_long.png)
"""


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fednst-long", rounds=200)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    chosen = parser.parse_args()
    settings = [f"rounds={chosen.rounds}", "evaluation.every=2", f"engine.actors={chosen.actors}"]
    found: Found = {arm: [] for arm in chosen.arms}
    for seed in chosen.seeds:
        for arm, runs in found.items():
            runs.append(play(arm, seed, settings, chosen.runs))
    text = page(found, chosen.rounds, chosen.seeds)
    print(text)
    if len(chosen.seeds) > 1:
        numbers = {arm: [{**run, "counts": None} for run in runs] for arm, runs in found.items()}
        study.write("fednst_long", text, {"found": numbers}, study.command(parser, chosen), chosen.seeds)
        draw(found, study.RESULTS / "fednst_long.png")


if __name__ == "__main__":
    main()
