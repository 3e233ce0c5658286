"""FedNST on a pre-trained Whisper and real speech, without any language model: table 2 of Mehmood et al.

    python -m benchmarks.studies.fednst_whisper [--arms FedNST SFL] [--seeds 0 1 2] [--rounds 20] [--actors 1]

Needs FEDRAY_SPEECH, the folder that holds speechocean/ and whisper-tiny.en/. Of the speakers, drawn at random, 60 are
the server's, with transcripts, 80 are clients, 12 dev and the others test. Utterances last at most 3.5 seconds, and
Whisper hears windows of 3.5 seconds. The server's speech tunes the checkpoint to the seed model, from which every arm
starts; a round has 16 clients. SpecAugment is the students' noise. A round of a central arm has as many utterances.
Texts are decoded greedily. Each arm takes the rate whose WER on dev is lowest after TUNED rounds of seed TUNING, of
rates that are tried until the best has a worse neighbour on both sides; relabelling takes FedNST's. Writes
benchmarks/results/fednst_whisper.md and .json. The same command resumes the study: it keeps finished runs, and takes
runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import speechocean, study
from benchmarks.rates import best_of, table, tune
from fedray.data.text.error_rates import edit_counts
from fedray.data.text.scoring import SCORING
from fedray.report.bootstrap import Counts, rate, recovered

LONGEST = 3.5  # seconds of an utterance, and of Whisper's window
SERVER, CLIENTS, DEV, COHORT = 60, 80, 12, 16  # speakers
RATES = {True: (1e-6, 3e-6, 1e-5, 3e-5, 1e-4), False: (3e-3, 1e-2, 3e-2, 1e-1, 3e-1)}  # central by AdamW, or SGD
MASKS = {
    "time_masks": 2,
    "time_width": 40,
    "frequency_masks": 2,
    "frequency_width": 20,
}  # up to 0.4 s and 20 of 80 bins
TUNING, TUNED = 0, 3
RULES = {"as they are": "plain", "without format": "whisper_english"}
UNTUNED = 20.0  # seconds of the window of Whisper as it is: see whisper_groups.py
ZERO, REFERENCE = f"Whisper as it is, windows of {UNTUNED:g} s", "SFL: federated, true labels"
NST, FEDNST, RELABELLED = (
    "NST: central, pseudo-labels",
    "FedNST: federated, pseudo-labels",
    "FedNST, labels every 5 rounds",
)
ALONE = "the server's speech alone"
CENTRAL = {"data.clients": {"by": "pooled"}, "cohort.size": 1}
UTTERANCES = 120, 292  # of the server's pass in a round, and of a central round: as many as 16 clients have, and 120
ARMS: dict[str, dict[str, Any] | None] = {
    ZERO: None,
    "SL: central, true labels": {"algorithm.kind": "sl", **CENTRAL},
    REFERENCE: {"algorithm.kind": "fedavg", "algorithm.alpha": 0.5},
    NST: {"algorithm.kind": "nst", **CENTRAL},
    FEDNST: {"algorithm.kind": "fednst"},
    RELABELLED: {"algorithm.kind": "fednst", "algorithm.relabel": 5},
    "FedNST, the surest half first": {"algorithm.kind": "fednst", "algorithm.confidence": {"keep": 0.5}},
    ALONE: {"algorithm.kind": "fedavg", "algorithm.alpha": 1.0, "cohort.size": 1},  # what clients send has weight 0
}
PAIRS = ((ALONE, FEDNST), (FEDNST, REFERENCE), (FEDNST, NST), (FEDNST, RELABELLED))
ABOUT = f"""Test WER in percent of the best round on dev, pooled over speakers, mean ± SD over seeds; changes have the
95 % interval of a paired bootstrap over speakers. Transcripts have no case and no punctuation, which Whisper writes:
texts *as they are* count both as errors, texts *without format* are compared by Whisper's rules for English. The seed
model has learnt the format from the server's {SERVER} speakers. No language model is used anywhere. Federated arms
train by SGD, central ones by AdamW. *The surest half first* trains on half of the labels in the first round, and on
all in the last. The labels' WER is that of a round's cohort, as the mean over rounds; where labels are made anew, it
is that of the first and of the last round. The rates fall to 0, so that best rounds are late ones."""


def drawn(seed: int, folder: Path) -> Path:
    """A folder with speech.tsv, the seed's speakers to train on, for dev and for test, and tuning.tsv, without test."""
    rows = speechocean.utterances(LONGEST)
    speakers = sorted({row["speaker"] for row in rows})
    random.Random(seed).shuffle(speakers)
    of = {name: "train" if at < SERVER + CLIENTS else "dev" for at, name in enumerate(speakers)}
    of |= dict.fromkeys(speakers[SERVER + CLIENTS + DEV :], "test")
    rows = [row | {"split": of[row["speaker"]]} for row in rows]
    speechocean.write(folder, "speech.tsv", rows)
    speechocean.write(folder, "tuning.tsv", [row for row in rows if row["split"] != "test"])
    return folder


def common(seed: int, runs: Path, file: str = "speech", seconds: float = LONGEST) -> dict[str, Any]:
    """The settings that all runs of a seed share. `file`: of `drawn`. `seconds`: of Whisper's window."""
    columns = {"seconds_column": "seconds", "split_column": "split", "text_column": "transcript"}
    found = {"seed": seed, "data.seed": seed, "data.root": str(drawn(seed, runs / f"seed-{seed}" / "speech"))}
    found |= {"data.options": {"train": [f"{file}.tsv"], "lower_case": True, **columns}}
    found |= {"data.dev_share": None, "data.test_share": None, "data.server.share": SERVER / (SERVER + CLIENTS)}
    found |= {"model": {"kind": "whisper", "folder": str(study.speech("whisper-tiny.en")), "seconds": seconds}}
    found |= {"task.decode": {"search": "attention", "beam": 1, "ctc_weight": 0}}
    found |= {"task.augment": MASKS}
    found |= {"cohort.fraction": None, "cohort.size": COHORT, "engine.lanes": 8, "engine.vectorise": "never"}
    return found


def central(arm: str) -> bool:
    """Whether one model trains on all speech at once."""
    return "data.clients" in (ARMS[arm] or {})


def settings(arm: str, lr: float) -> dict[str, Any]:
    """The settings of an arm at a rate of the clients; the server's pass has it too."""
    own = dict(ARMS[arm] or {})
    pretrain = {"steps": 300, "lr": 1e-5, "warmup": 50, "batch": 8, "clip": 1.0}
    sgd = {"lr": lr, "batch": 8, "clip": 1.0}
    algorithm: dict[str, Any] = {"kind": own.pop("algorithm.kind"), "pretrain": pretrain}
    if central(arm):
        algorithm |= {"utterances": UTTERANCES[1], "adamw": {"lr": lr, "warmup": 20, "batch": 8, "clip": 1.0}}
    else:
        algorithm |= {
            "alpha": 0.5,
            "client": {**sgd, "optimizer": "sgd"},
            "server": {**sgd, "utterances": UTTERANCES[0]},
        }
        algorithm |= {"schedule": {"kind": "cosine"}, "server_scheduled": True}
    algorithm |= {key.removeprefix("algorithm."): own.pop(key) for key in [*own] if key.startswith("algorithm.")}
    return {"algorithm": algorithm, **own}


def train(
    arm: str, lr: float, seed: int, rounds: int, place: Path, chosen: argparse.Namespace, trial: bool = False
) -> dict[str, Any]:
    """The results of a run. `trial`: without test, and scored at its end alone."""
    shared = common(seed, chosen.runs, "tuning" if trial else "speech")
    given = shared | {"rounds": rounds, "evaluation.every": rounds if trial else 1} | settings(arm, lr)
    overrides = study.overrides(given)
    return study.run("configs/fedavg/encoder.yaml", [*overrides, f"engine.actors={chosen.actors}"], place)


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace, tuned: dict[str, Any]) -> dict[str, Any]:
    """The seed model's and the best round's errors by speaker and rule of scoring, and the wrong labels' share."""
    if ARMS[arm] is None:
        given = common(seed, chosen.runs, seconds=UNTUNED) | {"rounds": 1, "cohort.size": 1}
        given |= {"algorithm": {"kind": "fedavg", "client": {"lr": 1e-9, "batch": 8}}}
        overrides = study.overrides(given)
        study.run("configs/fedavg/encoder.yaml", [*overrides, f"engine.actors={chosen.actors}"], place)
        return {"seed": seed, "counts": {"seed": counts(place, "seed")}}

    def score(lr: float) -> float:
        trial = chosen.runs / "tuning" / f"{study.folder_name(arm)}-{lr:g}"
        train(arm, lr, TUNING, TUNED, trial, chosen, trial=True)
        return float(study.rounds(trial)[-1]["dev/wer"])

    if arm == RELABELLED and FEDNST in tuned:
        tuned[arm] = tuned[FEDNST]
    tried = tuned[arm] = tune(RATES[central(arm)], slice(1, 4), score, min, tuned.get(arm))
    lr = best_of(tried, min)
    results = train(arm, lr, seed, chosen.rounds, place, chosen)
    rows = study.rounds(place)
    labels = [row["train/label_wer"] for row in rows if row.get("train/label_wer") is not None]
    found = {"seed": seed, "rate": lr, "round": results["best"]["round"], "dev": [row["dev/wer"] for row in rows]}
    found |= {"labels": labels, "bytes": results["traffic/total_bytes"]}
    return found | {"counts": {model: counts(place, model) for model in ("seed", "best")}}


def counts(place: Path, model: str) -> dict[str, str]:
    """Rule of scoring -> words and errors of test by speaker, packed."""
    rows, found = study.predictions(place, model), {}
    for title, rule in RULES.items():
        texts = ([SCORING[rule](row[name]) for row in rows] for name in ("reference", "hypothesis"))
        edits = zip(rows, edit_counts(*texts), strict=True)
        scored = [{"speaker": row["speaker"], "words": each.length, "errors": each.errors} for row, each in edits]
        found[title] = study.packed(study.by_speaker(scored))
    return found


def row(arm: str, found: study.Found, rounds: int) -> dict[str, str]:
    """An arm's scores, their change from the seed model, and their share of what SFL gains."""
    runs, cells = found[arm], {"arm": arm}

    def of(which: Sequence[Mapping[str, Any]], model: str, title: str) -> list[Counts]:
        return [study.unpacked(run["counts"][model][title]) for run in which]

    for title in RULES:
        if ARMS[arm] is None:
            cells[title] = f"{rate(of(runs, 'seed', title)).mean:.1f}"
            continue
        before, after = (of(runs, model, title) for model in ("seed", "best"))
        cells[title] = f"{rate(before).mean:.1f} → {rate(after).mean:.1f}"
        cells[f"change, {title}"] = str(study.change(before, after))
        if arm != REFERENCE and (pairs := study.common(runs, found.get(REFERENCE, [])))[0]:
            share = recovered(*(of(each, model, title) for each in pairs for model in ("seed", "best")))
            cells[f"of SFL's gain, {title} (%)"] = "" if share is None else str(share)
    if ARMS[arm] is not None:
        labels = [run["labels"] for run in runs if run["labels"]]
        ends = [(each[0], each[-1]) if arm == RELABELLED else (mean(each),) for each in labels]
        cells["labels' WER"] = " → ".join(f"{mean(each):.1f}" for each in zip(*ends, strict=True))
        cells["rate"] = f"{runs[0]['rate']:g}"
        cells["best rounds"] = study.best_rounds([run["round"] for run in runs], [rounds] * len(runs))
    return cells | {"seeds": ", ".join(str(run["seed"]) for run in runs)}


def pairs(found: study.Found) -> str:
    """The change of the best rounds from one arm to another, by rule of scoring."""
    rows = []
    for one, other in PAIRS:
        before, after = study.common(found.get(one, []), found.get(other, []))
        if before:
            counted = {rule: [[study.unpacked(run["counts"]["best"][rule]) for run in each] for each in (before, after)]
                       for rule in RULES}  # fmt: skip
            changes = {rule: str(study.change(*both)) for rule, both in counted.items()}
            rows.append(
                {"change": f"{one} → {other}"} | changes | {"seeds": ", ".join(str(run["seed"]) for run in after)}
            )
    return f"## Arms compared\n\n{study.table(rows)}" if rows else ""


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fednst-whisper", rounds=20)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("fednst_whisper", rounds=chosen.rounds, masks=MASKS)
    tuned = before.get("tuned", {})
    found = study.gathered(
        before.get("found", {}), ARMS, chosen,
        study.place(chosen.runs),
        lambda arm, seed, place: play(arm, seed, place, chosen, tuned),
    )  # fmt: skip
    rows = study.table([row(arm, found, chosen.rounds) for arm in found])
    text = f"# FedNST on Whisper\n\n{ABOUT}\n\n{rows}\n\n{pairs(found)}"
    if tuned:
        text += f"\n\n## Rates\n\nWER on dev after {TUNED} rounds, seed {TUNING}."
        for kind, rates in RATES.items():
            tables = {arm: tried for arm, tried in tuned.items() if central(arm) is kind}
            text += f"\n\n{table(rates, tables)}" if tables else ""
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    kept = {"rounds": chosen.rounds, "masks": MASKS, "tuned": tuned, "found": found}
    study.write("fednst_whisper", text, kept, command, study.seeds(found))
    print(text)


if __name__ == "__main__":
    main()
