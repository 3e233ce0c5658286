"""FedLoRA against FedAvg to patience: WER over rounds and bytes, adapters of rank 2 to 16, each at its own rate.

    python -m benchmarks.studies.fedlora_long [--only dialects attention domains digits] [--seeds 0 1 2] [--arms FedAvg]
                                              [--rounds 200] [--actors 1] [--runs DIR]

Scaling alpha is twice the rank, as in the paper. "With biases and norms" tunes these as a whole, besides the adapters.
Seed 0 trains every method at three rates or more, until the best by dev has a lower and a higher neighbour. The other
seeds train at the best rate. A run ends when dev has not improved for 20 rounds; scores are those of the best round by
dev. Models without a decoder decode test greedily, those with one (`attention`) by beam search. Digits need
FEDRAY_SPEECH. Writes benchmarks/results/fedlora_long_<corpus>.md, .json and .png. The same command resumes the study:
it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks import study
from benchmarks.studies.fedlora import CORPORA, drawn
from benchmarks.studies.fednst_digits import by_recording, strings
from fedray import experiment
from fedray.report.bootstrap import Counts, change, rate, recovered
from fedray.report.canvas import COLOURS, STYLE

SHOWN = ("dialects", "attention", "domains", "digits")
WHOLE = "FedAvg"
METHODS = {WHOLE: ["algorithm.lora.rank=0"]} | {
    f"FedLoRA{also}, rank {rank}": [f"algorithm.lora.rank={rank}", f"algorithm.lora.alpha={2 * rank}", *tuned]
    for also, tuned in (("", []), (" with biases and norms", ["algorithm.lora.whole=['bias$','[Nn]orm']"]))
    for rank in (2, 8, 16)
}
# Factors on the configuration's rate; without adapters, on the rate in `fedlora`'s study.
PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
FIRST = slice(3, 6)  # of PARTS, tried before the neighbours of the best
CHOOSES = 0  # the seed that chooses the rates
PATIENCE = 20
BUDGETS = (1, 2, 5, 10, 20, 50)  # rounds of FedAvg whose bytes are compared


def arms(corpus: str) -> dict[str, list[str]]:
    """Method and rate -> overrides of the corpus' configuration."""
    chosen = CORPORA[corpus]
    adapters = experiment.load(study.ROOT / "configs" / "fedlora" / f"{chosen.trained}.yaml")[0].algorithm.settings
    found = {}
    for method, overrides in METHODS.items():
        for part in PARTS:
            lr = part * (float(chosen.rate) if method == WHOLE else adapters.client.lr)
            found[f"{method}, {lr:g}"] = [*overrides, f"algorithm.client.lr={lr:g}"]
    return found


def play(corpus: str, overrides: Sequence[str], settings: Sequence[str], seed: int, place: Path) -> dict[str, Any]:
    """Errors by speaker of the server's model and of the best round, dev by round, and the bytes of rounds.

    "dev" by round is decoded greedily; "dev of the best", which chooses the rate, is decoded like test.
    """
    chosen = CORPORA[corpus]
    common = [*drawn(corpus, seed), f"evaluation.patience={PATIENCE}", *settings]
    results = study.run(f"configs/fedlora/{chosen.trained}.yaml", [*common, *overrides], place)
    rows = study.rounds(place)
    a_round = rows[-1]["traffic/up_bytes"] + rows[-1]["traffic/down_bytes"]
    column, config = chosen.score.replace("wer", "errors"), f"configs/fedlora/{chosen.trained}.yaml"
    count = study.by_speaker
    if chosen.speech:  # three speakers are too few for intervals
        count = functools.partial(by_recording, recordings=strings(config, common))
    counts = {model: count(study.predictions(place, model), column) for model in ("seed", "best")}
    return {
        "seed": seed,
        "round": results["best"]["round"],
        "dev of the best": results["best"][f"dev/{chosen.score}"],
        "dev": " ".join(f"{score:.2f}" for score in [results["seed"]["dev/wer"], *(row["dev/wer"] for row in rows)]),
        "MB a round": a_round / 1e6,
        "MB once": (results["traffic/total_bytes"] - len(rows) * a_round) / 1e6,  # the frozen model, before round 1
        "before": study.packed(counts["seed"]),
        "best": study.packed(counts["best"]),
    }


def by_method(found: study.Found) -> dict[str, list[str]]:
    """Method -> its arms with the seed that chooses the rates, the best by dev first."""
    devs = {arm: run["dev of the best"] for arm, runs in found.items() for run in runs if run["seed"] == CHOOSES}
    named = {method: [arm for arm in devs if arm.startswith(f"{method}, ")] for method in METHODS}
    return {method: sorted(known, key=devs.__getitem__) for method, known in named.items() if known}


def undecided(arms: Iterable[str], found: study.Found) -> list[str]:
    """The arms that each method needs before its best rate is known: the first ones, then the best one's neighbours."""
    arms, best = list(arms), {method: known[0] for method, known in by_method(found).items()}
    wanted = []
    for method in METHODS:
        rates = [arm for arm in arms if arm.startswith(f"{method}, ")]
        at = rates.index(best[method]) if method in best else None
        wanted += rates[FIRST if at is None else slice(max(0, at - 1), at + 2)]
    return [arm for arm in wanted if not any(run["seed"] == CHOOSES for run in found.get(arm, []))]


def at_best(found: study.Found) -> study.Found:
    """Method -> its runs at the rate that dev chose."""
    return {method: found[best] for method, (best, *_) in by_method(found).items()}


def dev(run: Mapping[str, Any]) -> list[float]:
    """WER on dev before training and after each round."""
    return [float(score) for score in run["dev"].split()]


def kept(run: Mapping[str, Any], rounds: int) -> float:
    """WER on dev of the best model so far after some rounds."""
    return min(dev(run)[: rounds + 1])


def sent(run: Mapping[str, Any], rounds: int) -> float:
    """MB sent after some rounds, the frozen model included."""
    return float(run["MB once"] + rounds * run["MB a round"])


def of(runs: Iterable[Mapping[str, Any]], model: str) -> list[Counts]:
    return [study.unpacked(run[model]) for run in runs]


def scores(found: study.Found) -> str:
    """A row for each method at the rate that dev chose."""
    rows, whole = [], at_best(found).get(WHOLE, [])
    for method, (arm, *others) in by_method(found).items():
        runs, lengths = found[arm], [len(dev(run)) - 1 for run in found[arm]]
        row: dict[str, Any] = {"method": method, "rate": arm.rpartition(", ")[2]}
        row["other rates, dev"] = ", ".join(
            f"{other.rpartition(', ')[2]}: {found[other][0]['dev of the best'] - runs[0]['dev of the best']:+.1f}"
            for other in others
        )
        row["test WER"] = str(rate(of(runs, "best")))
        row["change"] = str(change(of(runs, "before"), of(runs, "best"), "points"))
        theirs, ours = study.common(whole, runs) if method != WHOLE else ([], [])
        pairs = study.from_one_start(theirs, ours)
        before, after = ([of(each, "best") for each in zip(*pairs, strict=True)]) if pairs else ([], [])
        row["against FedAvg"] = str(change(before, after, "points")) if pairs else ""
        gains = [of(each, model) for each in (ours, theirs) for model in ("before", "best")]
        row["of FedAvg's gain (%)"] = str(recovered(*gains) or "") if ours else ""
        row |= {"MB sent once": f"{runs[0]['MB once']:.2f}", "MB a round": f"{runs[0]['MB a round']:.2f}"}
        row["MB until the best round"] = mean(sent(run, run["round"]) for run in runs)
        row["best rounds"] = study.best_rounds([run["round"] for run in runs], lengths)
        rows.append(row | {"seeds": ", ".join(str(run["seed"]) for run in runs)})
    return study.table(rows)


def affords(run: Mapping[str, Any], budget: float) -> int:
    """The number of whole rounds that a run can afford with a budget in MB."""
    return max(0, int((budget - run["MB once"]) / run["MB a round"] + 1e-6))  # 50 rounds of 7.05 MB are not 49.99


def equal_bytes(found: study.Found) -> str:
    """Dev WER of each method's best model so far, at the bytes of some rounds of FedAvg, and the change from FedAvg."""
    chosen = at_best(found)
    whole = chosen[WHOLE]
    rows = []
    for budget in BUDGETS:
        sent = budget * whole[0]["MB a round"]
        row: dict[str, Any] = {"rounds of FedAvg": budget, "MB": sent}
        for method, runs in chosen.items():
            theirs, ours = study.common(whole, runs)
            if not ours:
                continue
            scores = [kept(run, affords(run, sent)) for run in ours]
            pairs = study.from_one_start(theirs, ours) if method != WHOLE else []
            changes = [kept(mine, affords(mine, sent)) - kept(run, budget) for run, mine in pairs]
            spread = f" ± {stdev(changes):.1f}" if len(changes) > 1 else ""
            row[method] = f"{mean(scores):.1f}" + (f" ({mean(changes):+.1f}{spread})" if pairs else "")
        rows.append(row)
    return study.table(rows)


def draw(found: study.Found, path: Path) -> None:
    """Dev WER of the best model so far by round and by bytes, mean over the seeds."""
    chosen = at_best(found)
    longest = max(len(dev(run)) - 1 for runs in chosen.values() for run in runs)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for colour, (method, runs) in zip(COLOURS, chosen.items(), strict=False):
            rounds = range(max(len(dev(run)) for run in runs))
            errors = [mean(kept(run, at) for run in runs) for at in rounds]
            left.plot([*rounds, longest], [*errors, errors[-1]], color=colour, label=method)
            right.plot([sent(runs[0], at) for at in rounds[1:]], errors[1:], color=colour)
        left.set_xlabel("round")
        left.set_ylabel("dev WER (%) of the best model so far")
        right.set_xlabel("MB sent by and to all clients")
        right.set_xscale("log")
        right.xaxis.set_major_formatter("{x:g}")
        figure.legend(loc="outside lower center", ncols=4)
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedlora-long", rounds=200)
    parser.add_argument("--only", nargs="+", choices=SHOWN, default=list(SHOWN))
    chosen = study.chosen(parser, lambda options: [arm for corpus in options.only for arm in arms(corpus)])
    for corpus in chosen.only:
        found, name = played(corpus, chosen), f"fedlora_long_{corpus}"
        text = f"# FedLoRA with early stopping: {corpus}\n\nTest WER in percent of the best round by dev, mean over "
        text += "seeds, and changes in points from the server's model and from\nFedAvg, with 95 % intervals from a "
        text += f"paired bootstrap over speakers. A run stops after {PATIENCE} rounds without\nimprovement. The "
        text += f"rate is the best by dev of seed {CHOOSES}; the next column shows by how much the other rates were "
        text += "worse\nthere. "
        text += "Runs that started from other models than FedAvg's are not compared with it; each run's gain is "
        text += "measured from its\nown start."
        begun = [arm for arm in arms(corpus) if arm.rpartition(", ")[0] in by_method(found)]
        if missing := undecided(begun, found):
            text += f"\nRates not yet run: {'; '.join(missing)}."
        if CORPORA[corpus].speech:
            text += "\nOn digits the intervals are over recordings instead, since strings share them; the speakers are "
            text += "held fixed."
        if CORPORA[corpus].score != "wer":
            text += "\n\nTest is decoded by beam search, and so is dev for the choice of the rate. Dev by round, which "
            text += "chooses a\nrun's best round, is decoded greedily by CTC."
        text += "\n\n"
        text += scores(found)
        if WHOLE in by_method(found):
            text += "\n\n## At equal bytes\n\nDev WER of the best model so far, and the change from FedAvg in points, "
            text += "mean ± SD over seeds. Bytes include the\nfrozen model, which is sent to each client once.\n\n"
            text += equal_bytes(found)
        print(text)
        text += f"\n\n![Dev WER by round and by bytes]({name}.png)"
        command = study.command(parser, chosen, only=[corpus], arms=study.on_page(METHODS, by_method(found)))
        study.write(name, text, {"rounds": chosen.rounds, "found": found}, command, study.seeds(found))
        draw(found, study.RESULTS / f"{name}.png")


def played(corpus: str, chosen: argparse.Namespace) -> study.Found:
    """The runs: seed CHOOSES at more rates until the best by dev has neighbours, then all seeds at the best."""
    overrides = arms(corpus)
    settings = [f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]

    def place(arm: str, seed: int) -> Path:
        return Path(chosen.runs / corpus / f"seed-{seed}" / study.folder_name(arm))

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        return play(corpus, overrides[arm], settings, seed, to)

    found: study.Found = study.page_before(f"fedlora_long_{corpus}", rounds=chosen.rounds).get("found", {})
    while missing := [arm for arm in undecided(overrides, found) if any(text in arm for text in chosen.arms)]:
        found = study.gathered(found, overrides, argparse.Namespace(seeds=[CHOOSES], arms=missing), place, one)
    best = [arms[0] for arms in by_method(found).values() if any(text in arms[0] for text in chosen.arms)]
    return study.gathered(found, overrides, argparse.Namespace(seeds=chosen.seeds, arms=best), place, one)


if __name__ == "__main__":
    main()
