"""FedLoRA and FedMem on a pre-trained Whisper and real speech: tables 1, 3 and 5 of Du et al.

    python -m benchmarks.studies.whisper_groups [--arms FedLoRA FedAvg] [--seeds 0 1 2] [--rounds 15] [--actors 1]

Needs FEDRAY_SPEECH, the folder that holds speechocean/ and whisper-tiny.en/. A client is a third, drawn at random, of
the speakers of one age group and gender: five speakers to train on, two for dev, five for test. Two thirds of each
group train, and one joins when training is over: eight and four clients. Utterances last at most 3.5 seconds, and
Whisper hears windows of 3.5 seconds; the checkpoint from which all methods start (P-S2T) is scored in windows of 20 s,
the best on dev of five lengths, because it repeats itself in shorter ones. Each takes the rate whose WER on dev is
lowest after TUNED rounds of seed TUNING, of rates that are tried until the best has a worse neighbour on both sides. A
run stops when dev has not improved for PATIENCE rounds. Then each client decodes its test by the decoder alone,
greedily, without and with its memory. Writes benchmarks/results/whisper_groups.md and .json. The same command resumes
the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

from safetensors import safe_open

from benchmarks import speechocean, study
from benchmarks.rates import best_of, table, tune
from benchmarks.studies.fedlora_page import SERVER, counts_of, packed, page, trained
from fedray.data.text.scoring import SCORING
from fedray.report.bootstrap import Counts

LONGEST = 3.5  # seconds of an utterance, and of Whisper's window
# Seconds of the checkpoint's window before it is tuned: of 8, 12, 16, 20 and 30, on dev of seed 0 it has a WER of 68.0,
# 56.8, 52.6, 52.5 and 56.3 %.
UNTUNED = 20.0
PARTS = {"train": 5, "dev": 2, "test": 5}  # speakers of a client
THIRDS = {"clients": (0, 1), "joining": (2,)}  # of the speakers of a group
CENTRAL = ["data.clients={by: iid, count: 1}", "engine.lanes=1"]
METHODS: dict[str, list[str] | None] = {
    SERVER: None,
    "C-S2T full": ["algorithm.lora.rank=0", *CENTRAL],
    "FedAvg": ["algorithm.lora.rank=0"],
    "C-S2T LoRA": CENTRAL,
    "FedLoRA": [],
    "FedLoRA, rank 4": ["algorithm.lora.rank=4", "algorithm.lora.alpha=8"],
}
RATES = (3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
FIRST = {True: 3e-5, False: 1e-3}  # the first rate that is tried: for all weights, for adapters
TUNING, TUNED, PATIENCE = 0, 3, 3
RULES = {"as they are": "plain", "without format": "whisper_english"}
TITLES = {
    f"{file}, {rule}": f"{title}: texts {rule}"
    for file, title in (("clients", "Clients that trained"), ("joining", "Clients that joined after training"))
    for rule in RULES
}
ABOUT = f"""Test WER in percent for each client, without and with its memory. Clients choose k, lambda and temperature
on dev. Avg is the plain mean over clients, mean ± SD over seeds; pooled is the score of all clients' utterances
together, with its 95 % interval over speakers. Transcripts have no case and no punctuation, which Whisper writes: texts
*as they are* count both as errors, texts *without format* are compared by Whisper's rules for English
(`whisper_english`). Whisper hears windows of {LONGEST:g} seconds, P-S2T of {UNTUNED:g}. A run stops when dev has not
improved for {PATIENCE} rounds."""
MEMORY = {"kind": "fedmem", "k": [4, 8, 16], "share": [0.1, 0.3, 0.5, 0.7, 0.9], "temperature": [10, 50, 100, 200]}


def drawn(seed: int, folder: Path) -> Path:
    """A folder with tables of the seed's utterances: clients.tsv, joining.tsv, and tuning.tsv, clients without test."""
    rows = speechocean.utterances(LONGEST)
    groups: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        groups[f"{row['age_group']}-{row['gender']}"].add(row["speaker"])
    draw, size = random.Random(seed), sum(PARTS.values())
    splits = [split for split, count in PARTS.items() for _ in range(count)]
    of = {}  # speaker -> third, client, split
    for group, speakers in sorted(groups.items()):
        for at, speaker in enumerate(draw.sample(sorted(speakers), 3 * size)):
            of[speaker] = at // size, {"client": f"{group}-{at // size}", "split": splits[at % size]}
    for name, thirds in THIRDS.items():
        chosen = [row | of[row["speaker"]][1] for row in rows if of.get(row["speaker"], (None,))[0] in thirds]
        speechocean.write(folder, f"{name}.tsv", chosen)
        if name == "clients":
            speechocean.write(folder, "tuning.tsv", [row for row in chosen if row["split"] != "test"])
    return folder


def common(seed: int, runs: Path, file: str, seconds: float = LONGEST) -> list[str]:
    """The overrides that all runs of a seed share. `file`: of `drawn`. `seconds`: of Whisper's window."""
    columns = {"seconds_column": "seconds", "split_column": "split", "label_column": "client"}
    options = {"train": [f"{file}.tsv"], "text_column": "transcript", "lower_case": True, **columns}
    found = {"seed": seed, "data.seed": seed, "data.corpus": "tsv", "data.options": options}
    found |= {"data.root": str(drawn(seed, runs / f"seed-{seed}" / "speech")), "data.clients": {"by": "label"}}
    found |= {"model.seconds": seconds, "cohort.fraction": 1.0, "engine.lanes": 8, "engine.gpus_per_client": "auto"}
    found |= {"task.decode": {"search": "attention", "beam": 1, "ctc_weight": 0}}
    return study.overrides(found)


def train(
    method: str, rate: float, seed: int, rounds: int, place: Path, chosen: argparse.Namespace, trial: bool = False
) -> dict[str, Any]:
    """The results of the training of a method at a rate. `trial`: without test, and scored at its end alone."""
    file, every = ("tuning", rounds) if trial else ("clients", 1)
    client = {"lr": rate, "warmup": 8, "batch": 8, "epochs": 1, "clip": 1.0}
    settings = [f"algorithm.client={json.dumps(client)}", f"rounds={rounds}", f"evaluation.every={every}"]
    settings += [f"evaluation.patience={PATIENCE}", "engine.vectorise=never", f"engine.actors={chosen.actors}"]
    folder = [f"model.folder={study.speech('whisper-tiny.en')}"]
    given = [*common(seed, chosen.runs, file), *folder, *settings, *(METHODS[method] or [])]
    return study.run("configs/fedlora/whisper_small.yaml", given, place)


def best_rate(method: str, chosen: argparse.Namespace, tuned: dict[str, dict[str, float]]) -> float:
    """The rate with the lowest WER on dev; the method's scores are in `tuned` (rate -> WER) afterwards."""

    def score(rate: float) -> float:
        place = chosen.runs / "tuning" / f"{study.folder_name(method)}-{rate:g}"
        train(method, rate, TUNING, TUNED, place, chosen, trial=True)
        return float(study.rounds(place)[-1]["dev/wer"])

    at = RATES.index(FIRST["algorithm.lora.rank=0" in (METHODS[method] or [])])
    tried = tuned[method] = tune(RATES, slice(at - 1, at + 2), score, min, tuned.get(method))
    return best_of(tried, min)


def play(method: str, seed: int, place: Path, chosen: argparse.Namespace, tuned: dict[str, Any]) -> dict[str, Any]:
    """Traffic and size of the training, and the clients' test scores by rule of scoring, and file of clients."""
    found: dict[str, Any] = {"seed": seed, "scores": {}, "counts": {}}
    folder = study.speech("whisper-tiny.en")
    if METHODS[method] is not None:
        rate, training = best_rate(method, chosen, tuned), place / "training"
        results = train(method, rate, seed, chosen.rounds, training, chosen)
        rows, folder = study.rounds(training), training / "model"
        with safe_open(folder / "model.safetensors", "pt") as weights:
            sizes = [math.prod(weights.get_slice(name).get_shape()) for name in weights.keys()]  # noqa: SIM118
        found |= {"rate": rate, **trained(results, rows, sum(sizes))}
        found |= {"dev": [row["dev/wer"] for row in rows], "seconds": sum(row["time/round_s"] for row in rows)}
    for file in THIRDS:
        settings = [f"algorithm={json.dumps(MEMORY)}", "evaluation.personal_predictions=true", f"model.folder={folder}"]
        settings.append(f"engine.actors={chosen.actors}")
        shared = common(seed, chosen.runs, file, UNTUNED if method == SERVER else LONGEST)
        study.run("configs/fedmem/whisper_small.yaml", [*shared, *settings], place / file)
        for title, rule in RULES.items():
            counts = counts_of(place / file, "wer", SCORING[rule])
            found["counts"][f"{file}, {title}"] = packed(counts)
            found["scores"][f"{file}, {title}"] = {client: wer(both) for client, both in counts.items()}
    return found


def wer(both: dict[str, Counts]) -> dict[str, float]:
    """Way of decoding -> WER of a client in percent."""
    return {
        how: 100 * sum(wrong for _, wrong in units.values()) / sum(words for words, _ in units.values())
        for how, units in both.items()
    }


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-whisper-groups", rounds=15)
    chosen = study.chosen(parser, METHODS)
    before = study.page_before("whisper_groups", rounds=chosen.rounds)
    tuned = before.get("tuned", {})
    found = study.gathered(
        before.get("found", {}), METHODS, chosen,
        study.place(chosen.runs),
        lambda method, seed, place: play(method, seed, place, chosen, tuned),
    )  # fmt: skip
    text = f"# FedLoRA and FedMem on Whisper\n\n{ABOUT}\n\n{page(found, TITLES, True)}"
    if tuned:
        text += f"\n\n## Rates\n\nWER on dev after {TUNED} rounds, seed {TUNING}.\n\n{table(RATES, tuned)}"
    command = study.command(parser, chosen, arms=study.on_page(METHODS, found))
    kept = {"rounds": chosen.rounds, "tuned": tuned, "found": found}
    study.write("whisper_groups", text, kept, command, study.seeds(found))
    print(text)


if __name__ == "__main__":
    main()
