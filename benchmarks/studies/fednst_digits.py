"""FedNST on real speech: connected digits, six splits of FSDD's six speakers into three labelled and three unlabelled.

    python -m benchmarks.studies.fednst_digits [--runs runs/study-digits]

Needs FEDRAY_SPEECH, the folder that holds fsdd/. Test strings are joined from the official test takes 0-4 of the
clients' speakers; strings of the server's speakers show forgetting. Settings and the round were chosen on takes 5-9.
The same command resumes; finished runs are kept.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

import jiwer

from benchmarks import study
from fedray import experiment

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
# Three of the ways to halve the speakers, each half once as server: every speaker is a client in three splits.
HALVES = (("george", "jackson", "lucas"), ("george", "nicolas", "theo"), ("jackson", "nicolas", "yweweler"))
SERVERS = [side for half in HALVES for side in (half, tuple(name for name in SPEAKERS if name not in half))]
METHODS: dict[str, tuple[str, list[str]]] = {
    "FedNST": ("digits.yaml", []),
    "true labels (SFL)": ("baselines/sfl_digits.yaml", []),
    "server only": ("digits.yaml", ["algorithm.alpha=1.0", "cohort.fraction=null", "cohort.size=1"]),
}
ORDER = ("server only", "FedNST", "true labels (SFL)")
SEARCHES = {"greedy": "errors", "lexicon beam": "errors_lexicon"}
COMMAND = "make study-digits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", type=Path, default=study.ROOT / "runs" / "study-digits", help="where the run folders are kept"
    )
    arguments = parser.parse_args()
    splits, data = [], study.speech("fsdd")
    for seed, server in enumerate(SERVERS):
        splits.append(play(seed, server, data, arguments.runs))
        print(study.table([row(split) for split in splits]), flush=True)
    text, numbers = summary(splits)
    study.write("fednst_digits", text, numbers, COMMAND, range(len(SERVERS)))
    print(text)


def play(seed: int, server: Sequence[str], data: Path, runs: Path) -> dict[str, Any]:
    """All methods on one split of the speakers; their scores, and errors by recording for the intervals."""
    common = [f"seed={seed}", f"data.root={data}", f"data.options.server_speakers=[{','.join(server)}]"]
    split: dict[str, Any] = {
        "clients": [name for name in SPEAKERS if name not in server],
        "scores": {},
        "counts": {},
        "labels": {},
    }
    for method, (config, overrides) in METHODS.items():
        out = runs / f"split-{seed}" / method.split(" (")[0].replace(" ", "-").lower()
        print(f"split {seed + 1} of {len(SERVERS)}, {method}: {out}", flush=True)
        results = study.run(f"configs/fednst/{config}", [*common, *overrides], out)
        recordings = strings(config, common)
        for name, model in (("seed", "seed"), (method, "best")):
            split["scores"][name] = results[model]
            for part in ("test", "test-server"):
                rows = study.predictions(out, model, part)
                for search, column in SEARCHES.items():
                    split["counts"][name, part, search] = by_recording(rows, column, recordings)
        if method == "FedNST":
            wers = [metrics["train/label_wer"] for metrics in study.rounds(out)]
            split["labels"] = {"first": wers[0], "last": wers[-1]}
    return split


def strings(config: str, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Utterance -> the recordings that it is joined from."""
    loaded, source = experiment.load(study.ROOT / "configs" / "fednst" / config, overrides)
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


def scores(split: Mapping[str, Any], method: str, part: str = "test") -> tuple[float, float]:
    """Word error rates in percent: greedy, and with the lexicon."""
    return split["scores"][method][f"{part}/wer"], split["scores"][method][f"{part}/wer_lexicon"]


def both(pairs: Sequence[tuple[float, float]]) -> str:
    return " / ".join(f"{mean(values):.1f}" for values in zip(*pairs, strict=True))


def row(split: Mapping[str, Any]) -> dict[str, str]:
    return {"clients' speakers": ", ".join(split["clients"])} | {
        name: both([scores(split, name)]) for name in ("seed", *ORDER)
    }


def summary(splits: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The page, and its numbers."""
    average = {"clients' speakers": "**mean**"} | {
        name: both([scores(split, name) for split in splits]) for name in ("seed", *ORDER)
    }
    changes: dict[str, dict[str, Any]] = {method: {} for method in ORDER}
    tables = {}
    for part, unit in (("test", "%"), ("test-server", "points")):
        tables[part] = []
        for method in ORDER:
            cells = {"against the seed model": method}
            for search in SEARCHES:
                before, after = ([split["counts"][name, part, search] for split in splits] for name in ("seed", method))
                found = study.change(before, after, unit)
                cells |= {
                    search: str(found),
                    f"{search}, each split": ", ".join(f"{value:+.0f}" for value in found.runs),
                }
                changes[method][f"{part}/{search}"] = asdict(found)
            tables[part].append(cells)
    forgotten = {name: both([scores(split, name, "test-server") for split in splits]) for name in ("seed", *ORDER)}
    labels = [mean(split["labels"][when] for split in splits) for when in ("first", "last")]
    text = f"""# FedNST on real speech: connected digits

Word error rate in percent, greedy / beam search over 3 to 7 words of the lexicon, on strings joined from the official
test takes 0-4 of the clients' speakers: three labelled speakers train the seed model, twelve clients of three other
speakers have no labels. Clients and test share their speakers, so this is adaptation to known speakers. Settings were
chosen on takes 5-9.

{study.table([*(row(split) for split in splits), average])}

Relative change, mean over the {len(splits)} splits, with the 95 % interval of a paired bootstrap over recordings (the
splits' speakers held fixed):

{study.table(tables["test"])}

FedNST's pseudo-labels have a word error rate of {labels[0]:.1f} % in the first round and {labels[1]:.1f} % in the last.

Forgetting: the server's speakers, the same takes; mean over the splits, and the change in points.

{study.table([forgotten])}

{study.table(tables["test-server"])}
"""
    numbers = {
        "splits": [{name: split[name] for name in ("clients", "scores", "labels")} for split in splits],
        "changes": changes,
    }
    return text, numbers


if __name__ == "__main__":
    main()
