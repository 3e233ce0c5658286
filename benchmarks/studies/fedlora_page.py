"""Tables of benchmarks.studies.fedlora: scores of each client, their plain mean, the pooled score, and traffic."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study
from fedray.algorithms.fedlora import cost
from fedray.data.text.error_rates import edit_counts
from fedray.data.text.translation_scores import bleu_counts
from fedray.report.bootstrap import Counts, change, rate
from fedray.report.predictions import tokenisation

COLUMNS = 12  # tables of more clients show only the mean
SERVER = "P-S2T"
PAIRS = (
    ("P-S2T", "FedAvg"), ("P-S2T", "FedLoRA"), ("FedAvg", "FedLoRA"), ("C-S2T full", "C-S2T LoRA"),
    ("C-S2T full", "FedLoRA"), ("FedLoRA", "FedLoRA, rank 4"),
)  # fmt: skip
HOW = {"alone": "_alone", "memory": ""}  # suffixes of columns decoded without and with the memory
Found = Mapping[str, Sequence[dict[str, Any]]]  # method -> the results of each seed


def counts_of(run: Path, score: str, rule: Callable[[str], str] | None = None) -> dict[str, dict[str, Counts]]:
    """Client -> the counts of `score` on test by speaker, alone and with the memory.

    The counts are words and errors for wer, and the parts of `ngram_scores` for bleu. `rule`: changes the texts before
    errors are counted anew; None: the errors that the run counted.
    """
    texts = (run / "personal_predictions.tsv").read_text(encoding="utf-8").splitlines()
    rows = [row for row in csv.DictReader(texts, delimiter="\t", quoting=csv.QUOTE_NONE) if row["split"] == "test"]
    kind, _, search = score.partition("_")
    search = search and f"_{search}"
    tokens = ""
    if kind == "bleu":
        tokens = tokenisation(json.loads((run / "results.json").read_text(encoding="utf-8"))["signatures"]["bleu"])

    def counts(spoken: Sequence[Mapping[str, str]], suffix: str) -> tuple[int, ...]:
        if rule is not None:
            edits = edit_counts(*([rule(row[name]) for row in spoken] for name in ("reference", f"hypothesis{suffix}")))
            return sum(edit.length for edit in edits), sum(edit.errors for edit in edits)
        if kind == "wer":
            return sum(int(row["words"]) for row in spoken), sum(int(row[f"errors{suffix}"]) for row in spoken)
        pair = ([row[column] for row in spoken] for column in ("reference", f"hypothesis{suffix}"))
        return bleu_counts(*pair, tokens)

    found: dict[str, dict[str, Counts]] = {}
    for client in dict.fromkeys(row["client"] for row in rows):
        speakers: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            if row["client"] == client:
                speakers.setdefault(row["speaker"], []).append(row)
        found[client] = {
            how: {speaker: counts(spoken, search + suffix) for speaker, spoken in speakers.items()}
            for how, suffix in HOW.items()
        }
    return found


def trained(results: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], parameters: int) -> dict[str, Any]:
    """What `page` tells of a method's training: its rounds, bytes and sizes. `parameters`: of the model."""
    last = rows[-1]
    clients = last["clients/ok"]
    return {
        "rounds": len(rows),
        "best": results["best"]["round"],
        "sent": results["traffic/total_bytes"],
        "a round": last["traffic/up_bytes"] + last["traffic/down_bytes"],
        "clients": clients,
        "parameters": parameters,
        "tuned": last["traffic/up_bytes"] // 4 // clients - 4,  # without the 4 numbers of a client's report
    }


def packed(counts: Mapping[str, Mapping[str, Counts]]) -> dict[str, dict[str, str]]:
    """The counts of each client, alone and with the memory, as texts for the JSON file of a page."""
    return {client: {how: study.packed(units) for how, units in both.items()} for client, both in counts.items()}


def together(one: Mapping[str, Mapping[str, str]], how: str) -> Counts:
    """The `packed` counts of all clients; a unit is a speaker of a client."""
    return {f"{client} {unit}": counts for client in one for unit, counts in study.unpacked(one[client][how]).items()}


def page(found: Found, titles: Mapping[str, str], error: bool) -> str:
    """The tables of all kinds of scores: their name in `found` -> their title. `error`: a lower score is better."""
    texts = []
    for config, title in titles.items():
        texts.append(f"## {title}\n\n{table(found, config, error)}")
        texts.append(differences(found, config))
    costs = [traffic(method, results) for method, results in found.items() if "sent" in results[0]]
    return "\n\n".join([*texts, *([f"## Traffic\n\n{study.table(costs)}"] if costs else [])])


def table(found: Found, config: str, error: bool) -> str:
    """A row for each method, alone and with the memory."""
    clients = sorted({client for runs in found.values() for one in runs for client in one["scores"][config]})
    sign, rows = 1 if error else -1, []
    for method, results in found.items():
        scores = [one["scores"][config] for one in results]
        for how, name in (("alone", method), ("memory", f"{method} + FedMem")):
            row: dict[str, Any] = {"method": name}
            if len(clients) <= COLUMNS:
                row |= {client: mean(one[client][how] for one in scores if client in one) for client in clients}
            row["Avg"] = study.spread([mean(client[how] for client in one.values()) for one in scores])
            row["pooled"] = str(rate([together(one["counts"][config], how) for one in results]))
            gains = [mean(sign * (client["alone"] - client["memory"]) for client in one.values()) for one in scores]
            row["gain from the memory"] = study.spread(gains) if how == "memory" else ""
            rows.append(row | {"seeds": ", ".join(str(one["seed"]) for one in results)})
    return study.table(rows)


def differences(found: Found, config: str) -> str:
    """Changes with intervals: each client of a seed is a run of the bootstrap, with speakers as units."""

    def of(runs: Sequence[dict[str, Any]], how: str) -> list[Counts]:
        parts = [one["counts"][config] for one in runs]
        return [study.unpacked(part[client][how]) for part in parts for client in sorted(part)]

    compared = [
        (f"{method}: adding the memory", of(runs, "alone"), of(runs, "memory")) for method, runs in found.items()
    ]
    for other, method in PAIRS:
        before, after = study.common(found.get(other, []), found.get(method, []))
        for how in HOW if before else ():
            both = "" if how == "alone" else ", both with FedMem"
            compared.append((f"{other} -> {method}{both}", of(before, how), of(after, how)))
    rows = [{"change": name, "points": str(change(*both, "points"))} for name, *both in compared]
    about = "Changes: mean over seeds and clients, with 95 % intervals from a paired bootstrap over speakers."
    return f"{about}\n\n{study.table(rows)}"


def traffic(method: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    tuned, clients, parameters = (results[0][name] for name in ("tuned", "clients", "parameters"))
    formula = mean(cost(one["parameters"], one["tuned"], one["clients"], one["rounds"]) for one in results)
    row = {"method": method, "parameters tuned": f"{tuned:,}", "of": f"{parameters:,}", "clients": clients}
    row |= {"rounds": mean(one["rounds"] for one in results), "best round": mean(one["best"] for one in results)}
    sent, a_round = mean(one["sent"] for one in results), mean(one["a round"] for one in results)
    if "seconds" in results[0]:
        row["minutes of training"] = f"{mean(one['seconds'] for one in results) / 60:.0f}"
    return row | {
        "MB sent": f"{sent / 1e6:.2f}",
        "MB by the formula": f"{formula / 1e6:.2f}",
        "MB a round": f"{a_round / 1e6:.3f}",
    }
