"""2,618 clients with personal models of five sizes, 20 % of them a round: memory, disk, time, and a kill and resume.

    python -m benchmarks.studies.fedmlac_states [--clients 2618] [--rounds 20] [--runs runs/fedmlac-states]

Each client is one speaker. The study plays the run twice: once without a break, and once killed with all its processes
after half of its rounds and resumed. Rows, parameters and all client states must be the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import psutil

from benchmarks import study
from benchmarks.engine import runs as engine_runs
from fedray.runs.folder import RunFolder

CONFIG = "configs/fedmlac/embedded.yaml"


def overrides(clients: int, rounds: int) -> list[str]:
    sizes = {"client_speakers": clients, "client_utterances": 10}
    return [
        "algorithm.sizes=[tiny,lite,mid,base,deep]",
        *(f"data.options.{name}={value}" for name, value in sizes.items()),
        f"rounds={rounds}",
        "engine.lanes=16",
        "evaluation.every=5",
        "evaluation.personal_every=0",
        "evaluation.personal_final=false",
    ]


def straight(folder: Path, clients: int, rounds: int) -> engine_runs.Played:
    """Play the run and measure its memory at the end of every round."""
    with engine_runs.ray_here():
        given = engine_runs.configured(study.ROOT / CONFIG, overrides(clients, rounds), folder)
        return engine_runs.play(given, period=5.0)


def killed(folder: Path, clients: int, rounds: int) -> int:
    """Run by command, kill every process after half of the rounds, and resume. Returns the round of the kill."""
    command = [
        sys.executable,
        "-m",
        "fedray.cli",
        "run",
        str(study.ROOT / CONFIG),
        *overrides(clients, rounds),
        "--out",
        str(folder),
    ]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while played(folder) < rounds // 2:
        if run.poll() is not None:
            raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}")
        time.sleep(0.2)
    for process in [*psutil.Process(run.pid).children(recursive=True), psutil.Process(run.pid)]:
        if process.is_running():
            os.kill(process.pid, signal.SIGKILL)
    run.wait()
    at = played(folder)
    subprocess.run([sys.executable, "-m", "fedray.cli", "resume", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return at


def played(folder: Path) -> int:
    return len(RunFolder(folder).rows("metrics.jsonl")) if (folder / "metrics.jsonl").exists() else 0


def kept(folder: Path) -> tuple[list[dict[str, object]], dict[str, bytes]]:
    """The rows without times, and the bytes of all client states and of the last model."""
    rows = [
        {key: value for key, value in row.items() if not key.startswith("time/")}
        for row in RunFolder(folder).rows("metrics.jsonl")
    ]
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted((folder / "states").rglob("*.pt"))}
    return rows, files | {"parameters": RunFolder(folder).load(len(rows)).state.params.tobytes()}


def main() -> None:
    parser = argparse.ArgumentParser(
        f"python -m {__spec__.name}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=2618)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--runs", type=Path, default=study.ROOT / "runs" / "fedmlac-states", help="made anew, and removed at the end"
    )
    chosen = parser.parse_args()
    shutil.rmtree(chosen.runs, ignore_errors=True)
    run = straight(chosen.runs / "straight", chosen.clients, chosen.rounds)
    rows, files = kept(chosen.runs / "straight")
    print(
        f"straight: {median(run.seconds):.2f} s a round, {[round(size / 1e9, 2) for size in run.memories]} GB",
        flush=True,
    )
    at = killed(chosen.runs / "killed", chosen.clients, chosen.rounds)
    same = kept(chosen.runs / "killed") == (rows, files)
    states = {name: len(content) for name, content in files.items() if name != "parameters"}
    numbers = {
        "clients": chosen.clients,
        "clients that took part": len(RunFolder(chosen.runs / "straight").load(len(rows)).clients),
        "state files, with those of the previous checkpoint": len(states),
        "states on disk (GB)": sum(states.values()) / 1e9,
        "seconds a round, median": median(run.seconds),
        "clients a round": rows[-1]["clients/ok"],
        "memory of all processes at the end of each round (GB)": [size / 1e9 for size in run.memories],
        "killed after round": at,
        "resumed to the same bytes": same,
    }
    text = "# Clients that keep their models\n\n" + "\n".join(
        f"- {name}: {shown(value)}" for name, value in numbers.items()
    )
    study.write("fedmlac_states", text, numbers, study.command(parser, chosen), [0])
    print(text)
    shutil.rmtree(chosen.runs)
    if not same:
        sys.exit("the resumed run differs")


def shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"{one:.2f}" for one in value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
