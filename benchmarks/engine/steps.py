"""The cost of a gradient step: a client's training in fedray against bare torch and SpeechBrain, from the same weights.

    python -m benchmarks.engine.steps                                     # all models, about 3 minutes
    python -m benchmarks.engine.steps --models conformer crdnn --clients 10
    python -m benchmarks.engine.steps --models conformer --cpu            # and CPU time, where the machine is busy

No federation: a client's `client_train` (forward, backward, SGD, batches, the broadcast loaded) in one process with one
thread, divided by the client's steps. For each client fedray and the bare modules take turns. Medians over the clients
and the range of the middle half of the ratios. Prints; writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import torch

from benchmarks import study
from benchmarks.engine import runs, stores, workloads
from benchmarks.engine.workloads import WORKLOADS, Keywords, Workload
from fedray.core.types import Client, Received
from fedray.engine.jobs import work

MODELS = [name for name in WORKLOADS if name != "own"]  # fedray has no kernels for it
CLOCKS = {"wall": time.perf_counter, "CPU": time.process_time}


@dataclass(frozen=True)
class Sides:
    """The training of a client, by its number, on both sides, which start from the same weights."""

    workload: Workload
    fedray: Callable[[int], object]
    bare: Callable[[int], object]


def sides(model: str, folder: Path) -> Sides:
    workload = WORKLOADS[model]
    _, program = runs.build(folder, stores.write(folder, workload), workload, 1, 1)
    algorithm, data = program.algorithm, program.data
    state, _ = work.init(program, lambda: work.server(program, None, "cpu", algorithm.assets(data), lambda *_: None))
    broadcast = algorithm.broadcast(state, 0)
    received = Received(broadcast.params, broadcast.settings, 0, algorithm.assets(data))
    ids = data.client_ids()
    shared, personal, kept = workload.net(), None, None
    if isinstance(workload, Keywords) and workload.mutual:
        shared, personal = workload.shared().net(), workload.net()
        kept = algorithm.client_prepare(Client(ids[0], None, 0), received)  # the same personal model for all clients
        personal_start = algorithm.personal[kept["size"]].layout.cut(kept["params"])
    start = algorithm.task.layout.cut(state.params)

    def in_fedray(number: int) -> object:
        return algorithm.client_train(Client(ids[number], data.load(ids[number]), number, kept), received)

    def in_bare(number: int) -> object:
        shared.load_state_dict(start, strict=False)  # not in it: counters of batch norm
        if personal is None:
            return workloads.train(workload, shared, workload.data(number))
        personal.load_state_dict(personal_start)
        return workloads.teach(workload, personal, shared, workload.data(number))

    return Sides(workload, in_fedray, in_bare)


def measure(given: Sides, clients: int) -> dict[str, dict[str, list[float]]]:
    """Side -> clock -> milliseconds a step of each client. One client more goes before and does not count."""
    found: dict[str, dict[str, list[float]]] = {side: {clock: [] for clock in CLOCKS} for side in ("fedray", "bare")}
    for turn in range(clients + 1):
        number = turn % given.workload.clients
        steps = workloads.steps(given.workload, number)
        for side in ("fedray", "bare") if turn % 2 else ("bare", "fedray"):
            train = getattr(given, side)
            before = {clock: read() for clock, read in CLOCKS.items()}
            train(number)
            for clock, read in CLOCKS.items():
                if turn:
                    found[side][clock].append(1000 * (read() - before[clock]) / steps)
    return found


def row(title: str, found: dict[str, dict[str, list[float]]], clocks: Sequence[str]) -> dict[str, str]:
    shown = {"model": title}
    for clock in clocks:
        ratios = [ours / bare for ours, bare in zip(found["fedray"][clock], found["bare"][clock], strict=True)]
        low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        shown |= {f"{side} ({clock} ms a step)": f"{median(found[side][clock]):.2f}" for side in ("bare", "fedray")}
        shown[f"fedray / bare ({clock})"] = f"{median(ratios):.3f} [{low:.3f}, {high:.3f}]"
    return shown


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--clients", type=int, default=30, help="that each side trains (default 30)")
    parser.add_argument("--cpu", action="store_true", help="CPU time beside wall time")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory(prefix="fedray-bench-") as folder:
        for model in chosen.models:
            given = sides(model, Path(folder))
            rows.append(row(given.workload.title, measure(given, chosen.clients), list(CLOCKS)[: 1 + chosen.cpu]))
            print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), file=sys.stderr)
    print(study.table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
