"""The pages that `make faults` writes: commands with their output, and the files of run folders."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import ray
import soundfile
import torch
import yaml

from fedray.core.machine import allowed
from fedray.runs.folder import RunFolder
from tests import speech
from tests.engine.runs import bits, rows

REPOSITORY = Path(__file__).parents[1]
ROUNDS = 3
PREPARATIONS = r"(Looking for audio|features|training the seed model): |starting 2 client actors$|initial model"


POWER = """## Power

When the power fails, a disk loses whatever it was not told to keep: the content of a file, or its name. fedray forces
these to disk (fsync; on Linux syncfs, one call for many files):

- the states of a lane's clients when the lane ends, before the lane counts;
- a checkpoint, and the rows of its rounds, before the checkpoint gets its name; then the name, before an older
  checkpoint or an older client state is removed;
- any other file, and a cache entry, before it gets its name.

So a round that fedray has reported with its checkpoint survives, and `fedray resume` continues from it with the same
bits. TensorBoard's events of the last rounds may be missing. This holds for disks that keep what they have
acknowledged; an object store keeps what it has accepted. `tests/power` logs every call that changes a run's folder, and
checks what the worst disk would hold after each of them. A client's state costs 0.15 ms, a checkpoint 5 to 10 ms (ext4
on an SSD).

`python -m tests.full_disk` makes each of these calls fail, with a full and with a broken disk: the run ends with an
error message, or continues, and resumes to the same bits ([377 of 377](../../benchmarks/results/full_disk.md)).
"""


class Page:
    """The page of one fault: commands with their output, and the files of run folders."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.text = folder, ""

    def add(self, text: str) -> None:
        self.text += text + "\n\n"

    def shell(self, *commands: str, status: int = 0) -> None:
        """Run commands and write their output to the page; fedray must end with `status`, others with 0."""
        shown = []
        for command in commands:
            shown.append(f"$ {command}")
            if command.endswith("&"):  # runs already
                continue
            done = subprocess.run(
                program(command), shell=True, cwd=self.folder, capture_output=True, text=True, timeout=180
            )
            expected = status if command.startswith("fedray") else 0
            assert done.returncode == expected, (
                f"{command}: status {done.returncode}, not {expected}:\n{done.stdout}{done.stderr}"
            )
            shown += self.shorten(done.stderr).splitlines() + [f"(status {status})"] * bool(expected)
        self.add("```console\n" + "\n".join(shown) + "\n```")

    def shorten(self, text: str) -> str:
        """The text without terminal colours and messages of preparation, with short paths."""
        lines = (
            re.sub(r"\x1b\[\d+m", "", text).replace(f"{self.folder}/", "").replace(f"{REPOSITORY}/", "").splitlines()
        )
        return "\n".join(line for line in lines if not re.match(PREPARATIONS, line))

    def left(self, name: str, *more: str) -> None:
        """Write the contents of a run folder: what the engine commits, and the files in `more`."""
        folder = RunFolder(self.folder / name)
        found = [("checkpoints/", "  ".join(f"round_{round:06d}" for round in folder.saved_rounds()) or "none")]
        found += (
            [("metrics.jsonl", "rounds " + ", ".join(str(row["round"]) for row in table))]
            if (table := rows(folder.root))
            else []
        )
        failures = [row | {"traceback": row["traceback"] and "Traceback ..."} for row in folder.rows("failures.jsonl")]
        found += [("failures.jsonl", json.dumps(row)) for row in failures[:2]]
        found += [("", f"and {len(failures) - 2} more")] if failures[2:] else []
        found += [(file, self.shorten(folder.read_text(file).splitlines()[0]) + " ...") for file in more]
        found += [("error.txt", "the traceback")] if folder.exists("error.txt") else []
        found += [("results.json", "the run is finished")] if folder.exists("results.json") else []
        self.add(
            f"What is in `{name}`:\n\n```text\n" + "\n".join(f"{file:<14}  {what}" for file, what in found) + "\n```"
        )

    def same(self, words: str, name: str, other: str = "straight", round: int = ROUNDS) -> None:
        """Fail if two runs differ up to a round: in a row (except times), a parameter or a client's state."""
        one, two = self.folder / name, self.folder / other
        assert rows(one)[:round] == rows(two)[:round], f"{name} and {other}: other rows"
        assert bits(one, round) == bits(two, round), f"{name} and {other}: other bits"
        self.add(f"**{words}**")


def program(command: str) -> str:
    return re.sub(r"^fedray ", f"exec {sys.executable} -m fedray.cli ", command)


def prepare(folder: Path) -> None:
    """Write the corpus and the configuration of all faults."""
    speech.write_corpus(folder / "tones", speakers=9)
    changes = {
        "imports": ["tests.faulty"],
        "rounds": ROUNDS,
        "cohort": {"fraction": 1.0},
        "engine": {"lanes": 2, "actors": 2, "cpus_per_client": 0.5, "failures_allowed": 0.25},
    }
    settings = speech.settings(folder / "tones", **changes)
    head, *lines = (folder / "tones" / "manifest.tsv").read_text().splitlines()
    timed = [f"{line}\t{soundfile.info(folder / 'tones' / line.split()[0]).duration}" for line in lines]
    (folder / "tones" / "manifest.tsv").write_text("\n".join([f"{head}\tseconds", *timed]) + "\n")
    settings["data"]["options"]["seconds_column"] = "seconds"
    settings["algorithm"] |= {
        "kind": "faulty",
        "trouble": str(folder / "trouble"),
        "pretrain": {"steps": 150, "warmup": 5, "batch": 4},
    }
    (folder / "tones.yaml").write_text(yaml.safe_dump(settings))


def introduction(faults: Mapping[str, tuple[object, str, str]], seconds: float) -> str:
    """The beginning of the page. `faults`: title -> how it is provoked, what it does, what is left afterwards."""
    anchors = {title: title.lower().replace(" ", "-") for title in faults}
    table = "\n".join(
        f"| [{title}](#{anchors[title]}) | {does} | {after} |" for title, (_, does, after) in faults.items()
    )
    versions = f"Python {platform.python_version()}, Ray {ray.__version__}, torch {torch.__version__}"
    return f"""# Faults

For each fault: the messages, the files left on disk, and how to resume. All were provoked in real runs, from the
command line. `make faults` writes this page and compares the bits ({time.strftime("%Y-%m-%d")}, {seconds:.0f} s on
{allowed().whole_cores()} cores, {versions}).

| fault | effect | afterwards |
|---|---|---|
{table}

The runs are FedNST with three rounds and five clients, all of them in every round; one may fail
([tests/faults.py](../../tests/faults.py)). A file `trouble` names the fault to provoke
([tests/faulty.py](../../tests/faulty.py)). The *straight* run has no fault. *The same bits*: equal
parameters, client states and rows of metrics.jsonl, except for times. Output is shown with shortened paths and without
the messages before the first round.

"""
