"""A pre-trained encoder in a federation of real speech, compared with models from scratch: whisper-tiny.en's encoder.

    python -m benchmarks.studies.encoders [--only keywords speech] [--seeds 0] [--rounds 15]

Needs FEDRAY_SPEECH, the folder that holds arabic-commands-full/, speechocean/ and whisper-tiny.en/. Keywords: 40 Arabic
words, 12 speakers as clients, 6 for dev, 6 for test. Speech: English by Mandarin speakers, utterances of up to five
seconds; a third of the training speakers are the server's, whose transcripts train the seed model.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks import speechocean, study

LONGEST = 5.0  # seconds of an utterance in the part `speech`
ADAM = {"optimizer": "adam", "clip": 1.0}
FROZEN = {"frozen": ["^encoder"]}
MASKS = {"time_masks": 0, "frequency_masks": 0}
ARMS = ("encoder, FedAvg", "encoder frozen, FedAvg", "encoder, FedLoRA", "from scratch, FedAvg")


def sections(part: str, arm: str) -> dict[str, Any]:
    """The sections of an arm's configuration that differ from the other arms'."""
    keywords = part == "keywords"
    batch, scratch = 8 if keywords else 4, arm == ARMS[3]
    pretrain = {"steps": 0 if keywords else 200, "lr": 3e-3 if scratch else 3e-4, "warmup": 20, "batch": 8, "clip": 1.0}
    lr = {ARMS[0]: 1e-4, ARMS[1]: 1e-3, ARMS[3]: 1e-3 if keywords else 3e-4}.get(arm)
    algorithm: dict[str, Any] = {"kind": "fedavg", "client": {"lr": lr, "batch": batch, **ADAM}, "pretrain": pretrain}
    if arm == ARMS[2]:
        client = {"lr": 1e-3, "warmup": 10, "batch": batch, "clip": 1.0}
        algorithm = {"kind": "fedlora", "lora": {"rank": 16, "alpha": 32}, "client": client, "pretrain": pretrain}
    found: dict[str, Any] = {"algorithm": algorithm}
    if scratch:
        found["model"] = {"kind": "crnn", "size": "base"} if keywords else {"kind": "conformer"}
        found["task.augment"] = MASKS
    else:
        window = {"folder": str(study.speech("whisper-tiny.en")), "seconds": 1.0 if keywords else LONGEST}
        found["model"] = {"kind": "encoder", **window} | (FROZEN if arm == ARMS[1] else {})
    return found


def overrides(part: str, arm: str, seed: int, rounds: int, runs: Path) -> tuple[str, list[str]]:
    """The configuration of an arm, and its overrides."""
    options = {"train": ["manifest.tsv"], "seconds_column": "seconds", "split_column": "official_split"}
    common = {"seed": seed, "data.seed": seed, "rounds": rounds, "evaluation.every": 5, "engine.lanes": 8}
    common["cohort.fraction"] = None
    if part == "keywords":
        config, options = "encoder_keywords", {**options, "label_column": "keyword", "text_column": None}
        root, shares = study.speech("arabic-commands-full"), {"data.test_share": 0.34, "data.dev_share": None}
        common |= shares | {"cohort.size": 4}
    else:
        config, options = "encoder", {**options, "text_column": "transcript", "lower_case": True}
        root, shares = shortened(runs / "short"), {"data.test_share": None, "data.dev_share": 0.1}
        common |= shares | {"cohort.size": 10, "data.server.share": 0.33, "task.decode": {"search": "greedy"}}
    common |= {"data.root": str(root), "data.options": options} | sections(part, arm)
    return f"configs/fedavg/{config}.yaml", [f"{key}={json.dumps(value)}" for key, value in common.items()]


def shortened(folder: Path, speakers: int = 52) -> Path:
    """A folder with the utterances of speechocean up to `LONGEST`, and of so many test speakers."""
    rows = speechocean.utterances(LONGEST)
    tested = sorted({row["speaker"] for row in rows if row["official_split"] == "test"})[:speakers]
    kept = [row for row in rows if row["official_split"] != "test" or row["speaker"] in tested]
    speechocean.write(folder, "manifest.tsv", kept)
    return folder


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """While open, the CPU seconds of all client actors and the largest memory of one, in MB, are gathered."""
    found, spent, over = {"CPU s": 0.0, "MB": 0.0}, dict[int, float](), threading.Event()

    def look() -> None:
        while not over.wait(1.0):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "ClientActor" in " ".join(process.cmdline()):
                        times = process.cpu_times()
                        spent[process.pid] = times.user + times.system
                        found["MB"] = max(found["MB"], process.memory_info().rss / 1e6)
                except psutil.Error:
                    continue
            found["CPU s"] = sum(spent.values())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield found
    over.set()
    thread.join()


def play(part: str, arm: str, seed: int, rounds: int, actors: str, runs: Path) -> dict[str, Any]:
    """The results of a run, with what its actors spent; what a first part of it spent is lost if it was resumed."""
    name = study.folder_name(arm)
    out = runs / f"seed-{seed}" / part / name
    print(f"seed {seed}, {part}, {arm}: {out}", flush=True)
    config, given = overrides(part, arm, seed, rounds, runs)
    with watched() as spent:
        results = study.run(config, [*given, f"engine.actors={actors}"], out)
    kept = runs / f"seed-{seed}" / part / f"{name}.spent"
    if spent["CPU s"]:
        kept.write_text(f"{spent['CPU s']:.0f} {spent['MB']:.0f}\n", encoding="utf-8")
    cpu, memory = map(float, kept.read_text(encoding="utf-8").split())
    kept_of = {"first": results["seed"], "best": results["best"], "bytes": results["traffic/total_bytes"]}
    return {**kept_of, "CPU s": cpu, "MB": memory}


def row(part: str, arm: str, found: list[dict[str, Any]]) -> dict[str, object]:
    metric = "test/accuracy" if part == "keywords" else "test/wer"
    first, last = ("" if part == "keywords" else "before", "accuracy" if part == "keywords" else "WER")
    before = {first: study.spread([one["first"][metric] for one in found])} if first else {}
    return {
        "model": arm,
        **before,
        last: study.spread([one["best"][metric] for one in found]),
        "MB sent": study.spread([one["bytes"] / 1e6 for one in found]),
        "CPU s": study.spread([one["CPU s"] for one in found]),
        "MB of an actor": study.spread([one["MB"] for one in found]),
    }


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-encoders", rounds=15, seeds=(0,))
    parser.add_argument("--only", nargs="+", choices=["keywords", "speech"], default=["keywords", "speech"])
    chosen = parser.parse_args()
    texts, kept = [], {}
    titles = {
        "keywords": "## Keywords\n\nTest accuracy in percent: 40 words of six speakers who are new to the model.\n\n",
        "speech": "## Speech\n\nWord error rate of test speakers in percent, greedy: of the seed model, and of the "
        "best round on dev.\n\n",
    }
    for part in chosen.only:
        rows = []
        for arm in ARMS:
            found = [play(part, arm, seed, chosen.rounds, chosen.actors, chosen.runs) for seed in chosen.seeds]
            kept[f"{part}, {arm}"] = found
            rows.append(row(part, arm, found))
            print(study.table(rows), flush=True)
        texts.append(titles[part] + study.table(rows))
    text = "# Pre-trained encoders\n\n" + "\n\n".join(texts)
    study.write("encoders", text, {"found": kept}, study.command(parser, chosen), chosen.seeds)


if __name__ == "__main__":
    main()
