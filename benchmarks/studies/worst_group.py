"""Whom the mean forgets: four embedded dialects of unequal size, and rules that weigh up the worst of them.

    python -m benchmarks.studies.worst_group [--arms FedAvg AFL] [--seeds 0 1 2] [--rounds 60] [--actors 1]

60 clients, each one speaker; half speak the first dialect and five the last (configs/fedavg/agnostic.yaml). FedAvg
takes the rate of the clients that is best on dev with seed TUNING, and all other arms take it too. Then each arm takes
its server's rate, and AFL and q-FFL their own setting: for FedAvg the best on dev with seed TUNING, for the others the
one whose worst dialect is best there. The best round of a run is that of the lowest WER on dev. Personal models (Ditto;
FedMem, a memory beside FedAvg's model) are scored on utterances that clients hold out, and so are the others. In the
arms "fast phones" the phones of the smallest dialect are slow, and the server takes the first 20 of 26. Writes
benchmarks/results/worst_group.md, .json and .png. The same command resumes the study: it keeps finished runs, and takes
runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study
from benchmarks.pictures import Dot, dots
from benchmarks.rates import best_of, tune
from fedray.report import bootstrap
from fedray.report.bootstrap import Counts
from fedray.runs.folder import RunFolder

CONFIG = "configs/fedavg/agnostic.yaml"
TUNING = 3
RATES = (0.03, 0.1, 0.3, 1.0)
RATE = "rate of the clients"
FEDAVG, DITTO, FEDMEM = "FedAvg", "Ditto", "FedMem"
EXAMPLES, LOSS = "strategy={kind: by_examples}", "strategy={kind: by_loss}"
SERVER = (1, 2)  # rates of the server
SLOW = "en-029"
PHONE = "up: 8e6, latency: 0.1, watts: 4, radio: 1"
PHONES = (
    f"devices={{kind: classes, by: label, spread: 0.5, classes: {{en: {{seconds: 0.05, down: 20e6, {PHONE}}}, "
    f"en-gb-x-rp: {{seconds: 0.05, down: 20e6, {PHONE}}}, en-gb-scotland: {{seconds: 0.05, down: 20e6, {PHONE}}}, "
    f"{SLOW}: {{seconds: 0.4, down: 4e6, {PHONE}}}}}}}",
    "clock={kind: rounds, over: 1.3}",
)
AFL = {
    f"step {step:g}, server {rate}": (f"strategy={{kind: agnostic, step: {step:g}}}", f"server_optimizer.lr={rate}")
    for step in (0.01, 0.1)
    for rate in SERVER
}


def by_server(*given: str) -> dict[str, tuple[str, ...]]:
    """The settings of an arm that chooses its server's rate alone."""
    return {f"server {rate}": (*given, f"server_optimizer.lr={rate}") for rate in SERVER}


ARMS: dict[str, dict[str, tuple[str, ...]]] = {  # arm -> setting -> overrides
    FEDAVG: by_server(EXAMPLES),
    "by loss": by_server(LOSS),
    "q-FFL": {
        f"q {q:g}, server {server}": (f"strategy={{kind: q_fair, q: {q:g}, lr: RATE}}", f"server_optimizer.lr={server}")
        for q in (0.1, 1) for server in (1, 2, 4)
    },
    "AFL": AFL,
    DITTO: by_server(EXAMPLES, "algorithm={kind: ditto, pull: 0.1, SGD}"),
    FEDMEM: {"": (EXAMPLES, "algorithm={kind: fedmem, MEMORY}", "rounds=1", "cohort={size: null, fraction: 1.0}")},
    "FedAvg, fast phones": by_server(EXAMPLES, *PHONES),
    "AFL, fast phones": {name: (*given, *PHONES) for name, given in AFL.items()},
}  # fmt: skip
SETTING_OF = {DITTO: FEDAVG, "FedAvg, fast phones": FEDAVG, "AFL, fast phones": "AFL"}  # arms with another's setting
PERSONAL = (DITTO, FEDMEM)
SGD = (
    "schedule: {kind: cosine}, client: {lr: RATE, batch: 6, epochs: 2, clip: 5}, "
    "pretrain: {steps: 4000, lr: 3e-3, warmup: 100, batch: 8}"
)
MEMORY = "k: [8], share: [0.1, 0.2, 0.4], temperature: [1, 10], memory: {keys: frames}, pretrain: {steps: 0}"
Run = dict[str, Any]
Dialects = dict[str, Counts]


def overrides(arm: str, setting: str, rate: float, seed: int, chosen: argparse.Namespace) -> list[str]:
    """The overrides of a run."""
    given = [f"seed={seed}", f"data.seed={seed}", f"engine.actors={chosen.actors}", "data.own_share=0.25"]
    if arm == FEDMEM:
        given.append(f"model.init={study.place(chosen.runs)(FEDAVG, seed) / 'model' / 'model.pt'}")
    else:
        given += [f"rounds={chosen.rounds}", f"algorithm.client.lr={rate:g}"]
    words = {"SGD": SGD, "MEMORY": MEMORY, "RATE": f"{rate:g}"}  # in this order: SGD has a RATE
    for one in ARMS[arm][setting]:
        for word, meant in words.items():
            one = one.replace(word, meant)
        given.append(one)
    if arm in PERSONAL:
        given += ["evaluation.personal_final=true", "evaluation.personal_predictions=true"]
        given.append("evaluation.personal_final_utterances=40")  # of dev and test; a client holds out five
    return given


def by_dialect(rows: Sequence[Mapping[str, Any]], dialects: Mapping[str, str]) -> Dialects:
    """Dialect -> speaker -> (words, errors)."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(dialects[row["speaker"]], []).append(row)
    return {dialect: study.by_speaker(found[dialect]) for dialect in sorted(found)}


def scores(folder: Path, arm: str) -> dict[str, Dialects]:
    """Split (dev | test | own) -> what `by_dialect` finds. Personal models are scored on `own` alone."""
    found = {}
    for split in ("dev", "test", "own"):
        rows = study.predictions(folder, "best", split)
        dialects = {row["speaker"]: row["group"] for row in rows}
        if arm in PERSONAL and split == "own":
            rows = personal(folder, split)
        found[split] = by_dialect(rows, dialects)
    return found


def personal(folder: Path, split: str) -> list[dict[str, Any]]:
    """The rows of personal_predictions.tsv on a split."""
    text = RunFolder(folder).read_text("personal_predictions.tsv")
    table = csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    numbers = ("words", "errors")
    return [row | {name: int(row[name]) for name in numbers} for row in table if row["split"] == split]


def wers(counts: Mapping[str, Counts]) -> dict[str, float]:
    """Dialect -> WER in percent."""
    return {dialect: wer(speakers) for dialect, speakers in counts.items()}


def wer(counts: Counts) -> float:
    words, errors = (sum(column) for column in zip(*counts.values(), strict=True))
    return 100 * errors / words


def pooled(counts: Mapping[str, Counts]) -> Counts:
    """The counts of all speakers."""
    return {speaker: numbers for speakers in counts.values() for speaker, numbers in speakers.items()}


def play(arm: str, setting: str, rate: float, seed: int, place: Path, chosen: argparse.Namespace) -> Run:
    """What a run's best round scores, with counts by dialect and speaker."""
    best = study.run(CONFIG, overrides(arm, setting, rate, seed, chosen), place)["best"]
    found = {
        split: {dialect: study.packed(counts) for dialect, counts in dialects.items()}
        for split, dialects in scores(place, arm).items()
    }
    return {"seed": seed, "rate": rate, "setting": setting, "round": best["round"], **found}


def unpacked(run: Run, split: str) -> Dialects:
    """The counts of a run."""
    return {dialect: study.unpacked(text) for dialect, text in run[split].items()}


def settled(chosen: argparse.Namespace, known: Mapping[str, Any]) -> dict[str, Any]:
    """The rate of all arms, and each arm's setting, by dev of seed TUNING. `known`: those of the earlier page."""
    tuned: dict[str, Any] = {arm: dict(tried) for arm, tried in known.items()}

    def tried(arm: str, setting: str, rate: float) -> Dialects:
        place = chosen.runs / "tuning" / study.folder_name(f"{arm} {setting} {rate:g}")
        print(f"{arm} {setting}, rate {rate:g}, seed {TUNING}", flush=True)
        return unpacked(play(arm, setting, rate, TUNING, place, chosen), "dev")

    def mean_of(setting: str, rate: float) -> float:
        return wer(pooled(tried(FEDAVG, setting, rate)))

    first = next(iter(ARMS[FEDAVG]))
    tuned[RATE] = tuned.get(RATE) or tune(RATES, slice(1, 3), partial(mean_of, first), min)
    rate = best_of(tuned[RATE], min)
    tuned[FEDAVG] = tuned.get(FEDAVG) or {setting: mean_of(setting, rate) for setting in ARMS[FEDAVG]}
    for arm in ARMS:
        if len(ARMS[arm]) > 1 and arm not in {*SETTING_OF, *tuned}:
            tuned[arm] = {setting: max(wers(tried(arm, setting, rate)).values()) for setting in ARMS[arm]}
    return tuned


def setting_of(arm: str, tuned: Mapping[str, Mapping[str, float]]) -> str:
    """The setting that an arm takes."""
    tried = tuned[SETTING_OF.get(arm, arm)] if len(ARMS[arm]) > 1 else {"": 0.0}
    return min(tried, key=tried.__getitem__)


def table(found: study.Found, split: str, rounds: int) -> str:
    """A row for each arm: the WER of all speakers and of each dialect; changes of all, the worst and the smallest."""
    of_fedavg = [wers(unpacked(run, split)) for run in found[FEDAVG]]
    worst = max(of_fedavg[0], key=lambda dialect: mean(one[dialect] for one in of_fedavg))
    rows = []
    for arm, runs in found.items():
        if split != "own" and arm in PERSONAL:
            continue
        counts = [unpacked(run, split) for run in runs]
        each = [wers(one) for one in counts]
        row = {"arm": arm, "all": study.spread([wer(pooled(one)) for one in counts])}
        row |= {dialect: study.spread([one[dialect] for one in each]) for dialect in each[0]}
        row["worst - best"] = study.spread([max(one.values()) - min(one.values()) for one in each])
        if arm != FEDAVG:
            sides = [[unpacked(run, split) for run in side] for side in study.common(found[FEDAVG], runs)]
            row["all, change"] = str(study.change(*([pooled(one) for one in side] for side in sides)))
            for dialect in dict.fromkeys((worst, SLOW)):
                row[f"{dialect}, change"] = str(study.change(*([one[dialect] for one in side] for side in sides)))
        if arm != FEDMEM:
            row["best rounds"] = study.best_rounds([run["round"] for run in runs], [rounds] * len(runs))
        rows.append(row)
    return study.table(rows)


def draw(found: study.Found, path: Path) -> None:
    """The WER of each dialect, over test speakers and over what clients hold out."""
    panels: dict[str, dict[str, dict[str, Dot]]] = {}
    for title, split in (("Test speakers", "test"), ("What clients hold out", "own")):
        panels[title] = {}
        for arm, runs in found.items():
            if split == "own" or arm not in PERSONAL:
                counts = [unpacked(run, split) for run in runs]
                each = {dialect: bootstrap.rate([one[dialect] for one in counts]) for dialect in counts[0]}
                panels[title][arm] = {dialect: (one.mean, one.low, one.high) for dialect, one in each.items()}
    dots(panels, "WER (%)", path)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-worst-group", rounds=60)
    chosen = study.chosen(parser, ARMS)
    page = study.page_before("worst_group", rounds=chosen.rounds)
    tuned = settled(chosen, page.get("tuned", {}))
    rate = best_of(tuned[RATE], min)

    def one(arm: str, seed: int, to: Path) -> Run:
        return play(arm, setting_of(arm, tuned), rate, seed, to, chosen)

    found = study.gathered(page.get("found", {}), ARMS, chosen, study.place(chosen.runs), one)
    settings = "; ".join(f"{arm}: {setting_of(arm, tuned)}" for arm in ARMS if len(ARMS[arm]) > 1)
    text = f"""# Whom the mean forgets

Four embedded dialects, spoken by 30, 15, 10 and 5 of 60 clients, each one speaker; a Conformer with CTC whose seed
model heard one dialect; 20 clients a round, {chosen.rounds} rounds. WER in percent, greedy, of the best round by dev:
mean ± SD over seeds. Changes are relative to FedAvg, with 95 % intervals from a paired bootstrap over speakers: of all
speakers, of FedAvg's worst dialect, and of the smallest one ({SLOW}), whose phones are slow in "fast phones".
Rate {rate:g} for all arms; {settings}.

![WER by dialect](worst_group.png)

## Test speakers

{table(found, "test", chosen.rounds)}

## Clients, on what they hold out

{table(found, "own", chosen.rounds)}
"""
    print(text)
    draw(found, study.RESULTS / "worst_group.png")
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    numbers = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    study.write("worst_group", text, numbers, command, study.seeds(found))


if __name__ == "__main__":
    main()
