"""The page of the engine's benchmark: engine.md with its tables, engine.json with every number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import engine_figure
import study
from engine_profile import STEPS

COMMAND = "make bench-engine"
Numbers = Mapping[str, Any]


def write(numbers: Numbers, folder: Path) -> None:
    """engine.md, engine.json and engine.png of the parts that were measured."""
    (folder / "engine.md").write_text(text(numbers), encoding="utf-8")
    (folder / "engine.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    engine_figure.draw(numbers, folder / "engine.png")


def text(numbers: Numbers) -> str:
    sections = [section(numbers[name]) for name, section in SECTIONS.items() if name in numbers]
    return "\n\n".join([HEAD, *sections, CAVEATS]) + "\n"


HEAD = f"""# The engine: how close to the floor, and how flat

The floor is the same gradient steps and the same average in bare torch, in one process with one thread, divided by the number of cores:
what this machine could do if a framework cost nothing. fedray gets below it where its own GRU (fedray/models/recurrent.py) is faster than
torch's on the CPU; what the engine itself costs is told by its steps without it, a process a core. Everything is measured from outside: a
round of fedray lasts from the end of the one before to its own, with its checkpoint, its row of metrics and its events. `{COMMAND}`
repeats it, a part at a time with `--only`.

![The ratio to the floor, what a client costs, memory, bytes through the driver](engine.png)"""

CAVEATS = """## What to keep in mind

- The clips are noise: nothing is learnt here. fedray shuffles a client's clips where the floor takes them in order; steps are the same in
  number and size. fedray reads its clips as float16 from a feature store that fits into memory, as a run does whose features are cached.
- The floor runs on one core while the other is idle, and is divided by the number of cores. Cores that share caches, memory and clock
  give less than that when all are busy; "fedray's steps alone" are the same bare loop with fedray's GRU on all cores at once.
- Memory is the sum of the proportional set sizes of all processes (what is shared counts once), looked at twice a second: a peak
  between two looks is missed. Looking takes some CPU time, so times from runs with memory are a little pessimistic.
- Starting includes the start of a driver and of client actors (each imports torch); Ray itself runs already."""


def floor(models: Numbers) -> str:
    rows, peers = [], {}
    for found in models.values():
        for name in found["seconds"]:
            peers.setdefault(name, None)
    for found in models.values():
        row: dict[str, Any] = {
            "model": found["title"],
            "parameters": f"{found['parameters']:,}",
            "clients x clips": f"{found['cohort']} x {found['clips']}",
            "floor (s)": f"{found['floor_s']:.3f}",
        }
        for name in peers:
            row[f"{name} (s)"] = cell(found, name)
        rows.append(row | {"the engine (ms a client)": f"{found['overhead_ms']:+.2f}"})
    versions = [found["measured"]["peers"] for found in models.values() if found["measured"].get("peers")]
    used = (
        f"\n\nPeers (run from their own environment): pfl {versions[-1]['pfl']} with a process a core, Flower {versions[-1]['flwr']} "
        f"(simulation) with Ray {versions[-1]['ray']}, both on torch {versions[-1]['torch']}."
        if versions
        else ""
    )
    stamps = {stamp(found["measured"]): None for found in models.values()}
    first = next(iter(models.values()))["measured"]
    return f"""## Seconds a round over the floor

4,000 clients with one-second clips (98 frames of 40 log-mels, 35 classes), one epoch, batch 16, SGD 0.01, averaged by examples.
Floor and fedray take turns, {first["pairs"]} times with {first["rounds"]} rounds each, of which the first does not count. Seconds a round
are medians over all rounds; ratios are those of the medians within each turn: their median, and in brackets the least and the largest.

{study.table(rows)}

The engine costs (fedray - fedray's steps alone, a process a core) x cores / clients.{used}

{" ".join(stamps)}"""


def cell(found: Numbers, name: str) -> str:
    """Seconds, ratio, and its spread."""
    if name not in found["seconds"]:
        return "not measured"
    ratios = found["ratios"][name]
    return f"{found['seconds'][name]:.3f} = {found['ratio'][name]:.2f} x [{min(ratios):.2f}, {max(ratios):.2f}]"


def phases(found: Numbers) -> str:
    total, measured = found["round_s"], found["phases_s"]
    rows = [{"phase": phase, "ms a round": 1000 * seconds, "% of it": 100 * seconds / total} for phase, seconds in measured.items()]
    rest = total - sum(measured.values())
    rows.append({"phase": "waiting, and what has no clock of its own", "ms a round": 1000 * rest, "% of it": 100 * rest / total})
    rows.append({"phase": "**a round**", "ms a round": 1000 * total, "% of it": 100.0})
    lane = found["lane_ms"]
    pieces = [{"a client in a lane": phase, "ms": f"{value:.3f}"} for phase, value in lane.items()]
    pieces.append({"a client in a lane": "**together**", "ms": f"{sum(lane.values()):.3f}"})
    pieces.append({"a client in a lane": "the same steps in bare torch", "ms": f"{found['floor_ms']:.3f}"})
    beyond = sum(value for phase, value in lane.items() if phase not in STEPS)
    return f"""## Where the time goes

CRNN-Base, {found["cohort"]} clients a round, with a development set of {found["scored"]:,} clips scored in every round.
By the run's own clocks (`time/` in metrics.jsonl; medians; what actors do side by side is divided by their number):

{study.table(rows)}

One lane in this process, without Ray, with timers around fedray's functions: {beyond:.2f} ms a client are no part of the gradient steps.

{study.table(pieces)}

{stamp(found["measured"])}"""


def memory_row(run: Numbers) -> dict[str, str]:
    parts = {f"{name} (GB)": f"{value / 1e9:.2f}" for name, value in run["memory"].items()}
    return parts | {"all (GB)": f"{sum(run['memory'].values()) / 1e9:.2f}"}


def population(found: Numbers) -> str:
    rows = [
        {"population": f"{run['population']:,}", "start (s)": run["start_s"], "ms a round": 1000 * run["round_s"], **memory_row(run)}
        for run in found["runs"]
    ]
    return f"""## Population

A toy algorithm without training, {found["cohort"]} clients a round, {found["rounds"]} rounds; clients' names are made when asked for.
Memory where the sum of all processes was largest; "Ray" are its own processes and its idle workers.

{study.table(rows)}

{stamp(found["measured"])}"""


def cohort(found: Numbers) -> str:
    rows = [
        {
            "clients a round": f"{run['cohort']:,}",
            "rounds": run["rounds"],
            "s a round": f"{run['round_s']:.3f}",
            "ms a client": f"{run['client_ms']:.2f}",
            **memory_row(run),
        }
        for run in found["runs"]
    ]
    return f"""## Cohort

CRNN-Lite, {found["clips"]} clips a client, population {found["population"]:,}. The floor of such a client is {found["floor_ms"]:.2f} ms.
Small cohorts carry what a round costs apart from its clients, and their few lanes do not fill all cores to the end.

{study.table(rows)}

{stamp(found["measured"])}"""


def speakers(found: Numbers) -> str:
    rows = [
        {
            "speakers a round": f"{run['cohort']:,}",
            "s a round": f"{run['round_s']:.1f}",
            "ms a speaker": f"{run['client_ms']:.1f}",
            **memory_row(run),
        }
        for run in found["runs"]
    ]
    return f"""## Speakers

{found["population"]:,} speakers of the embedded corpus with {found["clips"]} utterances each, a client a speaker: the supervised federation
of configs/fednst/embedded_sfl.yaml (Conformer, 236k parameters, CTC), from random weights and without the server's share.

{study.table(rows)}

{stamp(found["measured"])}"""


def size(found: Numbers) -> str:
    rows = []
    for parameters, runs in by_parameters(found).items():
        small, large = runs[0], runs[-1]
        clients = large["cohort"] - small["cohort"]
        row: dict[str, Any] = {"parameters": f"{parameters:,}"}
        row |= {f"{run['cohort']} clients: ms a round": 1000 * run["round_s"] for run in runs}
        row["ms a further client"] = f"{1000 * (large['round_s'] - small['round_s']) / clients:.2f}" if clients else "-"
        row |= {f"{run['cohort']} clients: MB by the driver": run["driver_bytes"] / 1e6 for run in runs}
        rows.append(row)
    return f"""## Model size

The toy again: a client loads the broadcast into a model, takes the difference and has it checked and folded, without a step of training.
{found["lanes"]} lanes. The bytes are the parameters that pass through the driver in a round: they grow with the lanes, not with the cohort.
A further client is what each one adds to a round, on all cores together.

{study.table(rows)}

{stamp(found["measured"])}"""


def by_parameters(found: Numbers) -> dict[int, list[Numbers]]:
    grouped: dict[int, list[Numbers]] = {}
    for run in found["runs"]:
        grouped.setdefault(run["parameters"], []).append(run)
    return grouped


def stamp(here: Numbers) -> str:
    """On what, with what, and when."""
    machine = f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB"
    return f"({machine}; Python {here['python']}, torch {here['torch']}, Ray {here['ray']}, fedray {here['fedray']}; {here['date']}.)"


SECTIONS: dict[str, Any] = {
    "floor": floor,
    "phases": phases,
    "population": population,
    "cohort": cohort,
    "speakers": speakers,
    "size": size,
}
