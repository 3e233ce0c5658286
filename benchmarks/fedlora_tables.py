"""FedLoRA and FedMem on embedded dialects and domains and on real speech: tables 1, 4 and 5 of Du et al.

    python benchmarks/fedlora_tables.py [--only dialects attention large domains digits speechocean] [--methods FedLoRA FedAvg]
                                        [--seeds 0 1 2] [--speech ../shared/data]

Each model is trained, then every client decodes with it alone and with its memory: P-S2T is the server's own, C-S2T trains on all clients'
speech in one place, with all weights or with adapters; FedAvg and FedLoRA train on the clients. `attention` is the dialects with a decoder,
`large` with nine times the parameters. The domains' models also meet six clients of domains that nobody trained on. Dialects and domains
are drawn anew with each seed; of the digits' six speakers each split has three as clients. The pages are fedlora_<corpus>.md. Runs that are
finished are kept; the same command goes on.
"""

from __future__ import annotations

import argparse
import csv
import shlex
from pathlib import Path
from statistics import mean
from typing import Any

import study
import torch
from fednst_digits import SERVERS

from fedray.algorithms.fedlora import cost

CENTRAL = ["data.clients={by: iid, count: 1}", "engine.lanes=1"]
METHODS: dict[str, tuple[str, list[str]] | None] = {  # what is added to the configuration's name, and overrides
    "P-S2T": None,  # comes first: the others start from its model
    "C-S2T full": ("_full", CENTRAL),
    "FedAvg": ("_full", []),
    "C-S2T LoRA": ("", CENTRAL),
    "FedLoRA": ("", []),
}
CORPORA = {  # the configuration that trains, those that remember, and, of real speech, the folder
    "dialects": ("embedded", ["embedded"], None),
    "attention": ("embedded_attention", ["embedded_attention"], None),  # dialects, as the paper's: a decoder, beams, states as keys
    "large": ("embedded_large", ["embedded_large"], None),  # dialects, with nine times the parameters
    "domains": ("embedded_domains", ["embedded_domains", "embedded_joining"], None),
    "digits": ("digits", ["digits"], "fsdd"),
    "speechocean": ("speechocean", ["speechocean"], "speechocean-mini"),
}
COLUMNS = 12  # a table of more clients has their mean alone


def play(corpus: str, method: str, seed: int, runs: Path, speech: Path) -> dict[str, Any]:
    """What training costs and brings, and own test scores by configuration and client."""
    trained, decoded, folder = CORPORA[corpus]
    place = runs / corpus / f"seed-{seed}" / method.lower().replace(" ", "-")
    print(f"{corpus}, seed {seed}, {method}: {place}", flush=True)
    common, own = [f"seed={seed}", f"data.seed={seed}"], METHODS[method]
    if folder is not None:
        common.append(f"data.root={speech / folder}")
    if corpus == "digits":
        common.append(f"data.options.server_speakers=[{','.join(SERVERS[seed])}]")
    found: dict[str, Any] = {"scores": {}}
    model: list[str] = []
    if own is not None:
        model = start_from(place.with_name("p-s2t") / decoded[0])
        results = study.run(f"configs/fedlora/{trained}{own[0]}.yaml", [*common, *model, *own[1]], place / "training")
        rows = study.rounds(place / "training")
        model = start_from(place / "training")
        state = torch.load(place / "training" / "model" / "model.pt", weights_only=True)
        found |= {"rounds": len(rows), "best": results["best"]["round"], "sent": results["traffic/total_bytes"]}
        found |= {"a round": rows[-1]["traffic/up_bytes"] + rows[-1]["traffic/down_bytes"], "clients": rows[-1]["clients/ok"]}
        sent = [tensor for name, tensor in state.items() if tensor.is_floating_point() and not name.endswith(".pe")]  # of positions
        found |= {"parameters": sum(tensor.numel() for tensor in sent)}
        found |= {"tuned": rows[-1]["traffic/up_bytes"] // 4 // rows[-1]["clients/ok"] - 4}  # the clients' report: 4 numbers
    for config in decoded:
        study.run(f"configs/fedmem/{config}.yaml", [*common, *model], place / config)
        model = model or start_from(place / config)
        table = csv.DictReader((place / config / "own.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t")
        chosen = {row["client"]: row for row in table if row["split"] == "test"}
        found["scores"][config] = {
            client: {name.replace("wer_lm", "wer"): float(value) for name, value in row.items() if name not in ("client", "split")}
            for client, row in chosen.items()
        }
    return found


def start_from(run: Path) -> list[str]:
    return [f"model.init={run / 'model' / 'model.pt'}", "algorithm.pretrain.steps=0"]


def page(corpus: str, found: dict[str, list[dict[str, Any]]]) -> str:
    texts = []
    for config in CORPORA[corpus][1]:
        clients = sorted({client for one in found["P-S2T"] for client in one["scores"][config]})
        rows = []
        for method, results in found.items():
            scores = [one["scores"][config] for one in results]
            for column, name in (("wer_alone", method), ("wer", f"{method} + FedMem")):
                row: dict[str, Any] = {"method": name}
                if len(clients) <= COLUMNS:
                    row |= {client: mean(one[client][column] for one in scores if client in one) for client in clients}
                row["Avg"] = study.spread([mean(client[column] for client in one.values()) for one in scores])
                gains = [mean(client["wer_alone"] - client["wer"] for client in one.values()) for one in scores]
                row["gain of the memory"] = study.spread(gains) if column == "wer" else ""
                rows.append(row)
        texts.append(f"## configs/fedmem/{config}.yaml\n\n{study.table(rows)}")
    costs = [traffic(method, results) for method, results in found.items() if "sent" in results[0]]
    return "\n\n".join(texts) + f"\n\n## Traffic\n\n{study.table(costs)}"


def traffic(method: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    tuned, clients, parameters = (results[0][name] for name in ("tuned", "clients", "parameters"))
    formula = mean(cost(one["parameters"], one["tuned"], one["clients"], one["rounds"]) for one in results)
    row = {"method": method, "tuned": f"{tuned:,}", "of": f"{parameters:,}", "clients": clients}
    row |= {"rounds": mean(one["rounds"] for one in results), "best": mean(one["best"] for one in results)}
    sent, a_round = mean(one["sent"] for one in results), mean(one["a round"] for one in results)
    return row | {"MB sent": f"{sent / 1e6:.2f}", "by the formula": f"{formula / 1e6:.2f}", "MB a round": f"{a_round / 1e6:.3f}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    server, *others = METHODS
    parser.add_argument("--methods", nargs="+", choices=others, default=others, help="beside the server's own model")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of all but the digits, whose splits are six")
    parser.add_argument("--speech", type=Path, default=study.ROOT.parent / "shared" / "data", help="folder of fsdd and speechocean-mini")
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-fedlora", help="where the run folders are kept")
    chosen = parser.parse_args()
    for corpus in chosen.only:
        seeds = list(range(len(SERVERS))) if corpus == "digits" else chosen.seeds
        found: dict[str, list[dict[str, Any]]] = {method: [] for method in (server, *chosen.methods)}
        for seed in seeds:
            for method, results in found.items():
                results.append(play(corpus, method, seed, chosen.runs, chosen.speech.resolve()))
        text = f"# FedLoRA and FedMem: {corpus}\n\nTest WER in percent of each client, alone and with its memory, whose k, lambda and "
        text += "temperature it chose on dev; Avg is the plain mean over clients, mean ± SD over seeds.\n\n"
        text += page(corpus, found)
        command = f"python benchmarks/fedlora_tables.py --only {corpus}"
        if chosen.methods != others:
            command += f" --methods {shlex.join(chosen.methods)}"
        study.write(f"fedlora_{corpus}", text, {"found": found}, command, seeds)
        print(text)


if __name__ == "__main__":
    main()
