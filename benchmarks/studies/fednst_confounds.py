"""Which choices FedNST's results rest on: labels, seed model, the server's pass, rounds, optimisers, batch norm.

    python -m benchmarks.studies.fednst_confounds [--arms 'greedy labels'] [--seeds 0 1 2] [--rounds 50] [--actors N]

Each arm is FedNST on embedded speech (configs/fednst/embedded.yaml) but for what its name says. It is compared with an
arm that differs in this alone, and with its twin whose clients have true transcripts.

- Greedy labels: without the language model, so that final scores with it are missing.
- Clients alone, all of D_L: alpha 0, and passes of the server over all of its 1,000 utterances in place of 60, as in
  the paper's algorithm 1. The clients' part of a round has the same step at each alpha (`mixing` in fednst_digits.py).
  167 steps need another rate of the server than ten: the one of RATES that is best on dev with seed TUNING, for each
  alpha its own, because the server's part of a round is alpha times its rate.
- Strong seed model: 160 labelled speakers and four times the steps, with FedNST's text for tokens and language model.
- Central SGD: a round has one client, a random fifth of all clients' speech, whose 720 utterances are those of six
  clients in two epochs: 120 steps in a row.

The first eight arms answer most; the next four complete the comparison of alphas, and the others are optional. The same
command resumes: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study
from benchmarks.rates import best_of, tune
from benchmarks.studies.fednst_digits import mixing
from benchmarks.studies.fednst_long import FEDERATED, result
from fedray.report.bootstrap import Counts, recovered
from fedray.sweep.prepare import transcripts

CONFIG = "configs/fednst/embedded.yaml"
TRANSCRIPTS = "data.labelled.clients=1.0"
WHOLE = ("algorithm.server.utterances=null", "algorithm.server.lr=RATE")
MORE = ("data.options.server_speakers=160", "algorithm.pretrain.steps=10400", "data.text=TEXT")
POOLED = ("data.clients={by: iid, count: 5}", "cohort.size=1", "engine.lanes=1", "algorithm.client.epochs=1")
CRDNN = "model={kind: crdnn, channels: [32, 64], rnn_neurons: 96, dnn_neurons: 128, dropout: 0.05}"
DECAY = "algorithm.schedule={kind: exponential, decay_rate: 0.5, decay_steps: STEPS}"
LAMBDAS = {f"lambda {share:g} of the rounds": share for share in (1, 0.25, 4)}
FEDNST, ALONE, STRONG, ADAM = "FedNST", "clients alone", "strong seed model", "clients with Adam"
ALL, ALL_3 = "all of D_L, alpha 0.5", "all of D_L, alpha 0.3"
SBN = "CRDNN, frozen statistics (sBN)"
MODELS, TITLES = ("seed", "best"), {"test/wer_lm": "LM", "test/wer": "greedy"}
TUNING = 0  # the seed that chooses rates
# Arm that tries the rates -> the rates, of which all but the first and last are tried first. The server's middle three
# go from a part about as long as that of ten steps to the configuration's rate.
RATES = {arm: (0.0015, 0.006, 0.025, 0.1, 0.4) for arm in (ALL, ALL_3)} | {ADAM: (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)}
Run = dict[str, Any]


def known(arm: str) -> str:
    """The twin of an arm, whose clients have true transcripts."""
    return f"{arm}, transcripts"


@dataclass(frozen=True)
class Arm:
    """The overrides of an arm, and the arms that it is compared with; "": none."""

    given: Sequence[str]  # RATE: the rate that dev chooses; STEPS: lambda; TEXT: the file of FedNST's text
    reference: str = ""  # differs in one choice
    twin: str = ""  # differs in the clients' true transcripts, whose gain is 100 %
    rates: str = ""  # the arm of RATES that chooses the rate


ARMS: dict[str, Arm] = {
    FEDNST: Arm((), ALONE, known(FEDNST)),
    known(FEDNST): Arm((TRANSCRIPTS,), FEDNST),
    ALONE: Arm(mixing(0), "", known(ALONE)),
    "greedy labels": Arm(("task.decode.search=greedy",), FEDNST, known(FEDNST)),
    ALL: Arm((*mixing(0.5), *WHOLE), ALONE, known(ALL), ALL),
    STRONG: Arm(MORE, "", known(STRONG)),  # from another model: only its shares compare with FedNST's
    known(STRONG): Arm((*MORE, TRANSCRIPTS), STRONG),
    "central SGD": Arm((*mixing(0), *POOLED), ALONE),
    known(ALONE): Arm((*mixing(0), TRANSCRIPTS), ALONE),
    known(ALL): Arm((*mixing(0.5), *WHOLE, TRANSCRIPTS), known(ALONE), "", ALL),
    ALL_3: Arm((*mixing(0.3), *WHOLE), ALONE, known(ALL_3), ALL_3),
    known(ALL_3): Arm((*mixing(0.3), *WHOLE, TRANSCRIPTS), known(ALONE), "", ALL_3),
    **{f"server rate {lr}": Arm((f"server_optimizer.lr={lr}",), FEDNST) for lr in (2, 3)},
    **{arm: Arm((DECAY,), "" if share == 1 else "lambda 1 of the rounds") for arm, share in LAMBDAS.items()},
    ADAM: Arm(("algorithm.client.optimizer=adam", "algorithm.client.lr=RATE"), FEDNST, "", ADAM),
    SBN: Arm((CRDNN, "algorithm.buffers=frozen")),
    "CRDNN, averaged statistics": Arm((CRDNN, "algorithm.buffers=averaged"), SBN),
}


def text_of(seed: int, chosen: argparse.Namespace) -> Path:
    """The file of the text from which FedNST learns tokens and language model."""
    return Path(chosen.runs / f"seed-{seed}.txt")


def overrides(arm: str, seed: int, lr: float | None, chosen: argparse.Namespace) -> list[str]:
    """The overrides of a run. `lr`: the rate that dev chose, for an arm that has one."""
    words = {
        "RATE": f"{lr or 0:g}",
        "STEPS": str(round(LAMBDAS.get(arm, 0) * chosen.rounds)),
        "TEXT": str(text_of(seed, chosen)),
    }
    given = [f"seed={seed}", f"data.seed={seed}", f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]
    for one in ARMS[arm].given:
        for word, meant in words.items():
            one = one.replace(word, meant)
        given.append(one)
    return [*given, "evaluation.every=2", *FEDERATED]


def place_of(arm: str, seed: int, lr: float | None, chosen: argparse.Namespace) -> Path:
    """The folder of a run."""
    return study.place(chosen.runs)(arm if lr is None else f"{arm}, {lr:g}", seed)


def train(arm: str, seed: int, lr: float | None, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The results of a run."""
    if "data.text=TEXT" in ARMS[arm].given and not (file := text_of(seed, chosen)).exists():
        transcripts(study.ROOT / CONFIG, [f"data.seed={seed}"], file)
    return study.run(CONFIG, overrides(arm, seed, lr, chosen), place)


def rate_of(arm: str, tuned: dict[str, dict[str, float]], chosen: argparse.Namespace) -> float | None:
    """The rate that dev chooses for an arm; None if it has none.

    `tuned`: arm of RATES -> rate -> WER on dev. It gets the rates that it lacks: a run of each.
    """
    if not (tries := ARMS[arm].rates):
        return None

    def dev(lr: float) -> float:
        return float(train(tries, TUNING, lr, place_of(tries, TUNING, lr, chosen), chosen)["best"]["dev/wer"])

    tuned[tries] = tune(RATES[tries], slice(1, -1), dev, min, tuned.get(tries))
    return best_of(tuned[tries], min)


def play(arm: str, seed: int, lr: float | None, place: Path, chosen: argparse.Namespace) -> Run:
    """The scores of the best round, the labels' WER, and packed errors by speaker of the seed model and that round."""
    found = result(place, train(arm, seed, lr, place, chosen))
    run = {
        "seed": seed,
        "rate": lr,
        "best": found["best"],
        "rounds": found["rounds"],
        "labels": found["labels of all rounds"],
    }
    return run | {
        f"{model} {score}": study.packed(by_speaker)
        for model, scores in found["counts"].items() for score, by_speaker in scores.items()
    }  # fmt: skip


def counts(runs: Sequence[Run], model: str, score: str) -> list[Counts]:
    return [study.unpacked(run[f"{model} {score}"]) for run in runs]


def row(arm: str, found: study.Found) -> dict[str, str]:
    """An arm's scores, their change from the seed model, the share of its twin's gain, the change from its reference.

    Scores with the language model are empty for an arm without it.
    """
    runs, of, against = found[arm], ARMS[arm], {"compared with": ARMS[arm].reference}
    cells = {"arm": arm}
    pairs = study.from_one_start(found.get(of.reference, []), runs, "seed test/wer")
    known_too = study.common(runs, found.get(of.twin, []))
    for score, title in TITLES.items():
        scored = f"best {score}" in runs[0]
        before, after = (counts(runs, model, score) if scored else [] for model in MODELS)
        cells[f"test, {title}"] = study.spread([run["best"][score] for run in runs]) if scored else ""
        cells[f"change, {title}"] = str(study.change(before, after)) if scored else ""
        gains = [counts(each, model, score) for each in known_too for model in MODELS] if scored else []
        cells[f"of the transcripts' gain, {title} (%)"] = str(recovered(*gains) or "") if all(gains) and gains else ""
        sides = [counts(side, "best", score) for side in zip(*pairs, strict=True)] if scored else []
        against[f"against it, {title}"] = str(study.change(*sides)) if sides else ""
    labels = [run["labels"] for run in runs if run["labels"]]
    cells |= against | {"labels' WER, mean of all rounds": f"{mean(labels):.1f}" if labels else ""}
    cells["dev, greedy"] = study.spread([run["best"]["dev/wer"] for run in runs])
    cells["best rounds"] = study.best_rounds([run["best"]["round"] for run in runs], [run["rounds"] for run in runs])
    return cells | {"seeds": ", ".join(str(run["seed"]) for run in runs)}


def tried(tuned: Mapping[str, Mapping[str, float]]) -> str:
    """A sentence for each arm that tried rates."""
    scores = {arm: ", ".join(f"{wer:.1f} at {lr}" for lr, wer in each.items()) for arm, each in tuned.items()}
    return "\n\n".join(f"Greedy WER on dev of seed {TUNING} by rate, {arm}: {each}." for arm, each in scores.items())


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fednst-confounds", rounds=50)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("fednst_confounds", rounds=chosen.rounds)
    tuned: dict[str, dict[str, float]] = before.get("tuned", {})
    found = study.gathered(
        before.get("found", {}), ARMS, chosen,
        lambda arm, seed: place_of(arm, seed, rate_of(arm, tuned, chosen), chosen),
        lambda arm, seed, to: play(arm, seed, rate_of(arm, tuned, chosen), to, chosen),
    )  # fmt: skip
    text = f"""# What FedNST's results rest on

FedNST on embedded speech, {chosen.rounds} rounds at falling rates. Word error rate in percent on 1,200 utterances by 60
new speakers, mean ± SD over seeds of corpus and training, by beam search with the language model ("LM", the paper's
metric) and greedily. The round is the best by greedy dev WER. Changes are from the seed model, and from the arm
compared, over the seeds that both have; shares are of what true transcripts on the clients gain in the same arm (of
greedy labels: in FedNST). Intervals are 95 % of a paired bootstrap over speakers.

{study.table([row(arm, found) for arm in found])}

{tried(tuned)}
"""
    print(text)
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    numbers = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    study.write("fednst_confounds", text, numbers, command, study.seeds(found))


if __name__ == "__main__":
    main()
