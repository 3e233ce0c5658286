"""What FedNST's results rest on: the server's pass, the language model, the seed model, optimisers, batch norm.

    python -m benchmarks.studies.fednst_confounds [--arms 'all of D_L'] [--seeds 0 1 2] [--rounds 100] [--actors N]

Each arm is FedNST on embedded speech (configs/fednst/embedded.yaml) but for what its name says. *All of D_L*: a round
of the server passes over all its labelled speech, as in the paper's algorithm 1, where the embedded configuration takes
60 of 1,000 utterances; with pseudo-labels or true transcripts on the clients. *Greedy labels*: without the language
model, which then scores nothing either. *Strong seed model*: 160 labelled speakers, and four times the steps. *Central
SGD*: one client has the speech of all, and trains on it once a round, at a constant number of utterances in all. The
same command resumes: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.studies.fednst_long import FEDERATED, SCORES, result, row
from fedray.report.bootstrap import Counts

CONFIG = "configs/fednst/embedded.yaml"
EPOCHS = 20  # of central SGD: as many utterances as 100 rounds of six clients with 60 utterances and two epochs
WHOLE = "algorithm.server.utterances=null"
TRANSCRIPTS = "data.labelled.clients=1.0"
STRONG = ("data.options.server_speakers=160", "algorithm.pretrain.steps=10400")
CRDNN = "model={kind: crdnn, channels: [32, 64], rnn_neurons: 96, dnn_neurons: 128, dropout: 0.05}"
REFERENCE = "FedNST"
LAMBDAS = {f"lambda {share:g} of the rounds": share for share in (0.125, 0.25, 1)}
ARMS: dict[str, Sequence[str]] = {
    REFERENCE: (),
    "FedNST, transcripts": (TRANSCRIPTS,),
    **{
        f"all of D_L, {words}alpha {alpha:g}": (WHOLE, f"algorithm.alpha={alpha:g}", *labelled)
        for words, labelled in (("", ()), ("transcripts, ", (TRANSCRIPTS,)))
        for alpha in (0.3, 0.5)
    },
    "clients alone": ("algorithm.alpha=0",),
    "clients alone, transcripts": ("algorithm.alpha=0", TRANSCRIPTS),
    "greedy labels": ("task.decode.lm_weight=0", "task.decode.token_bonus=0"),
    "strong seed model": STRONG,
    "strong seed model, transcripts": (*STRONG, TRANSCRIPTS),
    "central SGD": (
        "data.clients={by: pooled}", "cohort.size=1", "engine.lanes=1", "algorithm.alpha=0",
        "algorithm.client.epochs=1", f"rounds={EPOCHS}", "evaluation.every=1",
    ),
    **{f"server rate {lr:g}": (f"server_optimizer.lr={lr:g}",) for lr in (2, 3)},
    **dict.fromkeys(LAMBDAS, ()),
    **{
        f"clients with Adam, {lr:g}": ("algorithm.client.optimizer=adam", f"algorithm.client.lr={lr:g}")
        for lr in (3e-4, 1e-3, 3e-3)
    },
    "CRDNN, frozen statistics (sBN)": (CRDNN, "algorithm.buffers=frozen"),
    "CRDNN, averaged statistics": (CRDNN, "algorithm.buffers=averaged"),
}  # fmt: skip
Run = dict[str, Any]


def overrides(arm: str, seed: int, chosen: argparse.Namespace) -> list[str]:
    """The overrides of a run."""
    given = [f"seed={seed}", f"data.seed={seed}", f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]
    given += ["evaluation.every=2", *FEDERATED, *ARMS[arm]]
    if arm in LAMBDAS:
        steps = round(LAMBDAS[arm] * chosen.rounds)
        given.append(f"algorithm.schedule={{kind: exponential, decay_rate: 0.5, decay_steps: {steps}}}")
    return given


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace) -> Run:
    """The scores of a run and of its seed model, packed errors by speaker, and dev by round."""
    results = study.run(CONFIG, overrides(arm, seed, chosen), place)
    found = result(place, results)
    counts = {
        model: {score: study.packed(by_speaker) for score, by_speaker in scores.items()}
        for model, scores in found["counts"].items()
    }
    return found | {"start": found["seed"], "seed": seed, "counts": counts}


def unpacked(run: Run) -> Run:
    """A run as `fednst_long.row` expects it."""
    counts = {
        model: {score: study.unpacked(by_speaker) for score, by_speaker in scores.items()}
        for model, scores in run["counts"].items()
    }
    return run | {"seed": run["start"], "counts": counts}


def compared(found: study.Found, arm: str) -> dict[str, str]:
    """The change of an arm's WER from the reference's, over the seeds that both have."""
    here, there = study.common(found[arm], found.get(REFERENCE, []))
    if not here or arm == REFERENCE:
        return {}
    titles = {"test/wer_lm": "LM", "test/wer": "greedy"}
    return {
        f"from {REFERENCE}, {titles[score]}": str(study.change(counts(there, score), counts(here, score)))
        for score in SCORES
    }


def counts(runs: Sequence[Run], score: str) -> list[Counts]:
    return [study.unpacked(run["counts"]["best"][score]) for run in runs]


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fednst-confounds", rounds=100)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("fednst_confounds", rounds=chosen.rounds).get("found", {})
    place = study.place(chosen.runs)
    found = study.gathered(before, ARMS, chosen, place, lambda arm, seed, to: play(arm, seed, to, chosen))
    plain = {arm: [unpacked(run) for run in runs] for arm, runs in found.items()}
    rows = [
        row(arm, plain) | compared(found, arm) | {"seeds": ", ".join(str(run["seed"]) for run in runs)}
        for arm, runs in found.items()
    ]
    text = f"""# What FedNST's results rest on

FedNST on embedded speech, {chosen.rounds} rounds at falling rates (central SGD: {EPOCHS}, each over all speech). Word
error rate in percent on 1,200 utterances by 60 new speakers, mean ± SD over seeds of corpus and training, by beam
search with the language model ("LM", the paper's metric) and greedily. The round is the best by greedy dev WER. Changes
have 95 % intervals from a paired bootstrap over speakers; those from FedNST compare the seeds that both have.

{study.table(rows)}
"""
    print(text)
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("fednst_confounds", text, {"rounds": chosen.rounds, "found": found}, command, study.seeds(found))


if __name__ == "__main__":
    main()
