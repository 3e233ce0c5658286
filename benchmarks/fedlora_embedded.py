"""FedLoRA and FedMem on embedded dialects and domains: tables 1, 4 and 5 of Du et al.; three seeds of corpus and training.

    python benchmarks/fedlora_embedded.py [--seeds 0 1 2] [--only dialects domains] [--runs runs/study-fedlora]

Each model is trained, then every client decodes with it alone and with its memory: P-S2T is the server's own, C-S2T trains on all clients'
speech in one place, with all weights or with adapters; FedAvg and FedLoRA train on the clients. The domains' models also meet six clients
of domains that nobody trained on. Runs that are finished are kept; the same command goes on.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import mean
from typing import Any

import study

from fedray.algorithms.fedlora import cost

CENTRAL = ["data.clients={by: iid, count: 1}", "engine.lanes=1"]
METHODS: dict[str, tuple[str, list[str]] | None] = {  # what is added to the configuration's name, and overrides
    "P-S2T": None,
    "C-S2T full": ("_full", CENTRAL),
    "FedAvg": ("_full", []),
    "C-S2T LoRA": ("", CENTRAL),
    "FedLoRA": ("", []),
}
TWINS = {"dialects": ("embedded", ["embedded"]), "domains": ("embedded_domains", ["embedded_domains", "embedded_joining"])}


def play(twin: str, method: str, seed: int, runs: Path) -> dict[str, Any]:
    """What training costs and brings, and own test scores by group of clients: client -> (with memory, alone)."""
    trained, decoded = TWINS[twin]
    place = runs / f"seed-{seed}" / f"{twin}-{method.lower().replace(' ', '-')}"
    print(f"seed {seed}, {twin}, {method}: {place}", flush=True)
    seeds, own = [f"seed={seed}", f"data.seed={seed}"], METHODS[method]
    found: dict[str, Any] = {"scores": {}}
    model: list[str] = []
    if own is not None:
        results = study.run(f"configs/fedlora/{trained}{own[0]}.yaml", [*seeds, *own[1]], place / "training")
        rows = study.rounds(place / "training")
        found |= {"rounds": len(rows), "best": results["best"]["round"], "sent": results["traffic/total_bytes"]}
        found |= {"a round": rows[-1]["traffic/up_bytes"] + rows[-1]["traffic/down_bytes"], "clients": rows[-1]["clients/ok"]}
        found |= {"parameters": rows[-1]["traffic/up_bytes"] // 4 // rows[-1]["clients/ok"] - 4}
        model = [f"model.init={place / 'training' / 'model' / 'model.pt'}", "algorithm.pretrain.steps=0"]
    for config in decoded:
        study.run(f"configs/fedmem/{config}.yaml", [*seeds, *model], place / config)
        table = csv.DictReader((place / config / "own.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t")
        chosen = {row["client"]: row for row in table if row["split"] == "test"}
        found["scores"][config] = {
            client: {name: float(row[name]) for name in ("wer", "wer_alone", "k", "share", "temperature")} for client, row in chosen.items()
        }
    return found


def whole(runs: Path, seed: int, twin: str) -> int:
    """Parameters of the model."""
    import torch

    state = torch.load(runs / f"seed-{seed}" / f"{twin}-fedavg" / "training" / "model" / "model.pt", weights_only=True)
    return sum(value.numel() for value in state.values() if value.is_floating_point())


def page(twin: str, found: dict[str, list[dict[str, Any]]], parameters: int) -> str:
    texts = []
    for config in TWINS[twin][1]:
        rows = []
        for method, results in found.items():
            for column, name in (("wer_alone", method), ("wer", f"{method} + FedMem")):
                clients = list(results[0]["scores"][config])
                row: dict[str, Any] = {"method": name}
                row |= {client: mean(one["scores"][config][client][column] for one in results) for client in clients}
                row["Avg"] = study.spread([mean(score[column] for score in one["scores"][config].values()) for one in results])
                gains = [mean(s["wer_alone"] - s["wer"] for s in one["scores"][config].values()) for one in results]
                row["gain of the memory"] = study.spread(gains) if column == "wer" else ""
                rows.append(row)
        texts.append(f"### {config}\n\n{study.table(rows)}")
    costs = []
    for method, results in found.items():
        if "sent" not in results[0]:
            continue
        tuned, clients = results[0]["parameters"], results[0]["clients"]
        formula = mean(cost(parameters, tuned, clients, one["rounds"]) for one in results) / 1e6
        sent, rounds = mean(one["sent"] for one in results) / 1e6, mean(one["rounds"] for one in results)
        costs.append(
            {
                "method": method,
                "tuned": f"{tuned:,}",
                "of": f"{parameters:,}",
                "rounds": rounds,
                "best": mean(one["best"] for one in results),
            }
            | {
                "MB sent": f"{sent:.2f}",
                "by the formula": f"{formula:.2f}",
                "MB a round": f"{results[0]['a round'] / 1e6:.3f}",
            }
        )
    return f"## {twin.capitalize()}\n\n" + "\n\n".join(texts) + f"\n\nTraffic:\n\n{study.table(costs)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=list(TWINS), default=list(TWINS))
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-fedlora", help="where the run folders are kept")
    chosen = parser.parse_args()
    found = {twin: {method: [play(twin, method, seed, chosen.runs) for seed in chosen.seeds] for method in METHODS} for twin in chosen.only}
    text = (
        "# FedLoRA and FedMem on embedded dialects and domains\n\nTest WER in percent of each client, alone and with its memory, whose k, "
    )
    text += "lambda and temperature it chose on its dev; Avg is the plain mean over clients, mean ± SD over seeds.\n\n"
    text += "\n\n".join(page(twin, each, whole(chosen.runs, chosen.seeds[0], twin)) for twin, each in found.items())
    study.write("fedlora_embedded", text, {"found": found}, "python benchmarks/fedlora_embedded.py", chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
