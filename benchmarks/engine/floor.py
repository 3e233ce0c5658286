"""The floor: a workload's gradient steps and its average in bare torch and SpeechBrain, one thread a process.

    python -m benchmarks.engine.floor [base | lite | wide | own | mutual | conformer | crdnn] [rounds]

Prints the seconds of each round as JSON. Imports neither fedray nor Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.engine import workloads
from benchmarks.engine.workloads import WORKLOADS, Keywords, Recognition, Workload

ROOT = Path(__file__).resolve().parents[2]


def play(workload: Workload, rounds: int, part: int = 0, parts: int = 1) -> list[float]:
    """Seconds of each round. With `parts`, this process trains its share of the cohort: as many steps as the others."""
    torch.set_num_threads(1)
    personal, shared = None, workload
    if isinstance(workload, Keywords) and workload.mutual:
        personal, shared = workload.net(), workload.shared()
    kept: dict[int, dict[str, torch.Tensor]] = {}  # personal models
    model, seconds = shared.net(), []
    shared_state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    workload.data(0)  # the pool is drawn before the first round
    for round in range(rounds):
        mine = share(workload, workloads.chosen(workload, round), part, parts)
        started = time.perf_counter()
        total = {name: torch.zeros_like(tensor) for name, tensor in shared_state.items()}
        examples = 0
        for client in mine:
            model.load_state_dict(shared_state)
            data = workload.data(client)
            if personal is None:
                workloads.train(workload, model, data)
            else:
                personal.load_state_dict(kept.get(client, personal.state_dict()))
                workloads.teach(workload, personal, model, data)
                kept[client] = {name: tensor.clone() for name, tensor in personal.state_dict().items()}
            for name, tensor in model.state_dict().items():
                total[name].add_(tensor, alpha=len(data[0]))
            examples += len(data[0])
        shared_state = {name: tensor / examples for name, tensor in total.items()}
        seconds.append(time.perf_counter() - started)
    return seconds


def share(workload: Workload, cohort: list[int], part: int, parts: int) -> list[int]:
    """The clients of part `part`: the one with the most steps goes to the part with the fewest, and so on."""
    found: list[list[int]] = [[] for _ in range(parts)]
    loads = [0] * parts
    for client in sorted(cohort, key=lambda client: -workloads.steps(workload, client)):
        least = loads.index(min(loads))
        found[least].append(client)
        loads[least] += workloads.steps(workload, client)
    return found[part]


def measure(workload: Workload, rounds: int, processes: int = 1) -> list[list[float]]:
    """Seconds of each round in each of `processes` new processes, which train shares of the cohort side by side."""
    command = [sys.executable, "-m", "benchmarks.engine.floor", text_of(workload), str(rounds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [*command, str(part), str(processes)], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
        )
        for part in range(processes)
    ]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"the floor ended with an error: {' '.join(command)}")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def text_of(workload: Workload) -> str:
    """A workload as JSON, for the command line."""
    return json.dumps([type(workload).__name__, asdict(workload)])


def workload_of(text: str) -> Workload:
    """A workload from its name or its JSON."""
    if text in WORKLOADS:
        return WORKLOADS[text]
    kind, fields = json.loads(text)
    return {"Keywords": Keywords, "Recognition": Recognition}[kind](**fields)


def main(arguments: list[str]) -> None:
    print(json.dumps(play(workload_of(arguments[0] if arguments else "base"), *map(int, arguments[1:] or ["6"]))))


if __name__ == "__main__":
    main(sys.argv[1:])
