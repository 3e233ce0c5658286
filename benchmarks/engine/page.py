"""The page of the engine's benchmark: engine.md with tables, engine.json with every number, engine.png."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.engine import figure
from benchmarks.engine.lane_profile import STEPS

COMMAND = "make bench-engine"
Numbers = Mapping[str, Any]


def write(numbers: Numbers, folder: Path) -> None:
    """Write engine.md, engine.json and engine.png from the parts that were measured."""
    (folder / "engine.md").write_text(text(numbers), encoding="utf-8")
    (folder / "engine.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    figure.draw(numbers, folder / "engine.png")


def text(numbers: Numbers) -> str:
    sections = [section(numbers[name]) for name, section in SECTIONS.items() if name in numbers]
    return "\n\n".join([HEAD, *sections, CAVEATS]) + "\n"


HEAD = f"""# The engine: its cost, and how it scales

The floor is the same gradient steps and the same average in bare torch, in one process with one thread, divided by the
number of cores: the time of this machine if a framework cost nothing. fedray is below the floor where its GRU
(fedray/models/kernels/recurrent.py) is faster than torch's on the CPU. The cost of the engine is the difference to
fedray's steps without the engine, one process a core. All times are measured from outside: a round lasts from the end
of the previous round to its end, with checkpoint, row of metrics and events. `{COMMAND}` repeats the benchmark,
`--only` one part of it.

![The ratio to the floor, what a client costs, memory, bytes through the driver](engine.png)"""

CAVEATS = """## Limits

- The clips are noise, so the models learn nothing. fedray shuffles a client's clips; the floor takes them in order.
  Number and size of the steps are the same. fedray reads its clips as float16 from a feature store that fits into
  memory, as in a run with cached features.
- The floor runs on one core while the other is idle, and is divided by the number of cores. Cores that share caches,
  memory and clock give less when all are busy; "fedray's steps alone" is the bare loop with fedray's GRU on all cores
  at once.
- Memory is the sum of the proportional set sizes of all processes (shared pages count once), sampled twice a second;
  shorter peaks are missed. Sampling takes CPU time, so rounds in runs with memory are slightly slower.
- The start includes the driver and the client actors (each imports torch), but not Ray."""


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
        f"\n\nPeers, in a separate environment: pfl {versions[-1]['pfl']} with one process a core, "
        f"Flower {versions[-1]['flwr']} (simulation) with Ray {versions[-1]['ray']}, "
        f"both on torch {versions[-1]['torch']}."
        if versions
        else ""
    )
    stamps = {stamp(found["measured"]): None for found in models.values()}
    first = next(iter(models.values()))["measured"]
    return f"""## Seconds a round over the floor

4,000 clients with one-second clips (98 frames of 40 log-mels, 35 classes), one epoch, batch 16, SGD 0.01, averaged by
examples. Floor and fedray take turns, {first["pairs"]} times with {first["rounds"]} rounds each; the first round does
not count. Seconds a round are medians over all rounds. Ratios are medians over turns, with the least and the largest in
brackets.

{study.table(rows)}

The engine costs (fedray - fedray's steps alone, a process a core) x cores / clients.{used}

A network of torch's layers, as a user brings it, has no faster kernels. The one with 2.6M parameters takes one step a
client; in one process fedray adds a tenth to it: gradients are added into one flat vector, and the update is taken,
checked and folded. The rest is two processes that share caches and memory, lanes that end at different times, and the
driver, which shares the cores.

{" ".join(stamps)}"""


def cell(found: Numbers, name: str) -> str:
    """Seconds, ratio to the floor, and the range of the ratio."""
    if name not in found["seconds"]:
        return "not measured"
    ratios = found["ratios"][name]
    return f"{found['seconds'][name]:.3f} = {found['ratio'][name]:.2f} x [{min(ratios):.2f}, {max(ratios):.2f}]"


def phases(found: Numbers) -> str:
    total, measured = found["round_s"], found["phases_s"]
    rows = [
        {"phase": phase, "ms a round": 1000 * seconds, "% of it": 100 * seconds / total}
        for phase, seconds in measured.items()
    ]
    rest = total - sum(measured.values())
    rows.append({"phase": "waiting, and the rest", "ms a round": 1000 * rest, "% of it": 100 * rest / total})
    rows.append({"phase": "**a round**", "ms a round": 1000 * total, "% of it": 100.0})
    lane = found["lane_ms"]
    pieces = [{"a client in a lane": phase, "ms": f"{value:.3f}"} for phase, value in lane.items()]
    pieces.append({"a client in a lane": "**together**", "ms": f"{sum(lane.values()):.3f}"})
    pieces.append({"a client in a lane": "the same steps in bare torch", "ms": f"{found['floor_ms']:.3f}"})
    beyond = sum(value for phase, value in lane.items() if phase not in STEPS)
    return f"""## Where the time goes

CRNN-Base, {found["cohort"]} clients a round, {found["scored"]:,} clips of a development set scored in every round.
Times are the run's `time/` metrics, medians; times of parallel actors are divided by their number:

{study.table(rows)}

One lane in this process, without Ray, with timers around fedray's functions; {beyond:.2f} ms a client are not gradient
steps.

{study.table(pieces)}

{stamp(found["measured"])}"""


def memory_row(run: Numbers) -> dict[str, str]:
    parts = {f"{name} (GB)": f"{value / 1e9:.2f}" for name, value in run["memory"].items()}
    return parts | {"all (GB)": f"{sum(run['memory'].values()) / 1e9:.2f}"}


def population(found: Numbers) -> str:
    rows = [
        {
            "population": f"{run['population']:,}",
            "start (s)": run["start_s"],
            "ms a round": 1000 * run["round_s"],
            **memory_row(run),
        }
        for run in found["runs"]
    ]
    return f"""## Population

A toy algorithm without training, {found["cohort"]} clients a round, {found["rounds"]} rounds. Memory is taken where the
sum over all processes is largest; "Ray" is Ray's processes and idle workers.

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

CRNN-Lite, {found["clips"]} clips a client, population {found["population"]:,}. The floor of a client is
{found["floor_ms"]:.2f} ms. In small cohorts few clients share the fixed cost of a round, and few lanes leave cores idle
at the end.

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

{found["population"]:,} speakers of the embedded corpus with {found["clips"]} utterances each, one client a speaker: the
supervised federation of configs/fednst/baselines/sfl.yaml (Conformer, 229k parameters, CTC), from random weights and
without the server's share.

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

The toy: a client loads the broadcast into a model and returns the difference, which is checked and folded, without a
step of training. The bytes are the parameters that pass through the driver in a round: a sum for each lane if sums are
below 1 MB, else one sum for all lanes. A further client is the time that one more client adds to a round, on all
cores together.

{study.table(rows)}

{stamp(found["measured"])}"""


def by_parameters(found: Numbers) -> dict[int, list[Numbers]]:
    grouped: dict[int, list[Numbers]] = {}
    for run in found["runs"]:
        grouped.setdefault(run["parameters"], []).append(run)
    return grouped


def stamp(here: Numbers) -> str:
    """Machine, versions and date."""
    machine = f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB"
    versions = f"Python {here['python']}, torch {here['torch']}, Ray {here['ray']}, fedray {here['fedray']}"
    return f"({machine}; {versions}; {here['date']}.)"


SECTIONS: dict[str, Any] = {
    "floor": floor,
    "phases": phases,
    "population": population,
    "cohort": cohort,
    "speakers": speakers,
    "size": size,
}
