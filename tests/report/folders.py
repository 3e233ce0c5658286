"""Run folders with invented results, as runs write them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console

from fedray import report
from fedray.runs import trips_table
from fedray.runs.folder import ClientRecord, RunFolder, write_clients

WORDS = ("one", "two", "three", "four", "five")
CONFIG = {
    "cohort": {"size": 2},
    "name": "toy",
    "seed": 0,
    "rounds": 3,
    "data": {"corpus": "tsv", "root": "/nowhere", "seed": 0, "options": {"test": ["test.tsv"]}},
    "features": {"sample_rate": 16000},
    "algorithm": {"kind": "fednst", "alpha": 0.5, "schedule": {"kind": "exponential", "decay_steps": 8}},
    "engine": {"actors": "auto"},
}


def config(**settings: Any) -> dict[str, Any]:
    """Return CONFIG with dotted keys set; `__` stands for the dot."""
    values = json.loads(json.dumps(CONFIG))
    for key, value in settings.items():
        *sections, last = key.split("__")
        section = values
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
    return values


def sentences(
    seed: int, speakers: Sequence[str] = ("ann", "bob", "cid", "dee"), each: int = 3, wrong: float = 0.3
) -> list[dict[str, Any]]:
    """Return rows of predictions.tsv for a model and split; seeds share the references and differ in the errors."""
    said, heard = np.random.default_rng(7), np.random.default_rng(seed)
    rows = []
    for speaker in speakers:
        for position in range(each):
            words = [str(word) for word in said.choice(WORDS, size=int(said.integers(1, 7)))]
            spoiled = [str(heard.choice(WORDS)) if heard.random() < wrong else word for word in words]
            rows.append(
                {
                    "utterance": f"{speaker}-{position}",
                    "speaker": speaker,
                    "label": ("seen", "unseen")[position % 2],
                    "reference": " ".join(words),
                    "words": len(words),
                    "hypothesis": " ".join(spoiled),
                    "errors": sum(one != other for one, other in zip(words, spoiled, strict=True)),
                }
            )
    return rows


def classes(seed: int, right: float, speakers: int = 4, each: int = 5) -> list[dict[str, Any]]:
    """Return rows of predictions.tsv for classification, which has no counts of words and no labels."""
    said, heard = np.random.default_rng(7), np.random.default_rng(seed)
    rows = []
    for position in range(speakers * each):
        target = str(said.choice(WORDS))
        answer = target if heard.random() < right else str(heard.choice(WORDS))
        where = {"utterance": f"clip-{position}", "speaker": f"speaker-{position % speakers}"}
        rows.append({**where, "reference": target, "hypothesis": answer, "errors": int(target != answer)})
    return rows


def write(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    seed_model: Sequence[Mapping[str, Any]] | None = None,
    best: Sequence[Mapping[str, Any]] | None = None,
    played: int | None = None,
) -> Path:
    """Write a run folder with predictions of the test split, unfinished if `played` is less than its rounds."""
    settings = config() if settings is None else settings
    played = settings["rounds"] if played is None else played
    seed = settings["seed"]
    seed_model = sentences(100 + seed, wrong=0.6) if seed_model is None else seed_model
    best = sentences(200 + seed) if best is None else best
    metric = "wer" if seed_model and "words" in seed_model[0] else "accuracy"
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    run.write_text("config.yaml", yaml.safe_dump(dict(settings), sort_keys=False))
    run.write_json("run.json", {"fedray": "0.1.0", "torch": "2.11.0"})
    run.rewrite("failures.jsonl", [])
    start, end = (score(rows) for rows in (seed_model, best))
    rows = []
    for number in range(1, played + 1):
        dev = start + (end - start) * number / settings["rounds"]
        row = {
            "round": number,
            "train/loss": 3.0 / number + seed / 10,
            f"dev/{metric}": dev,
            "clients/ok": 2,
            "lr/client": 0.1 / number,
        }
        rows.append(
            row
            | {"traffic/total_bytes": 10**9 * number, "time/round_s": 2.0, "time/train_s": 1.5, "time/evaluate_s": None}
        )
    run.rewrite("metrics.jsonl", rows)
    if played == settings["rounds"]:
        models = (("seed", 0, start, seed_model), ("best", played, end, best))
        results = {
            title: {"round": round, f"dev/{metric}": value, f"test/{metric}": value}
            for title, round, value, _ in models
        }
        totals = {"clients/failed": 0, "traffic/total_bytes": 10**9 * played, "time/total_s": 60.0}
        run.write_json("results.json", {"name": settings["name"], "rounds": played, **results, **totals})
        run.write_table(
            "predictions.tsv",
            [{"model": title, "split": "test", **row} for title, _, _, found in models for row in found],
        )
        clients = {f"client-{number}": ClientRecord(rounds=number % 3 + 1, last_round=played) for number in range(6)}
        run.export("clients.parquet", lambda path: write_clients(clients, path))
    return folder


def score(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the WER or accuracy in percent."""
    errors = sum(row["errors"] for row in rows)
    return 100 * errors / sum(row["words"] for row in rows) if "words" in rows[0] else 100 * (1 - errors / len(rows))


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return speaker -> words and errors, or items and correct answers, counted one row at a time."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        length, hits = found.get(row["speaker"], (0, 0))
        words = "words" in row
        found[row["speaker"]] = (
            length + (row["words"] if words else 1),
            hits + (row["errors"] if words else 1 - row["errors"]),
        )
    return found


def study(root: Path) -> Path:
    """Write runs of two values of alpha with two seeds each."""
    for alpha in (0.5, 0.0):
        for seed in (0, 1):
            best = sentences(200 + seed, wrong=0.2 if alpha else 0.4)
            write(
                root / f"alpha-{alpha}" / str(seed),
                config(algorithm__alpha=alpha, seed=seed, data__seed=seed),
                best=best,
            )
    return root


def printed(found: report.Report, width: int = 250) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(found.table(console))
    return console.file.getvalue()


def add_devices(
    run: Path, trips: Sequence[Mapping[str, Any]], devices: Mapping[str, int], hours: Sequence[float] = (1.0, 2.0, 4.0)
) -> Path:
    """Add devices to a run folder: trips, classes, and the virtual time after each round."""
    folder = RunFolder(run)
    folder.rewrite("trips.jsonl", trips)
    for row, now in zip(rows := folder.rows("metrics.jsonl"), hours, strict=False):
        behind = [trip["round"] - 1 - trip["model"] for trip in trips if trip["round"] == row["round"]]
        row |= {"virtual/hours": now, "virtual/device_hours": 3 * now, "virtual/energy_wh": 10 * now}
        row |= {"virtual/wasted_share": 0.25}
        row |= {"virtual/staleness": sum(behind) / len(behind), "virtual/staleness_most": max(behind)} if behind else {}
    folder.rewrite("metrics.jsonl", rows)
    if folder.exists("results.json"):
        trips_table.write(folder)
        totals = {key: value for key, value in rows[-1].items() if key.startswith("virtual/") and "stale" not in key}
        folder.write_json("results.json", folder.read_json("results.json") | totals | {"devices": dict(devices)})
    return run


def trip(
    round: int, client: str, of: str, model: int | None = None, fate: str = "arrives", used: bool = True, **changed: Any
) -> dict[str, Any]:
    """Return a row of trips.jsonl; a trip takes half an hour unless that is `changed`."""
    row = {"round": round, "client": client, "class": of, "model": round - 1 if model is None else model}
    row |= {"start_s": 0.0, "end_s": 1800.0, "fate": fate, "used": used and fate == "arrives"}
    return row | {"work": 1.0, "compute_s": 1500.0, "transfer_s": 300.0, "energy_wh": 2.5} | changed
