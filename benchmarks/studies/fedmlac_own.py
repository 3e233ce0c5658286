"""FedMLAC on its own terms: whom do personal models serve, each method at its own rate, at what traffic?

    python -m benchmarks.studies.fedmlac_own [--data emotions-91 arabic-commands] [--seeds 0 1 2] [--rounds N]
                                             [--arms FedAvg FedMLAC] [--runs DIR]

All speakers train, as in the paper's counts, and a fifth of each client's clips (of its recordings, where it has
several) is the test. An arm may have several models to score: the one that is broadcast, the client's after its
training, FedMLAC's plug-in, the mean of both models' logits. An arm has one rate, and its models come from the same
runs. The rate is the best for the model that the paper reports, the client's own, on the clips that the clients of
another seed (TUNING) hold out, after half of the rounds: of three rates and more, until the best has neighbours on both
sides; the page has the broadcast model's trials too. Models are scored after each quarter of the rounds, and after the
last one also on new speakers, personal ones those of NEW clients; trials score own clips alone, at their end. All
rounds are stepped through in this process. "arabic-commands" needs FEDRAY_SPEECH.

The most telling data sets and arms come first: LATER's follow after those of all data sets, unless --arms names arms.
Writes benchmarks/results/fedmlac_own_<data>.md and .json; other rounds become part of the name. The same command
resumes the study: it keeps finished runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import fedray
from benchmarks import rates, study
from benchmarks.rates import best_of, tune
from benchmarks.stepped import kept
from benchmarks.studies.fedmlac_data import DATA, settings
from fedray.core.metrics import Metrics
from fedray.experiment.workbench import Workbench

SGD = "client: {lr: 0.3, batch: 8, epochs: 2, clip: 5}, pretrain: {steps: 0}"
BROADCAST, TRAINED = "broadcast", "after the client's training"
# Arm -> its configuration, changes to it, and the models to score. The first model decides the rate.
ARMS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    "FedAvg": ("baselines/fedavg", [], (TRAINED, BROADCAST)),
    # as many bytes as FedMLAC's plug-in
    "CRNN-Lite": ("baselines/fedavg", ["model.size=lite"], (TRAINED, BROADCAST)),
    # Its personal models learn nothing from the plug-in, which is the smallest to save time.
    "isolated": ("ablations/isolated", ["model.size=tiny"], ("personal",)),
    "FedMLAC": ("embedded", ["algorithm.also_score=[plugin,both]"], ("personal", "plug-in", "both")),
    "Ditto": ("baselines/ditto", [], ("personal",)),
    "FedPer": ("baselines/fedavg", [f"algorithm={{kind: fedper, {SGD}}}"], ("personal",)),
}
LATER = ("Ditto", "FedPer")  # personal_keywords has them too
SILENT = "isolated"  # the arm that needs no traffic: its plug-in is of no use to its clients
PREFIXES = {TRAINED: "", "personal": "", "plug-in": "plugin_", "both": "both_"}  # of a model's personal scores
REFERENCES = (("FedAvg", TRAINED), ("FedAvg", BROADCAST))
ACCURACY, F1 = "accuracy", "macro_f1"
TITLES = {ACCURACY: "accuracy", F1: "pooled macro-F1"}
RATES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.2)
FIRST = slice(2, 5)  # of the rates
TUNING, QUARTERS, NEW = 3, 4, 10
WHOLE = 100_000  # the items of a client's count; its accuracy says how many are right
Counts = Mapping[str, Sequence[float]]  # "accuracy" and "macro_f1|class" -> (sum, count), as in Metrics


def described(data: str, arm: str, rate: float, seed: int, rounds: int) -> dict[str, Any]:
    """All on which a run depends: its configuration, the overrides, and its models."""
    base, changes, models = ARMS[arm]
    given = [f"seed={seed}", f"data.seed={seed}", "data.own_share=0.2", f"rounds={rounds}"]
    given += ["evaluation.personal_every=0", *changes, f"algorithm.client.lr={rate:g}"]
    return {"config": f"configs/fedmlac/{base}.yaml", "overrides": [*settings(data), *given], "models": list(models)}


def play(data: str, arm: str, rate: float, seed: int, rounds: int, trial: bool = False) -> dict[str, Any]:
    """The counts of each of an arm's models: of each client after each quarter of the rounds, and on new speakers.

    `trial`: after the last round alone, and not on new speakers.
    """
    print(f"{data}, {arm}, rate {rate:g}, seed {seed}, {rounds} rounds", flush=True)
    given = described(data, arm, rate, seed, rounds)
    bench, models = fedray.open(study.ROOT / given["config"], given["overrides"]), given["models"]
    scored = {rounds} if trial else {max(1, round(rounds * quarter / QUARTERS)) for quarter in range(1, QUARTERS + 1)}
    names = [ACCURACY, *(f"{F1}|{name}" for name in bench.task.classes)]
    state, quarters = bench.start(), list[dict[str, Any]]()

    def counts(metrics: Metrics, before: str = "") -> Counts:
        return {name: metrics.total(before + name) for name in names}

    def scores(client: str, split: str) -> dict[str, Counts]:
        """Model -> its counts on the client's part of a split, or on all of it."""
        found = bench.evaluate_personal(state, client, split).metrics
        of = {model: counts(found, PREFIXES[model]) for model in models if model != BROADCAST}
        part = bench.data.client_part(client, split)
        if BROADCAST in models and part is not None:
            shared = bench.task.evaluate(state.params, part, bench.algorithm.assets(bench.data), bench.device, False)
            of[BROADCAST] = counts(shared.metrics)
        return of

    for done in range(1, rounds + 1):
        state, _ = bench.step(state)
        if done in scored:
            mine = [one for one in bench.data.client_ids() if state.progress.took_part(one)]  # the same for all arms
            own = {one: scores(one, "own") for one in mine if len(bench.data.client_part(one, "own") or ())}
            totals = state.progress.totals
            sent = 0.0 if arm == SILENT else (totals["up_bytes"] + totals["down_bytes"]) / 1e6
            quarters.append({"round": done, "MB": sent, "own": own})
    new = dict[str, Any]()
    if "test" in bench.data.splits() and not trial:
        some = [scores(one, "test") for one in mine[:: max(1, len(mine) // NEW)][:NEW]]
        new = {model: summary(each[model] for each in some) for model in some[0]}
        if BROADCAST in models:
            new[BROADCAST] = summary([counts(bench.evaluate(state, "test").metrics, "test/")])
    return {"quarters": quarters, "new": new, "unknown": unknown(bench)}


def unknown(bench: Workbench) -> float:
    """The percentage of the own clips whose class their client never trains on."""
    missing = list[bool]()
    for client in bench.data.client_ids():
        trained, part = set(bench.data.load(client).labels), bench.data.client_part(client, "own")
        missing += [label not in trained for label in (part.labels if part is not None else ())]
    return 100 * mean(missing)


def summary(clients: Iterable[Counts]) -> dict[str, float]:
    """The mean accuracy over clients, and the macro-F1 of all their clips together, which is steadier, in percent."""
    of_clients = [Metrics.of({name: (pair[0], pair[1]) for name, pair in one.items()}) for one in clients]
    return {ACCURACY: mean(one[ACCURACY] for one in of_clients), F1: sum(of_clients, Metrics())[F1]}


def of_run(run: Mapping[str, Any], arm: str, seed: int, rate: float) -> dict[str, Any]:
    """What the page keeps of a run."""
    models = {}
    for model in ARMS[arm][2]:
        curve = [
            {"round": one["round"], "MB": round(one["MB"], 2)} | summary(each[model] for each in one["own"].values())
            for one in run["quarters"]
        ]
        last = {client: summary([of[model]])[ACCURACY] for client, of in run["quarters"][-1]["own"].items()}
        own = study.packed({client: (WHOLE, round(WHOLE * score / 100)) for client, score in last.items()})
        models[model] = {"own": own, "curve": curve, "new": run["new"].get(model)}
    return {"seed": seed, "rate": rate, "unknown": run["unknown"], "models": models}


def played(data: str, rounds: int, known: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """The rates and the runs of each arm: those on the earlier page, and what is missing."""
    at, tuned = Path(chosen.runs / f"{rounds}-rounds" / data), dict[str, dict[str, float]](known.get("tuned", {}))
    beside = dict[str, dict[str, float]](known.get("beside", {}))  # arm -> the broadcast model's score by rate

    def trial(arm: str, rate: float) -> float:
        place, of = at / "tuning" / f"{study.folder_name(arm)}-{rate:g}", (data, arm, rate, TUNING, max(1, rounds // 2))
        run, (first, *_) = kept(place, described(*of), lambda: play(*of, trial=True)), ARMS[arm][2]
        scores = {model: summary(own[model] for own in run["quarters"][-1]["own"].values()) for model in ARMS[arm][2]}
        if BROADCAST in scores:
            beside.setdefault(arm, {})[f"{rate:g}"] = scores[BROADCAST][ACCURACY]
        return scores[first][ACCURACY]

    def place_of(arm: str, seed: int) -> Path:
        tuned[arm] = tune(RATES, FIRST, partial(trial, arm), known=tuned.get(arm))
        return at / f"seed-{seed}" / f"{study.folder_name(arm)}-{best_of(tuned[arm]):g}"

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        rate = best_of(tuned[arm])
        of = data, arm, rate, seed, rounds
        return of_run(kept(to, described(*of), lambda: play(*of)), arm, seed, rate)

    found = study.gathered(known.get("found", {}), ARMS, chosen, place_of, one)
    return {"tuned": tuned, "beside": beside, "found": found}


def by_model(part: Mapping[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """(Arm, model) -> what its runs found, each with its seed."""
    return {
        (arm, model): [{"seed": run["seed"], **run["models"][model]} for run in runs]
        for arm, runs in part["found"].items()
        for model in ARMS[arm][2]
    }


def label(arm: str, model: str) -> str:
    """The name of a model in tables."""
    return f"{arm}, {model}" if len(ARMS[arm][2]) > 1 else arm


def table(part: Mapping[str, Any]) -> str:
    """A row for each model."""
    rows, found = [], by_model(part)
    for (arm, model), results in found.items():
        rate = best_of(part["tuned"][arm])
        row = {"model": label(arm, model), "rate": f"{rate:g}{'' if min(RATES) < rate < max(RATES) else '*'}"}
        for name, title in TITLES.items():
            row[f"own clips, {title}"] = study.spread([one["curve"][-1][name] for one in results])
        for reference in REFERENCES:
            before, after = study.common(found.get(reference, []), results)
            first, then = ([study.unpacked(one["own"]) for one in runs] for runs in (before, after))
            differs = before and (arm, model) != reference
            row[f"against {label(*reference)}"] = str(study.change(first, then, "points")) if differs else ""
        row["by seed"] = ", ".join(f"{one['curve'][-1][ACCURACY]:.1f}" for one in results)
        for name, title in TITLES.items():
            new = [one["new"][name] for one in results if one["new"]]
            row[f"new speakers, {title}"] = study.spread(new) if new else ""
        rows.append(row | {"MB": f"{mean(one['curve'][-1]['MB'] for one in results):.1f}"})
    return study.table(rows)


def curves(part: Mapping[str, Any]) -> str:
    """The accuracy on own clips after each quarter of the rounds with the megabytes until then, and the last gain."""
    rows = []
    for (arm, model), results in by_model(part).items():
        points: Sequence[Sequence[dict[str, Any]]] = list(zip(*(one["curve"] for one in results), strict=True))
        reached = [mean(one[ACCURACY] for one in at) for at in points]
        cells = {
            f"round {at[0]['round']}": f"{score:.1f} ({mean(one['MB'] for one in at):.0f} MB)"
            for at, score in zip(points, reached, strict=True)
        }
        rows.append({"model": label(arm, model)} | cells | {"in the last quarter": f"{reached[-1] - reached[-2]:+.1f}"})
    return study.table(rows)


def write(data: str, parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """Play what is missing of a data set, and write its page."""
    usual, changes = DATA[data]
    rounds = chosen.rounds or usual
    page = "_".join(["fedmlac_own", data, *([str(rounds)] if rounds != usual else [])])
    same = {"data": data, "rounds": rounds}
    part = played(data, rounds, study.page_before(page, **same), chosen)
    tried = {label(arm, ARMS[arm][2][0]): of for arm, of in part["tuned"].items()}
    tried |= {label(arm, BROADCAST): of for arm, of in part["beside"].items()}
    missing = {run["seed"]: f"{run['unknown']:.1f}" for runs in part["found"].values() for run in runs}
    where = "".join(f"`{change}` " for change in changes) or "arabic-commands-full "
    text = f"""# FedMLAC on its own terms: {data}

All clients train, {rounds} rounds, on {where}over
configs/fedmlac/embedded.yaml. Scores in percent after the last round on the fifth of its clips that each client holds
out ("own clips"): accuracy is the mean over clients, macro-F1 that of all clients' clips together; mean ± SD over
seeds. Differences are of accuracy, with 95 % intervals from a paired bootstrap over clients. By seed,
{", ".join(missing[seed] for seed in sorted(missing))} % of the own clips are of a class that their client never trains
on: no model that learns from this client alone can know it. New speakers: personal models of up to {NEW} clients. MB:
traffic of a run, both ways; isolated models need none. CRNN-Lite: FedAvg with the network of FedMLAC's plug-in.

An arm has one rate, at which the first of its models is best on seed {TUNING}. *: it is at the edge of those tried. The
last table says where the broadcast model would prefer another.

{table(part)}

Accuracy on own clips as training goes, and what the last quarter of the rounds added: an arm that still gains has not
levelled off.

{curves(part)}

Accuracy on own clips of seed {TUNING} by rate, after half of the rounds:

{rates.table(RATES, tried)}
"""
    print(text)
    command = study.command(parser, chosen, data=[data], arms=study.on_page(ARMS, part["found"]))
    study.write(page, text, {**same, **part}, command, study.seeds(part["found"]))


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac-own")
    parser.add_argument("--rounds", type=int, help="default: a number for each data set")
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    chosen = study.chosen(parser, ARMS)
    first = [arm for arm in ARMS if arm not in LATER]
    for arms in [first, list(LATER)] if chosen.arms == [""] else [chosen.arms]:
        for data in chosen.data:
            write(data, parser, argparse.Namespace(**{**vars(chosen), "arms": arms}))


if __name__ == "__main__":
    main()
