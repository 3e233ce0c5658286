"""A pre-trained encoder in a federation of real speech, compared with models from scratch: whisper-tiny.en's encoder.

    python -m benchmarks.studies.encoders [--arms keywords speech] [--seeds 0 1 2] [--rounds 15] [--actors 1]

Needs FEDRAY_SPEECH, the folder that holds arabic-commands-full/, speechocean/ and whisper-tiny.en/. Keywords: 40 Arabic
words, 12 speakers as clients, 6 for dev, 6 for test. Speech: English by Mandarin speakers, utterances of up to five
seconds; a third of the training speakers are the server's, whose transcripts train the seed model: of a pre-trained
encoder the CTC layer alone, as a whole encoder learns slowly behind a random layer. Each arm takes the rate that is
best on dev after TUNED rounds of seed TUNING, of rates that are tried until the best has a worse neighbour on both
sides or is at an end of RATES. Models from scratch train for four times as many steps and rounds. Writes
benchmarks/results/encoders.md and .json. The same command resumes the study: it keeps finished runs, and takes runs
whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks import speechocean, study
from benchmarks.rates import best_of, table, tune

LONGEST = 5.0  # seconds of an utterance in the part `speech`
TESTED = 52  # test speakers of `speech`
UNTESTED = 2  # test speakers of runs that compare rates on dev: a large test set takes long to score
MASKS = {"time_masks": 0, "frequency_masks": 0}
LONGER = 4  # times as many rounds, and steps of the seed model, for models from scratch: theirs are short
STEPS = 500  # of the seed model of a pre-trained encoder, in the part `speech`
PRETRAIN = {"warmup": 20, "batch": 8, "clip": 1.0}
EVERY = 5  # rounds; scoring takes as long as training
TUNING, TUNED = 0, 5
FULL, FROZEN, ADAPTERS, SCRATCH = (
    "encoder, FedAvg",
    "encoder frozen, FedAvg",
    "encoder, FedLoRA",
    "from scratch, FedAvg",
)
RATES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
FIRST = {FULL: 1e-4, FROZEN: 1e-3, ADAPTERS: 1e-3, SCRATCH: 1e-3}  # the first rate that is tried
SPENT = ("CPU s", "MB of an actor")
METRICS = {"keywords": ("accuracy", max), "speech": ("wer", min)}
ARMS = tuple(f"{part}: {arm}" for part in METRICS for arm in FIRST)
TITLES = {
    "keywords": "## Keywords\n\nTest accuracy in percent: 40 words of six speakers who are new to the model. From "
    "scratch: a CRNN, for four times as many rounds.",
    "speech": "## Speech\n\nWord error rate of test speakers in percent, greedy: of the seed model, of "
    "which the server trained the CTC layer, and of the best round on dev. From scratch: a Conformer, for four times "
    "as many steps of the server and rounds.",
}


def rounds_of(arm: str, rounds: int) -> int:
    """The rounds of an arm."""
    return LONGER * rounds if arm == SCRATCH else rounds


def sections(part: str, arm: str, rate: float) -> dict[str, Any]:
    """The sections of an arm's configuration that differ from the other arms'."""
    keywords, scratch = part == "keywords", arm == SCRATCH
    pretrain = PRETRAIN | ({"steps": LONGER * STEPS, "lr": 3e-3} if scratch and not keywords else {"steps": 0})
    client: dict[str, Any] = {"lr": rate, "batch": 8 if keywords else 4, "epochs": 1 if keywords else 3, "clip": 1.0}
    if not scratch:
        client["precision"] = "bf16"
    if arm == ADAPTERS:
        algorithm = {"kind": "fedlora", "lora": {"rank": 16, "alpha": 32}, "client": client | {"warmup": 10}}
    else:
        algorithm = {"kind": "fedavg", "client": client | {"optimizer": "adam"}}
    found: dict[str, Any] = {"algorithm": algorithm | {"pretrain": pretrain}}
    if scratch:
        found["model"] = {"kind": "crnn", "size": "base"} if keywords else {"kind": "conformer"}
        found["task.augment"] = MASKS
    else:
        window = {"folder": str(study.speech("whisper-tiny.en")), "seconds": 1.0 if keywords else LONGEST}
        found["model"] = {"kind": "encoder", **window} | ({"frozen": ["^encoder"]} if arm == FROZEN else {})
        found["engine.vectorise"] = "never"  # as bf16 demands
    return found


def overrides(
    part: str, arm: str, rate: float, seed: int, rounds: int, runs: Path, tested: int = TESTED
) -> tuple[str, list[str]]:
    """The configuration of an arm, and its overrides. `tested`: speakers of the test set of `speech`."""
    options = {"train": ["manifest.tsv"], "seconds_column": "seconds", "split_column": "official_split"}
    common = {"seed": seed, "data.seed": seed, "rounds": rounds, "evaluation.every": EVERY, "engine.lanes": 8}
    common["cohort.fraction"] = None
    if part == "keywords":
        config, options = "encoder_keywords", {**options, "label_column": "keyword", "text_column": None}
        root, shares = study.speech("arabic-commands-full"), {"data.test_share": 0.34, "data.dev_share": None}
        common |= shares | {"cohort.size": 4}
    else:
        config, options = "encoder", {**options, "text_column": "transcript", "lower_case": True}
        root, shares = shortened(runs / f"short-{tested}", tested), {"data.test_share": None, "data.dev_share": 0.1}
        common |= shares | {"cohort.size": 10, "data.server.share": 0.33, "task.decode": {"search": "greedy"}}
    common |= {"data.root": str(root), "data.options": options} | sections(part, arm, rate)
    return f"configs/fedavg/{config}.yaml", study.overrides(common)


def seed_model(seed: int, chosen: argparse.Namespace) -> Path:
    """The weights of the seed model for `speech`: whisper-tiny.en's encoder, and a CTC layer that the server trained.

    A run makes it whose only round, of one client at the lowest rate, changes next to nothing.
    """
    folder = chosen.runs / "seed-models" / str(seed)
    config, given = overrides("speech", FROZEN, RATES[0], seed, 1, chosen.runs, tested=UNTESTED)
    given += study.overrides({"algorithm.pretrain": PRETRAIN | {"steps": STEPS, "lr": 1e-2}, "cohort.size": 1})
    study.run(config, [*given, f"engine.actors={chosen.actors}"], folder)
    return folder / "model" / "model.pt"


def shortened(folder: Path, speakers: int) -> Path:
    """A folder with the utterances of speechocean up to `LONGEST`, and of so many test speakers."""
    rows = speechocean.utterances(LONGEST)
    tested = sorted({row["speaker"] for row in rows if row["official_split"] == "test"})[:speakers]
    kept = [row for row in rows if row["official_split"] != "test" or row["speaker"] in tested]
    speechocean.write(folder, "manifest.tsv", kept)
    return folder


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """While open, the CPU seconds of all client actors and the largest memory of one, in MB, are gathered.

    Ray's shared memory, in which broadcasts lie, is not an actor's own.
    """
    found, spent, over = dict.fromkeys(SPENT, 0.0), dict[int, float](), threading.Event()

    def look() -> None:
        while not over.wait(0.25):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "ClientActor" in " ".join(process.cmdline()):
                        times = process.cpu_times()
                        spent[process.pid] = times.user + times.system
                        memory = process.memory_info()
                        found[SPENT[1]] = max(found[SPENT[1]], (memory.rss - memory.shared) / 1e6)
                except psutil.Error:
                    continue
            found[SPENT[0]] = sum(spent.values())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield found
    over.set()
    thread.join()


def train(
    part: str, arm: str, rate: float, seed: int, rounds: int, place: Path, chosen: argparse.Namespace,
    tested: int = TESTED,
) -> dict[str, Any]:  # fmt: skip
    """The results of a run."""
    config, given = overrides(part, arm, rate, seed, rounds, chosen.runs, tested)
    if part == "speech" and arm != SCRATCH:
        given += study.overrides({"model.init": str(seed_model(seed, chosen))})
    return study.run(config, [*given, f"engine.actors={chosen.actors}"], place)


def play(name: str, seed: int, place: Path, chosen: argparse.Namespace, tuned: dict[str, Any]) -> dict[str, Any]:
    """The scores of an arm at its best rate, and what its actors spent; a resumed run's first part is not counted.

    The arm's scores on dev are in `tuned` (rate -> score) afterwards.
    """
    part, arm = name.split(": ")
    metric, best = METRICS[part]

    def score(rate: float) -> float:
        trial = chosen.runs / "tuning" / f"{study.folder_name(name)}-{rate:g}"
        return float(train(part, arm, rate, TUNING, TUNED, trial, chosen, tested=UNTESTED)["best"][f"dev/{metric}"])

    at = RATES.index(FIRST[arm])
    tried = tuned[name] = tune(RATES, slice(at - 1, at + 2), score, best, tuned.get(name))
    rate = best_of(tried, best)
    finished = (place / "results.json").exists()
    with watched() as spent:
        results = train(part, arm, rate, seed, rounds_of(arm, chosen.rounds), place, chosen)
    file = place.with_suffix(".spent.json")
    if not finished:
        file.write_text(json.dumps(spent), encoding="utf-8")
    spent = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    kept = {"rate": rate, "before": results["seed"][f"test/{metric}"], "after": results["best"][f"test/{metric}"]}
    return {"seed": seed, **kept, "round": results["best"]["round"], "bytes": results["traffic/total_bytes"], **spent}


def row(name: str, found: list[dict[str, Any]], rounds: int) -> dict[str, object]:
    """An arm's row of its part's table."""
    part, arm = name.split(": ")
    before = {"before": study.spread([one["before"] for one in found])} if part == "speech" else {}
    return {
        "model": arm,
        "rate": f"{found[0]['rate']:g}",
        **before,
        METRICS[part][0]: study.spread([one["after"] for one in found]),
        "best rounds": study.best_rounds([one["round"] for one in found], [rounds_of(arm, rounds)] * len(found)),
        "MB sent": study.spread([one["bytes"] / 1e6 for one in found]),
        **{name: study.spread(seen) if (seen := [one[name] for one in found if name in one]) else "" for name in SPENT},
        "seeds": ", ".join(str(one["seed"]) for one in found),
    }


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-encoders", rounds=15)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("encoders", rounds=chosen.rounds)
    tuned = before.get("tuned", {})
    found = study.gathered(
        before.get("found", {}), ARMS, chosen,
        study.place(chosen.runs),
        lambda name, seed, place: play(name, seed, place, chosen, tuned),
    )  # fmt: skip
    texts = ["# Pre-trained encoders"]
    for part, title in TITLES.items():
        rows = [row(name, runs, chosen.rounds) for name, runs in found.items() if name.startswith(part)]
        if rows:
            texts += [title, study.table(rows)]
    texts += [f"## Rates\n\nScores on dev after {TUNED} rounds, seed {TUNING}.", table(RATES, tuned)]
    text, command = "\n\n".join(texts), study.command(parser, chosen, arms=study.on_page(ARMS, found))
    kept = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    study.write("encoders", text, kept, command, study.seeds(found))
    print(text)


if __name__ == "__main__":
    main()
