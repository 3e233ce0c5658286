"""FedLoRA and FedMem on embedded dialects and domains and on real speech: tables 1, 3, 4 and 5 of Du et al.

    python -m benchmarks.studies.fedlora [--only dialects attention large translation domains digits speechocean]
                                         [--methods FedLoRA FedAvg] [--seeds 0 1 2]

Each method trains a model; then every client decodes with the model alone and with its memory. P-S2T is the server's
seed model. C-S2T trains on all clients' speech in one place, with all weights or with adapters; FedAvg and FedLoRA
train on the clients. `attention` is the dialects with a decoder, `large` the dialects with nine times the parameters,
`translation` the dialects translated into Chinese. Six clients of new domains join the domains' models after training.
Each seed draws new dialects and domains; each split of the digits has three of the six speakers as clients. Digits and
speechocean need FEDRAY_SPEECH. The pages are benchmarks/results/fedlora_<corpus>.md. The same command resumes; finished
runs are kept.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks import study
from benchmarks.studies.fednst_digits import SERVERS
from fedray.algorithms.fedlora import cost
from fedray.core.metrics import ALONE
from fedray.data.text.translation_scores import bleu_counts
from fedray.report.bootstrap import Counts, change
from fedray.report.predictions import tokenisation

CENTRAL = ["data.clients={by: iid, count: 1}", "engine.lanes=1"]
METHODS: dict[str, tuple[bool, list[str]] | None] = {  # whether the whole model trains, and overrides
    "P-S2T": None,  # first: the others start from its model
    "C-S2T full": (True, CENTRAL),
    "FedAvg": (True, []),
    "C-S2T LoRA": (False, CENTRAL),
    "FedLoRA": (False, []),
}


@dataclass(frozen=True)
class Corpus:
    """Configurations of FedLoRA and of FedMem for a corpus, and what differs from the others."""

    trained: str
    decoded: tuple[str, ...]
    speech: str | None = None  # the folder of real speech
    rate: str = "1e-3"  # of all weights; that of adapters is in the configuration
    score: str = "wer"  # of personal.tsv


CORPORA = {
    "dialects": Corpus("embedded", ("embedded",)),
    # the paper's: a decoder, beams, states as keys
    "attention": Corpus("ablations/attention", ("ablations/attention",), score="wer_lm"),
    "large": Corpus("ablations/large", ("ablations/large",)),  # nine times the parameters
    "translation": Corpus("embedded_translation", ("embedded_translation",), score="bleu_beam"),
    "domains": Corpus("embedded_domains", ("embedded_domains", "ablations/joining"), rate="3e-3"),
    "digits": Corpus("digits", ("digits",), "fsdd"),
    "speechocean": Corpus("speechocean", ("speechocean",), "speechocean-mini"),
}
COLUMNS = 12  # tables of more clients show the mean only
PAIRS = (("P-S2T", "FedAvg"), ("P-S2T", "FedLoRA"), ("FedAvg", "FedLoRA"), ("C-S2T full", "C-S2T LoRA"))


def play(corpus: str, method: str, seed: int, runs: Path) -> dict[str, Any]:
    """Traffic and size of the training, and the clients' personal test scores by configuration of FedMem and client."""
    chosen = CORPORA[corpus]
    place = runs / corpus / f"seed-{seed}" / method.lower().replace(" ", "-")
    print(f"{corpus}, seed {seed}, {method}: {place}", flush=True)
    common, how = [f"seed={seed}", f"data.seed={seed}"], METHODS[method]
    if chosen.speech is not None:
        common.append(f"data.root={study.speech(chosen.speech)}")
    if corpus == "digits":
        common.append(f"data.options.server_speakers=[{','.join(SERVERS[seed])}]")
    found: dict[str, Any] = {"scores": {}}
    model: list[str] = []
    if how is not None:
        whole, overrides = how
        if whole:
            # without adapters: FedAvg
            overrides = ["algorithm.lora.rank=0", f"algorithm.client.lr={chosen.rate}", *overrides]
        model = start_from(place.with_name("p-s2t") / chosen.decoded[0])
        results = study.run(f"configs/fedlora/{chosen.trained}.yaml", [*common, *model, *overrides], place / "training")
        rows = study.rounds(place / "training")
        model = start_from(place / "training")
        state = torch.load(place / "training" / "model" / "model.pt", weights_only=True)
        found |= {"rounds": len(rows), "best": results["best"]["round"], "sent": results["traffic/total_bytes"]}
        found |= {
            "a round": rows[-1]["traffic/up_bytes"] + rows[-1]["traffic/down_bytes"],
            "clients": rows[-1]["clients/ok"],
        }
        sent = [
            tensor for name, tensor in state.items() if tensor.is_floating_point() and not name.endswith(".pe")
        ]  # of positions
        found |= {"parameters": sum(tensor.numel() for tensor in sent)}
        found |= {
            "tuned": rows[-1]["traffic/up_bytes"] // 4 // rows[-1]["clients/ok"] - 4
        }  # the clients' report: 4 numbers
    for config in chosen.decoded:
        study.run(f"configs/fedmem/{config}.yaml", [*common, *model], place / config)
        model = model or start_from(place / config)
        text = (place / config / "personal.tsv").read_text(encoding="utf-8")
        rows = [row for row in csv.DictReader(text.splitlines(), delimiter="\t") if row["split"] == "test"]
        found["scores"][config] = {
            row["client"]: {"alone": float(row[chosen.score + ALONE]), "memory": float(row[chosen.score])}
            for row in rows
        }
        if chosen.score.startswith("bleu"):
            found["counts"] = counts_of(place / config)
    return found


def counts_of(run: Path) -> dict[str, dict[str, Counts]]:
    """Client -> the counts of BLEU by speaker, of what beam search makes of test alone and with the memory."""
    tokens = tokenisation(json.loads((run / "results.json").read_text(encoding="utf-8"))["signatures"]["bleu"])
    texts = (run / "personal_predictions.tsv").read_text(encoding="utf-8").splitlines()
    rows = [row for row in csv.DictReader(texts, delimiter="\t", quoting=csv.QUOTE_NONE) if row["split"] == "test"]
    found: dict[str, dict[str, Counts]] = {}
    for client in dict.fromkeys(row["client"] for row in rows):
        spoken = [row for row in rows if row["client"] == client]
        found[client] = {
            name: {
                speaker: bleu_counts(
                    *([row[column] for row in spoken if row["speaker"] == speaker] for column in ("reference", heard)),
                    tokens,
                )
                for speaker in dict.fromkeys(row["speaker"] for row in spoken)
            }
            for name, heard in (("alone", f"hypothesis_beam{ALONE}"), ("memory", "hypothesis_beam"))
        }
    return found


def start_from(run: Path) -> list[str]:
    return [f"model.init={run / 'model' / 'model.pt'}", "algorithm.pretrain.steps=0"]


def page(corpus: str, found: dict[str, list[dict[str, Any]]]) -> str:
    texts, sign = [], -1 if CORPORA[corpus].score.startswith("wer") else 1  # of a gain
    for config in CORPORA[corpus].decoded:
        clients = sorted({client for one in found["P-S2T"] for client in one["scores"][config]})
        rows = []
        for method, results in found.items():
            scores = [one["scores"][config] for one in results]
            for column, name in (("alone", method), ("memory", f"{method} + FedMem")):
                row: dict[str, Any] = {"method": name}
                if len(clients) <= COLUMNS:
                    row |= {client: mean(one[client][column] for one in scores if client in one) for client in clients}
                row["Avg"] = study.spread([mean(client[column] for client in one.values()) for one in scores])
                gains = [mean(sign * (client["memory"] - client["alone"]) for client in one.values()) for one in scores]
                row["gain of the memory"] = study.spread(gains) if column == "memory" else ""
                rows.append(row)
        texts.append(f"## configs/fedmem/{config}.yaml\n\n{study.table(rows)}")
    if "counts" in found["P-S2T"][0]:
        texts.append(differences(found))
    costs = [traffic(method, results) for method, results in found.items() if "sent" in results[0]]
    return "\n\n".join(texts) + f"\n\n## Traffic\n\n{study.table(costs)}"


def differences(found: dict[str, list[dict[str, Any]]]) -> str:
    """Changes of BLEU with intervals: a client of a seed is a run of the bootstrap, whose speakers are its units."""

    def of(method: str, column: str) -> list[Counts]:
        return [one["counts"][client][column] for one in found[method] for client in sorted(one["counts"])]

    compared = [(f"{method}: the memory", of(method, "alone"), of(method, "memory")) for method in found]
    compared += [
        (
            f"{other} -> {method}{'' if column == 'alone' else ', both with FedMem'}",
            of(other, column),
            of(method, column),
        )
        for other, method in PAIRS
        if other in found and method in found
        for column in ("alone", "memory")
    ]
    rows = [{"change": name, "BLEU": str(change(*both, "points"))} for name, *both in compared]
    about = "Mean over seeds and clients; 95 % intervals by paired bootstrap over speakers."
    return f"## Changes of BLEU\n\n{about}\n\n{study.table(rows)}"


def traffic(method: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    tuned, clients, parameters = (results[0][name] for name in ("tuned", "clients", "parameters"))
    formula = mean(cost(one["parameters"], one["tuned"], one["clients"], one["rounds"]) for one in results)
    row = {"method": method, "tuned": f"{tuned:,}", "of": f"{parameters:,}", "clients": clients}
    row |= {"rounds": mean(one["rounds"] for one in results), "best": mean(one["best"] for one in results)}
    sent, a_round = mean(one["sent"] for one in results), mean(one["a round"] for one in results)
    return row | {
        "MB sent": f"{sent / 1e6:.2f}",
        "by the formula": f"{formula / 1e6:.2f}",
        "MB a round": f"{a_round / 1e6:.3f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    server, *others = METHODS
    parser.add_argument("--methods", nargs="+", choices=others, default=others, help="beside the server's model")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="of all corpora but the digits, which have six splits"
    )
    parser.add_argument(
        "--runs", type=Path, default=study.ROOT / "runs" / "study-fedlora", help="where the run folders are kept"
    )
    chosen = parser.parse_args()
    for corpus in chosen.only:
        seeds = list(range(len(SERVERS))) if corpus == "digits" else chosen.seeds
        found: dict[str, list[dict[str, Any]]] = {method: [] for method in (server, *chosen.methods)}
        for seed in seeds:
            for method, results in found.items():
                results.append(play(corpus, method, seed, chosen.runs))
        score = "WER in percent" if CORPORA[corpus].score.startswith("wer") else "BLEU (beam search)"
        text = f"# FedLoRA and FedMem: {corpus}\n\nTest {score} of each client, alone and with its memory. "
        text += "Clients choose k, lambda and temperature on dev. Avg is\nthe plain mean over clients, "
        text += "mean ± SD over seeds.\n\n"
        text += page(corpus, found)
        command = f"python -m benchmarks.studies.fedlora --only {corpus}"
        if chosen.methods != others:
            command += f" --methods {shlex.join(chosen.methods)}"
        numbers = {name: [{**one, "counts": None} for one in results] for name, results in found.items()}
        study.write(f"fedlora_{corpus}", text, {"found": numbers}, command, seeds)
        print(text)


if __name__ == "__main__":
    main()
