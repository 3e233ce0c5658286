"""fedray, the floor, pfl-research and Flower on the same workloads, by turns.

    make bench-peers                                        # makes .venv-peers, then measures
    make bench-peers ARGS="--turns 1 --workloads conformer"
    python -m benchmarks.engine.peers --fresh               # forgets what is measured and starts again

Writes benchmarks/results/peers.md and peers.json. The JSON file is written after each run: the same command continues
where it was stopped, and more `--turns` add to those that are there. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import study
from benchmarks.engine import floor, page, workloads
from benchmarks.engine.parts import Bench, Sizes
from benchmarks.engine.workloads import WORKLOADS, Keywords, Workload
from fedray.storage.files import write_atomically

ENVIRONMENT = study.ROOT / ".venv-peers"
MEASURED = ("base", "lite", "conformer", "crdnn")
PACKAGES = ("pfl", "flwr", "ray", "torch", "speechbrain")
FLOOR = "floor"
LIMIT_SECONDS = 3600.0  # of one run of a peer
Seconds = list[float]  # of each round after the first


class Peers:
    """Runs the scripts of the other frameworks with the Python of their environment."""

    def __init__(self, environment: Path, cores: int) -> None:
        self.bin, self.cores = environment.absolute() / "bin", cores
        if not (self.bin / "python").exists():
            sys.exit(f"{environment} is no virtual environment: `make bench-peers` makes {ENVIRONMENT.name}")

    def versions(self) -> dict[str, str]:
        code = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {PACKAGES}}}))"
        done = subprocess.run([self.bin / "python", "-c", code], capture_output=True, text=True)
        if done.returncode:
            missing = done.stderr.strip().splitlines()[-1]
            sys.exit(f"{self.bin.parent} lacks a framework ({missing}): `make bench-peers` installs them")
        return json.loads(done.stdout)

    def pfl(self, workload: Workload, rounds: int) -> Seconds:
        """One process a core."""
        torchrun = [str(self.bin / "torchrun"), "--standalone", "--nnodes=1", f"--nproc_per_node={self.cores}"]
        return self._run([*torchrun, "-m", "benchmarks.engine.peer_pfl"], workload, rounds, [])

    def flower(self, workload: Workload, rounds: int) -> Seconds:
        """As many clients side by side as there are cores."""
        command = [str(self.bin / "python"), "-m", "benchmarks.engine.peer_flower"]
        return self._run(command, workload, rounds, [str(self.cores)])

    def _run(self, command: list[str], workload: Workload, rounds: int, more: list[str]) -> Seconds:
        """RuntimeError when the script fails, or trains other numbers of examples than the workload has."""
        environment = os.environ | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(study.ROOT),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "RAY_ADDRESS": "local",
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        given = [*command, floor.text_of(workload), str(rounds), *more]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                given, cwd=study.ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True,
            )  # fmt: skip
            try:
                printed, _ = process.communicate(timeout=LIMIT_SECONDS)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # with its workers
            errors.seek(0)
            said = errors.read()[-3000:]
        if process.returncode:
            raise RuntimeError(f"{' '.join(given)} ended with {process.returncode}: {said}")
        found = json.loads(next(line for line in reversed(printed.splitlines()) if line.startswith('{"seconds"')))
        expected = examples(workload)
        if len(found["seconds"]) != rounds - 1 or any(count != expected for count in found["examples"]):
            raise RuntimeError(f"{' '.join(given)} trained {found['examples']} examples a round, not {expected}")
        return found["seconds"]


def examples(workload: Workload) -> int:
    """Examples of a round, the same in every round."""
    return sum(len(workload.rows(client)) for client in workloads.chosen(workload, 0))


def frameworks(bench: Bench, peers: Peers) -> dict[str, Callable[[Workload, int], Seconds]]:
    """Framework -> a function that runs a workload, in the order of a turn."""

    def fedray(workload: Workload, rounds: int) -> Seconds:
        played = bench.fedray(workload, rounds)
        if any(row["clients/ok"] != workload.cohort for row in played.rows):
            raise RuntimeError(f"fedray: clients of {workload.title} failed")
        return played.seconds

    def bare(workload: Workload, rounds: int) -> Seconds:
        parts = floor.measure(workload, rounds, bench.cores)
        return [mean(seconds) for seconds in list(zip(*parts, strict=True))[1:]]

    return {
        "fedray": fedray,
        FLOOR: bare,
        "pfl-research": peers.pfl,
        "Flower": peers.flower,
    }


def measure(
    chosen: dict[str, Workload], turns: int, rounds: int, bench: Bench, peers: Peers, out: Path,
    fresh: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run what `out`/peers.json lacks, and write it after each run. Ends the program if the file does not fit."""
    file, here = out / "peers.json", study.machine() | {"rounds": rounds, "peers": peers.versions()}
    numbers: dict[str, Any] = {"measured": here, "workloads": {}}
    if file.exists() and not fresh:
        numbers = json.loads(file.read_text(encoding="utf-8"))
        changed = [name for name, value in here.items() if name != "date" and numbers["measured"].get(name) != value]
        if changed:
            sys.exit(f"{file} was measured with another {', '.join(changed)}: --fresh measures everything again")
    for name, workload in chosen.items():
        found = numbers["workloads"].setdefault(name, {"workload": asdict(workload), "runs": {}})
        if found["workload"] != asdict(workload):
            sys.exit(f"{file} holds another workload {name}: --fresh measures everything again")
        found |= {
            "title": workload.title,
            "parameters": sum(parameter.numel() for parameter in workload.net().parameters()),
            "steps": sum(workloads.steps(workload, client) for client in workloads.chosen(workload, 0)),
            "examples": examples(workload),
        }
    for turn in range(turns):
        for name, workload in chosen.items():
            for framework, play in frameworks(bench, peers).items():
                runs = numbers["workloads"][name]["runs"].setdefault(framework, [])
                if len(runs) > turn:
                    continue
                runs.append(play(workload, rounds))
                shown = f"{workload.title}, {framework}: {median(runs[-1]):.3f} s a round"
                bench.say(f"turn {turn + 1} of {turns}, {shown}")
                write(file, json.dumps(numbers, indent=1) + "\n")
    return numbers


def text(numbers: dict[str, Any]) -> str:
    """The page, from the turns that all frameworks have finished."""
    rows, here, turns = [], numbers["measured"], set()
    for found in numbers["workloads"].values():
        whole = min(map(len, found["runs"].values()))
        runs = {framework: seconds[:whole] for framework, seconds in found["runs"].items()}
        turns.add(whole)
        row: dict[str, Any] = {
            "workload": found["title"],
            "parameters": f"{found['parameters']:,}",
            "clients a round": found["workload"]["cohort"],
            "examples a round": found["examples"],
            "steps a round": found["steps"],
            "floor (s)": f"{median(sum(runs[FLOOR], [])):.3f}",
        }
        for framework in runs:
            if framework != FLOOR:
                row[framework] = cell(runs[framework], runs[FLOOR])
        rows.append(row)
    peers = here["peers"]
    return f"""{HEAD}

{study.table(rows)}

Seconds a round are medians over all rounds but the first of each run; a run has {here["rounds"]} rounds. Ratios are to
the floor of the same turn: medians over turns (turns: {", ".join(map(str, sorted(turns)))}), with the least and the
largest in brackets.

pfl {peers["pfl"]}, Flower {peers["flwr"]} with Ray {peers["ray"]}; torch {peers["torch"]}, SpeechBrain
{peers["speechbrain"]}.

{page.stamp(here)}

{LIMITS}
"""


HEAD = """# Speed beside other frameworks

The same federated training in fedray, pfl-research and Flower, by turns on one machine. The floor is the same gradient
steps and the same average in bare torch and SpeechBrain, without a framework: one process a core, the clients shared
out by their steps, and the mean over the processes, as if no core ever waited. A ratio below 1 means that fedray's own
layers compute the same steps faster than torch's or SpeechBrain's. `make bench-peers` repeats the benchmark.

Keywords (CRNN): 4,000 clients with 20 one-second clips, 100 of them a round, one epoch, batch 16, SGD 0.01.
Recognition (Conformer, CRDNN): 60 clients with 3 to 40 utterances of 1 to 6 seconds, all of them in every round, CTC,
batch 6, clipped gradients; two epochs of the Conformer, five of the CRDNN."""

LIMITS = """## Limits

- Features are white noise, in memory, and nothing is scored. Every framework trains the same number of examples and
  steps, which the benchmark checks; in recognition also the same clients. fedray draws the batches of a client anew in
  each epoch, the others take its examples in the order of their lengths.
- pfl-research runs one process a core, divides the cohort by the clients' steps, and sums the updates by all-reduce.
  It averages parameters alone, not the running statistics of the CRDNN's batch norm.
- Flower runs its simulation with a node for every client, as many clients side by side as there are cores, and
  networks that stay in the processes. Its loop over nodes makes a round dearer with 4,000 clients than with 60.
- fedray's rounds include its checkpoint, its row of metrics and its events; the others write nothing.
- SpeechBrain's networks read the padding of a batch; fedray's do not, and pay for it.
- All run on the CPU with one thread a process."""


def cell(runs: list[Seconds], floors: list[Seconds]) -> str:
    """Seconds a round, and their ratio to the floor."""
    ratios = [median(run) / median(bare) for run, bare in zip(runs, floors, strict=True)]
    return f"{median(sum(runs, [])):.3f} = {median(ratios):.2f} x [{min(ratios):.2f}, {max(ratios):.2f}]"


def write(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda path: path.write_text(content, encoding="utf-8"))


def tiny(workload: Workload) -> Workload:
    """A size that takes seconds."""
    if isinstance(workload, Keywords):
        return replace(workload, clients=12, cohort=6)
    return replace(workload, clients=4, cohort=4, epochs=1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="of all frameworks (default 5)")
    parser.add_argument("--rounds", type=int, default=6, help="of a run; the first does not count (default 6)")
    parser.add_argument("--workloads", nargs="+", choices=MEASURED, default=list(MEASURED))
    parser.add_argument("--peers", type=Path, default=ENVIRONMENT, help=f"their environment (default {ENVIRONMENT})")
    parser.add_argument("--out", type=Path, default=study.RESULTS, help="folder of the page and the JSON file")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds, to try the program; needs --out")
    chosen = parser.parse_args(arguments)
    if chosen.tiny and chosen.out == study.RESULTS:
        parser.error("--tiny needs --out: its numbers say nothing")
    if min(chosen.turns, chosen.rounds - 1) < 1:
        parser.error("--turns must be at least 1, and --rounds at least 2")
    os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")  # for all of them
    cores = study.machine()["cores"]
    given = {name: tiny(WORKLOADS[name]) if chosen.tiny else WORKLOADS[name] for name in chosen.workloads}
    with tempfile.TemporaryDirectory(prefix="fedray-bench-") as work:
        bench, peers = Bench(Path(work), Sizes(), cores), Peers(chosen.peers, cores)
        numbers = measure(given, chosen.turns, chosen.rounds, bench, peers, chosen.out, chosen.fresh)
    write(chosen.out / "peers.md", text(numbers))
    print(text(numbers))


if __name__ == "__main__":
    main(sys.argv[1:])
