"""FedNST on real speech: connected digits, six splits of FSDD's six speakers into three labelled and three unlabelled.

    python -m benchmarks.studies.fednst_digits [--seeds 0 1 2 3 4 5] [--arms NST] [--rounds 60] [--actors N]

A seed is a split. Every arm starts from its split's seed model. The federated arms train on 1,500 strings a round, and
the server's rate follows the clients'. The central arms train on 1,110 strings a round, half of all, in more rounds, so
that all arms train on as many. "The surest first" drops labels in early rounds: 1,140 strings a round on average. The
server's speech alone has 60 strings a round, as in FedNST. "All of the server's speech": as in the paper's algorithm 1,
the server passes over its 1,500 strings in every round. These arms take the rate of RATES that is best on dev of split
TUNING. They and FedNST are held against the clients' speech alone, at equal steps of the clients (`mixing`). Needs
FEDRAY_SPEECH, the folder that holds fsdd/. Test strings are joined from the official test takes 0-4 of the clients'
speakers; strings of the server's speakers show forgetting. Settings and the round were chosen on takes 5-9. The same
command resumes the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import jiwer

from benchmarks import study
from benchmarks.rates import best_of, tune
from fedray import experiment
from fedray.report.bootstrap import Counts, rate, recovered

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
# Three of the ways to halve the speakers, with each half once as server: every speaker is a client in three splits.
HALVES = (("george", "jackson", "lucas"), ("george", "nicolas", "theo"), ("jackson", "nicolas", "yweweler"))
SERVERS = [side for half in HALVES for side in (half, tuple(name for name in SPEAKERS if name not in half))]
SCHEDULED = ["algorithm.server_scheduled=true"]
AS_IN_THE_PAPER = ["algorithm.relabel=once", "algorithm.confidence={keep: 1.0, keep_last: 1.0}"]
ALONE = ["algorithm.alpha=1.0", "cohort.fraction=null", "cohort.size=1"]
WHOLE = ["algorithm.server.utterances=null", "algorithm.server.lr=RATE"]
# From a server's part about as long as that of 10 steps at the configuration's rate, to 250 steps at this rate.
RATES = (0.002, 0.01, 0.05)
TUNING = 0  # the split that chooses the rate


def mixing(alpha: float) -> list[str]:
    """Overrides of alpha, with the server's rate at which the clients' part of a round keeps its step.

    A round adds eta (alpha Delta_S + (1 - alpha) Delta_C). At one rate eta a larger alpha shortens the clients' part;
    here eta (1 - alpha) is the configurations' 0.7 (alpha 0.3, eta 1), and the server's part comes on top.
    """
    return [f"algorithm.alpha={alpha:g}", f"server_optimizer.lr={0.7 / (1 - alpha):g}"]


REFERENCE = "SFL: federated, true labels"
FEDNST, CLIENTS = "FedNST: federated, pseudo-labels", "the clients' speech alone"
ALPHAS = {f"all of the server's speech, alpha {alpha:g}": alpha for alpha in (0.5, 0.3)}
TUNED = next(iter(ALPHAS))  # the arm that tries the rates
ARMS: dict[str, tuple[str, list[str]]] = {
    "SL: central, true labels": ("baselines/sl_digits.yaml", []),
    REFERENCE: ("baselines/sfl_digits.yaml", SCHEDULED),
    "NST: central, pseudo-labels": ("baselines/nst_digits.yaml", []),
    FEDNST: ("digits.yaml", [*SCHEDULED, *AS_IN_THE_PAPER]),
    "FedNST, labels every 3 rounds, the surest first": ("digits.yaml", SCHEDULED),
    "the server's speech alone": ("digits.yaml", [*SCHEDULED, *ALONE]),
    CLIENTS: ("digits.yaml", [*SCHEDULED, *AS_IN_THE_PAPER, *mixing(0)]),
    **{arm: ("digits.yaml", [*SCHEDULED, *AS_IN_THE_PAPER, *mixing(alpha), *WHOLE]) for arm, alpha in ALPHAS.items()},
}
CENTRAL = ("baselines/sl_digits.yaml", "baselines/nst_digits.yaml")
SEARCHES = {"lexicon": "errors_lexicon", "greedy": "errors"}
PARTS = {"test": "the clients' speakers", "test-server": "the server's speakers"}
MODELS = ("seed", "best")


def drawn(split: int) -> list[str]:
    """Overrides with the recordings and a split's speakers on the server. Ends the program without such a split."""
    if split not in range(len(SERVERS)):
        sys.exit(f"--seeds {split}: digits have the splits 0 to {len(SERVERS) - 1}")
    return [f"data.root={study.speech('fsdd')}", f"data.options.server_speakers=[{','.join(SERVERS[split])}]"]


def overrides(arm: str, split: int, lr: float | None, chosen: argparse.Namespace) -> list[str]:
    """The overrides of a run. `lr`: the server's, for passes over all of its speech."""
    given = [f"seed={split}", *drawn(split), f"rounds={length(arm, chosen.rounds)}", f"engine.actors={chosen.actors}"]
    return given + [one.replace("RATE", f"{lr:g}") if lr is not None else one for one in ARMS[arm][1]]


def place_of(arm: str, split: int, lr: float | None, chosen: argparse.Namespace) -> Path:
    """The folder of a run."""
    name = arm if lr is None else f"{arm}, {lr:g}"
    return Path(chosen.runs / f"split-{split}" / study.folder_name(name))


def server_rate(arm: str, tuned: dict[str, float], chosen: argparse.Namespace) -> float | None:
    """The server's rate for passes over all of its speech, the best on dev; None for an arm without them.

    `tuned`: rate -> WER on dev. It gets the rates that it lacks: a run of each.
    """
    if arm not in ALPHAS:
        return None

    def dev(lr: float) -> float:
        given = overrides(TUNED, TUNING, lr, chosen)
        results = study.run(f"configs/fednst/{ARMS[TUNED][0]}", given, place_of(TUNED, TUNING, lr, chosen))
        return float(results["best"]["dev/wer"])

    tuned.update(tune(RATES, slice(None), dev, min, tuned))
    return best_of(tuned, min)


def play(arm: str, split: int, lr: float | None, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Errors by recording of the seed model and of the best round, its round, and the labels' WER."""
    config = f"configs/fednst/{ARMS[arm][0]}"
    results = study.run(config, overrides(arm, split, lr, chosen), place)
    recordings = strings(config, [f"seed={split}", *drawn(split)])
    labels = [row["train/label_wer"] for row in study.rounds(place) if row.get("train/label_wer") is not None]
    found: dict[str, Any] = {"seed": split, "round": results["best"]["round"]}
    found["labels"] = [labels[0], labels[-1]] if labels else None
    for model in MODELS:
        for part in PARTS:
            rows = study.predictions(place, model, part)
            for search, column in SEARCHES.items():
                found[f"{model} {part} {search}"] = study.packed(by_recording(rows, column, recordings))
    return found


def length(arm: str, rounds: int) -> int:
    """The rounds of an arm: a central round has fewer utterances than one of the federations' `rounds`."""
    return round(rounds * 1500 / 1110) if ARMS[arm][0] in CENTRAL else rounds


def strings(config: str, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Utterance -> the recordings that it is joined from."""
    loaded, source = experiment.load(study.ROOT / config, overrides)
    manifest = experiment.read_corpus(loaded.data, source)["test"]
    with Path(manifest[0].path).with_name("strings.tsv").open(encoding="utf-8", newline="") as file:
        return {line["utterance"]: line["recordings"].split() for line in csv.DictReader(file, delimiter="\t")}


def by_recording(
    rows: Sequence[Mapping[str, Any]], column: str, recordings: Mapping[str, list[str]]
) -> dict[str, tuple[int, int]]:
    """Recording -> (words, errors): strings share recordings, so strings are not independent.

    An inserted word counts as an error of the recording before it.
    """
    aligned = jiwer.process_words(
        [row["reference"] for row in rows], [row[column.replace("errors", "hypothesis")] for row in rows]
    )
    counts: dict[str, tuple[int, int]] = {}
    for row, chunks in zip(rows, aligned.alignments, strict=True):
        names = recordings[row["utterance"]]
        errors = [0] * len(names)
        for chunk in chunks:
            if chunk.type == "insert":
                errors[max(0, chunk.ref_start_idx - 1)] += chunk.hyp_end_idx - chunk.hyp_start_idx
            elif chunk.type != "equal":
                for position in range(chunk.ref_start_idx, chunk.ref_end_idx):
                    errors[position] += 1
        assert sum(errors) == row[column], row["utterance"]
        for name, wrong in zip(names, errors, strict=True):
            words, before = counts.get(name, (0, 0))
            counts[name] = (words + 1, before + wrong)
    return counts


def counts(runs: Sequence[Mapping[str, Any]], model: str, part: str, search: str) -> list[Counts]:
    """Words and errors by recording of each run."""
    return [study.unpacked(run[f"{model} {part} {search}"]) for run in runs]


def table(found: study.Found, part: str, rounds: int) -> str:
    """A row for each arm: its WER by each search, the change from the seed model, and its share of SFL's gain.

    Arms that mix in the server's speech have the change from the clients' alone, too. `rounds`: those of the
    federations.
    """
    rows = []
    for arm, runs in found.items():
        row = {PARTS[part]: arm}
        alone = found.get(CLIENTS, []) if arm in (FEDNST, *ALPHAS) else []
        pairs = study.from_one_start(alone, runs, "seed test greedy")
        for search in SEARCHES:
            before, after = (counts(runs, model, part, search) for model in MODELS)
            row[search] = f"{rate(before).mean:.1f} → {rate(after).mean:.1f}"
            row[f"change, {search}"] = str(study.change(before, after, "%" if part == "test" else "points"))
            if part == "test" and REFERENCE in found:
                row[f"of SFL's gain, {search} (%)"] = (
                    "100" if arm == REFERENCE else gain(runs, found[REFERENCE], search)
                )
            if part == "test" and CLIENTS in found:
                sides = [counts(side, "best", part, search) for side in zip(*pairs, strict=True)]
                row[f"against {CLIENTS}, {search}"] = str(study.change(*sides)) if sides else ""
        if part == "test":
            labels = [run["labels"] for run in runs if run["labels"]]
            row["labels' WER"] = " → ".join(f"{mean(each):.1f}" for each in zip(*labels, strict=True))
            row["best rounds"] = study.best_rounds([run["round"] for run in runs], [length(arm, rounds)] * len(runs))
            row["splits"] = ", ".join(str(run["seed"]) for run in runs)
        rows.append(row)
    return study.table(rows)


def gain(runs: Sequence[dict[str, Any]], reference: Sequence[dict[str, Any]], search: str) -> str:
    """The share of the reference's gain over the splits that both have, in percent."""
    here, there = study.common(runs, reference)
    if not here:
        return ""
    share = recovered(*(counts(runs, model, "test", search) for runs in (here, there) for model in MODELS))
    return "" if share is None else str(share)


def tried(tuned: Mapping[str, float]) -> str:
    """What a page says of the rates that were tried."""
    scores = ", ".join(f"{wer:.1f} at {rate}" for rate, wer in tuned.items())
    return f"\n\nThe server's rate over all of its speech, WER on dev of split {TUNING}: {scores}." if tuned else ""


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-digits", rounds=60, seeds=range(len(SERVERS)))
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("fednst_digits", rounds=chosen.rounds)
    tuned: dict[str, float] = before.get("tuned", {})
    found = study.gathered(
        before.get("found", {}), ARMS, chosen,
        lambda arm, split: place_of(arm, split, server_rate(arm, tuned, chosen), chosen),
        lambda arm, split, to: play(arm, split, server_rate(arm, tuned, chosen), to, chosen),
    )  # fmt: skip
    splits = [f"{split}: {', '.join(sorted({*SPEAKERS} - {*SERVERS[split]}))}" for split in study.seeds(found)]
    text = f"""# FedNST on real speech: connected digits

Word error rate in percent of the best round by dev, by beam search over 3 to 7 words of the lexicon (FedNST's label
search) and greedily, on strings joined from the official test takes 0-4. The seed model is trained on three labelled
speakers; twelve clients have unlabelled speech of the three others. Clients and test have the same speakers, so this is
adaptation to known speakers. Scores are means over splits; changes have the 95 % interval of a paired bootstrap over
recordings (with the speakers of each split held fixed). The clients' speakers by split:
{"; ".join(splits)}.

{table(found, "test", chosen.rounds)}{tried(tuned)}

Forgetting: WER on the server's speakers, with the change in points:

{table(found, "test-server", chosen.rounds)}
"""
    numbers = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("fednst_digits", text, numbers, command, study.seeds(found))
    print(text)


if __name__ == "__main__":
    main()
