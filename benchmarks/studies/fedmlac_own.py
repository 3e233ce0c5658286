"""FedMLAC on its own terms: whom do personal models serve, each method at its own rate, at what traffic?

    python -m benchmarks.studies.fedmlac_own --data emotions-91 [--seeds 0 1 2] [--rounds 200] [--runs DIR]
                                             [--arms FedAvg "FedMLAC, both"]

All speakers train, as in the paper's counts, and a fifth of each client's clips (of its recordings, where it has
several) is the test. A method may have several models to score: the one that is broadcast, the client's after its
training, FedMLAC's plug-in, the mean of both models' logits. Each takes the rate at which it is best on the clips that
the clients of another seed (TUNING) hold out, after half of the rounds: of three rates and more, until the best has
neighbours on both sides. Models are scored after each quarter of the rounds, and after the last one also on new
speakers, personal ones those of NEW clients. All rounds are stepped through in this process. "arabic-commands" needs
FEDRAY_SPEECH. Writes benchmarks/results/fedmlac_own_<data>.md and .json; other rounds become part of the name. The same
command resumes the study: it keeps finished runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import fedray
from benchmarks import study
from benchmarks.rates import best_of, tune
from benchmarks.stepped import kept

SGD = "client: {lr: 0.3, batch: 8, epochs: 2, clip: 5}, pretrain: {steps: 0}"
ARMS = {
    "FedAvg": ("baselines/fedavg", []),
    "CRNN-Lite": ("baselines/fedavg", ["model.size=lite"]),  # as many bytes as FedMLAC's plug-in
    "Ditto": ("baselines/ditto", []),
    "FedPer": ("baselines/fedavg", [f"algorithm={{kind: fedper, {SGD}}}"]),
    "isolated": ("ablations/isolated", []),
    "FedMLAC": ("embedded", ["algorithm.also_score=[plugin,both]"]),
}
BROADCAST, TRAINED = "broadcast", "after the client's training"
PREFIXES = {TRAINED: "", "personal": "", "plug-in": "plugin_", "both": "both_"}  # of a model's personal scores
# A row of the table -> its arm, and the model that is scored.
ROWS = {f"{arm}, {model}": (arm, model) for arm in ("FedAvg", "CRNN-Lite") for model in (BROADCAST, TRAINED)}
ROWS |= {arm: (arm, "personal") for arm in ("Ditto", "FedPer", "isolated")}
ROWS |= {f"FedMLAC, {model}": ("FedMLAC", model) for model in ("personal", "plug-in", "both")}
REFERENCES = (f"FedAvg, {TRAINED}", f"FedAvg, {BROADCAST}")
F1, ACCURACY = "macro_f1", "accuracy"
RATES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.2)
FIRST = slice(2, 5)  # of the rates
ROUNDS, TUNING, QUARTERS, NEW = 200, 3, 4, 10
WHOLE = 100_000  # the items of a client's count; its score says how many are right


def speakers(kind: str, clients: int, clips: int) -> list[str]:
    """The overrides of an embedded corpus with one client for each speaker."""
    counts = f"client_speakers: {clients}, client_utterances: {clips}, test_speakers: 40"
    return [f"data.options={{kind: {kind}, server_speakers: 0, dev_speakers: 0, test_server_speakers: 0, {counts}}}"]


def recordings(alpha: float) -> str:
    """The override of 50 clients to which whole recordings are dealt by Dirichlet."""
    return f"data.clients={{by: dirichlet, count: 50, alpha: {alpha}, min_utterances: 5, whole_speakers: true}}"


SOUNDS = [*speakers("events", 400, 10), "task.window=1.0"]  # sources, and slices of each
DATA: dict[str, tuple[str, list[str]]] = {  # name -> the paper's score, and overrides
    "emotions-91": (F1, speakers("emotions", 91, 53)),
    "emotions-10": (F1, [*speakers("emotions", 10, 294), "cohort.fraction=1.0"]),
    **{f"events-{alpha:g}": (F1, [*SOUNDS, recordings(alpha)]) for alpha in (0.1, 0.3, 0.5, 1.0)},
    "keywords-40": (ACCURACY, [*speakers("keywords", 50, 40), "data.options.words=10"]),
    "keywords-300": (ACCURACY, [*speakers("keywords", 50, 300), "data.options.words=10"]),
    "arabic-commands": (ACCURACY, []),
}  # fmt: skip


def settings(data: str) -> list[str]:
    """The overrides of a corpus and its clients."""
    if data != "arabic-commands":
        return DATA[data][1]
    columns = "path_column: path, speaker_column: speaker, label_column: keyword, seconds_column: seconds"
    return [
        "data.corpus=tsv",
        f"data.root={study.speech('arabic-commands-full')}",
        f"data.options={{train: [manifest.tsv], {columns}}}",
    ]


def play(data: str, arm: str, rate: float, seed: int, rounds: int) -> dict[str, Any]:
    """The scores of each of an arm's models: of each client after each quarter of the rounds, and on new speakers."""
    print(f"{data}, {arm}, rate {rate:g}, seed {seed}, {rounds} rounds", flush=True)
    base, changes = ARMS[arm]
    given = [f"seed={seed}", f"data.seed={seed}", "data.own_share=0.2", f"rounds={rounds}"]
    given += ["evaluation.personal_every=0", *changes, f"algorithm.client.lr={rate:g}"]
    bench = fedray.open(study.ROOT / f"configs/fedmlac/{base}.yaml", settings(data) + given)
    models = {model for owner, model in ROWS.values() if owner == arm}
    state, quarters = bench.start(), list[dict[str, Any]]()

    def scores(client: str, split: str) -> dict[str, dict[str, float]]:
        """Model -> its scores on the client's part of a split, or on all of it."""
        found = bench.evaluate_personal(state, client, split).metrics
        of = {m: {name: found[PREFIXES[m] + name] for name in (F1, ACCURACY)} for m in models if m != BROADCAST}
        part = bench.data.client_part(client, split)
        if BROADCAST in models and part is not None:
            shared = bench.task.evaluate(state.params, part, bench.algorithm.assets(bench.data), bench.device, False)
            of[BROADCAST] = {name: shared.metrics[name] for name in (F1, ACCURACY)}
        return of

    for done in range(1, rounds + 1):
        state, _ = bench.step(state)
        if done in {max(1, round(rounds * quarter / QUARTERS)) for quarter in range(1, QUARTERS + 1)}:
            mine = [one for one in bench.data.client_ids() if state.progress.took_part(one)]  # the same for all arms
            own = {one: scores(one, "own") for one in mine if len(bench.data.client_part(one, "own") or ())}
            totals = state.progress.totals
            megabytes = (totals["up_bytes"] + totals["down_bytes"]) / 1e6
            quarters.append({"round": done, "MB": megabytes, "own": own})
    new = dict[str, Any]()
    if "test" in bench.data.splits():
        some = [scores(one, "test") for one in mine[:: max(1, len(mine) // NEW)][:NEW]]
        new = {model: {name: mean(each[model][name] for each in some) for name in (F1, ACCURACY)} for model in some[0]}
        if BROADCAST in models:
            shared = bench.evaluate(state, "test").metrics
            new[BROADCAST] = {name: shared[f"test/{name}"] for name in (F1, ACCURACY)}
    found = {"quarters": quarters, "new": new}
    return found


def of_clients(quarter: Mapping[str, Any], model: str, name: str) -> dict[str, float]:
    """Client -> a model's score in percent."""
    return {client: scores[model][name] for client, scores in quarter["own"].items()}


def of_row(run: Mapping[str, Any], model: str, seed: int, rate: float, score: str) -> dict[str, Any]:
    """What the page keeps of a run for one of its models. `score`: the one whose differences it gives."""
    last = of_clients(run["quarters"][-1], model, score)
    curve = [
        {"round": one["round"], "MB": round(one["MB"], 2)}
        | {name: mean(of_clients(one, model, name).values()) for name in (F1, ACCURACY)}
        for one in run["quarters"]
    ]
    packed = study.packed({client: (WHOLE, round(WHOLE * value / 100)) for client, value in last.items()})
    return {"seed": seed, "rate": rate, "own": packed, "curve": curve, "new": run["new"].get(model)}


def played(data: str, known: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """The rates and the runs of each row: those on the earlier page, and what is missing."""
    at, score = Path(chosen.runs / f"{chosen.rounds}-rounds" / data), DATA[data][0]
    tuned: dict[str, dict[str, float]] = dict(known.get("tuned", {}))

    def trial(row: str, rate: float) -> float:
        arm, model = ROWS[row]
        place = at / "tuning" / f"{study.folder_name(arm)}-{rate:g}"
        run = kept(place, lambda: play(data, arm, rate, TUNING, max(1, chosen.rounds // 2)))
        return mean(of_clients(run["quarters"][-1], model, score).values())

    for row in ROWS:
        if row not in tuned and any(row == text if text in ROWS else text in row for text in chosen.arms):
            tuned[row] = tune(RATES, FIRST, partial(trial, row))

    def place_of(row: str, seed: int) -> Path:
        return at / f"seed-{seed}" / f"{study.folder_name(ROWS[row][0])}-{best_of(tuned[row]):g}"

    def one(row: str, seed: int, to: Path) -> dict[str, Any]:
        (arm, model), rate = ROWS[row], best_of(tuned[row])
        found = kept(to, lambda: play(data, arm, rate, seed, chosen.rounds))
        return of_row(found, model, seed, rate, score)

    return {"tuned": tuned, "found": study.gathered(known.get("found", {}), ROWS, chosen, place_of, one)}


def table(part: Mapping[str, Any], score: str) -> str:
    """A row for each model."""
    rows, titles = [], {F1: "macro-F1", ACCURACY: "accuracy"}
    names = sorted(titles, key=lambda name: name != score)
    for label, results in part["found"].items():
        rate = best_of(part["tuned"][label])
        row = {"model": label, "rate": f"{rate:g}{'' if min(RATES) < rate < max(RATES) else '*'}"}
        row |= {f"own clips, {titles[n]}": study.spread([one["curve"][-1][n] for one in results]) for n in names}
        for reference in REFERENCES:
            before, after = study.common(part["found"].get(reference, []), results)
            pair = [[study.unpacked(one["own"]) for one in runs] for runs in (before, after)]
            row[f"against {reference}"] = str(study.change(*pair, "points")) if before and label != reference else ""
        row["by seed"] = ", ".join(f"{one['curve'][-1][score]:.1f}" for one in results)
        for name in names:
            new = [one["new"][name] for one in results if one["new"]]
            row[f"new speakers, {titles[name]}"] = study.spread(new) if new else ""
        rows.append(row | {"MB": f"{mean(one['curve'][-1]['MB'] for one in results):.1f}"})
    return study.table(rows)


def curves(part: Mapping[str, Any], score: str) -> str:
    """The score on own clips after each quarter of the rounds, with the megabytes until then."""
    rows = []
    for label, results in part["found"].items():
        points: Sequence[Sequence[dict[str, Any]]] = list(zip(*(one["curve"] for one in results), strict=True))
        cells = {
            f"round {at[0]['round']}": f"{mean(one[score] for one in at):.1f} ({mean(one['MB'] for one in at):.0f} MB)"
            for at in points
        }
        rows.append({"model": label} | cells)
    return study.table(rows)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac-own")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--data", choices=list(DATA), default=next(iter(DATA)))
    chosen = study.chosen(parser, ROWS)
    names = [str(chosen.rounds)] if chosen.rounds != ROUNDS else []
    page, score = "_".join(["fedmlac_own", chosen.data, *names]), DATA[chosen.data][0]
    same = {"data": chosen.data, "rounds": chosen.rounds}
    part = played(chosen.data, study.page_before(page, **same), chosen)
    tried = [
        {"model": row, "scores": ", ".join(f"{value:.1f} at {rate}" for rate, value in found.items())}
        for row, found in part["tuned"].items()
    ]
    text = f"""# FedMLAC on its own terms: {chosen.data}

All clients train, {chosen.rounds} rounds. Scores in percent after the last round on the fifth of its clips that each
client holds out ("own clips"): mean over clients, mean ± SD over seeds. Differences are of the
{"macro-F1" if score == F1 else "accuracy"}, with 95 % intervals from a paired bootstrap over clients. New speakers:
personal models of up to {NEW} clients. MB: traffic of a run, both ways. *: the best rate is at the edge of those tried.

{table(part, score)}

Own clips as training goes:

{curves(part, score)}

Own clips of seed {TUNING} by rate, after half of the rounds:

{study.table(tried)}
"""
    print(text)
    command = study.command(parser, chosen, arms=study.on_page(ROWS, part["found"]))
    study.write(page, text, {**same, **part}, command, study.seeds(part["found"]))


if __name__ == "__main__":
    main()
