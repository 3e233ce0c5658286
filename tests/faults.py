"""Faults, provoked on real runs through the command line: what the user reads, what is left on disk, and how it goes on.

`make faults` writes all of it to docs/faults.md and fails when a run does not go on as it should. It needs root for the disk that is full.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import ray
import soundfile
import torch
import yaml

from fedray.engine.folder import RunFolder
from tests import speech
from tests.engine.cluster_run import cluster
from tests.engine.runs import bits, rows
from tests.stores import small_disk

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "faults.md"
ROUNDS = 3
PREPARATIONS = r"(Looking for audio|features|training the seed model): |starting 2 client actors$|initial model"
SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Page:
    """What happens in a folder, as it is written down."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.text = folder, ""

    def add(self, text: str) -> None:
        self.text += text + "\n\n"

    def shell(self, *commands: str, status: int = 0) -> None:
        """Run commands; those of fedray must end with `status`, and what they say while they work goes to the page."""
        shown = []
        for command in commands:
            shown.append(f"$ {command}")
            if command.endswith("&"):  # started already
                continue
            done = subprocess.run(program(command), shell=True, cwd=self.folder, capture_output=True, text=True, timeout=180)
            expected = status if command.startswith("fedray") else 0
            assert done.returncode == expected, f"{command}: status {done.returncode}, not {expected}:\n{done.stdout}{done.stderr}"
            shown += self.shorten(done.stderr).splitlines() + [f"(status {status})"] * bool(expected)
        self.add("```console\n" + "\n".join(shown) + "\n```")

    def shorten(self, text: str) -> str:
        """Without the colours of a terminal and what is said of preparations, and with short paths."""
        lines = re.sub(r"\x1b\[\d+m", "", text).replace(f"{self.folder}/", "").replace(f"{REPOSITORY}/", "").splitlines()
        return "\n".join(line for line in lines if not re.match(PREPARATIONS, line))

    def left(self, name: str, *more: str) -> None:
        """What lies in a run folder: what the engine commits, and files of interest."""
        folder = RunFolder(self.folder / name)
        found = [("checkpoints/", "  ".join(f"round_{round:06d}" for round in folder.saved_rounds()) or "none")]
        found += [("metrics.jsonl", "rounds " + ", ".join(str(row["round"]) for row in table))] if (table := rows(folder.root)) else []
        failures = [row | {"traceback": row["traceback"] and "Traceback ..."} for row in folder.rows("failures.jsonl")]
        found += [("failures.jsonl", json.dumps(row)) for row in failures[:2]]
        found += [("", f"and {len(failures) - 2} more")] if failures[2:] else []
        found += [(file, self.shorten(folder.read_text(file).splitlines()[0]) + " ...") for file in more]
        found += [("error.txt", "the traceback")] if folder.exists("error.txt") else []
        found += [("results.json", "the run is finished")] if folder.exists("results.json") else []
        self.add(f"What is in `{name}`:\n\n```text\n" + "\n".join(f"{file:<14}  {what}" for file, what in found) + "\n```")

    def same(self, words: str, name: str, other: str = "straight", round: int = ROUNDS) -> None:
        """Fails if two runs differ up to a round: in a row (but for times), a parameter or a client's state."""
        one, two = self.folder / name, self.folder / other
        assert rows(one)[:round] == rows(two)[:round], f"{name} and {other}: other rows"
        assert bits(one, round) == bits(two, round), f"{name} and {other}: other bits"
        self.add(f"**{words}**")


def program(command: str) -> str:
    return re.sub(r"^fedray ", f"exec {sys.executable} -m fedray.cli ", command)


def dead_actor(page: Page) -> None:
    page.add("In round 2 the process in which client s02 is trained is killed (SIGKILL, as the kernel does where memory is short).")
    page.shell("echo die-once s02 2 > trouble", "fedray run tones.yaml --out dead")
    page.left("dead")
    page.same("The run ended with the bits of the straight run.", "dead")


def no_start(page: Page) -> None:
    page.add("A file that every actor opens when it starts is missing.")
    page.shell("echo start actor 0 > trouble", "fedray run tones.yaml --out no-start", status=1)
    page.left("no-start")
    page.shell("rm trouble", "fedray resume no-start")
    page.same("The resumed run ended with the bits of the straight run.", "no-start")


def lost_node(page: Page) -> None:
    page.add("A Ray of two nodes with one actor each; the second node goes in the middle of round 2, and does not come back.")
    with redirect_stdout(io.StringIO()), cluster(2, 1, page.folder / "node"), address():  # Ray tells at length of a node that is gone
        page.shell("echo slow all 0 > trouble", "fedray run tones.yaml engine.cpus_per_client=1 --out node")
        assert sum(node["Alive"] for node in ray.nodes()) == 1, "no node was lost"
    page.left("node")
    page.same("One actor played the rest: the bits of the straight run.", "node")


def killer(page: Page) -> None:
    page.add("Client s02 kills its actor in round 2 whenever it is tried: the second time it is left out of the round.")
    page.shell("echo die s02 2 > trouble", "fedray run tones.yaml --out killer")
    page.left("killer")


def not_finite(page: Page) -> None:
    page.add("Client s02 sends a NaN in round 2, client s04 an infinite number in round 3.")
    page.shell("printf 'nan s02 2\\ninf s04 3\\n' > trouble", "fedray run tones.yaml --out numbers")
    page.left("numbers")
    page.same("After round 2 the bits are those of the run above, whose killer was s02 in round 2.", "numbers", "killer", 2)


def empty_client(page: Page) -> None:
    page.add("All recordings of client s02 are empty files.")
    page.shell(
        "cp -r tones emptied",
        "truncate -s 0 emptied/wav/s02-*.wav",
        "fedray run tones.yaml data.root=emptied --out empty",
        status=2,
    )
    page.add("Nothing is on disk yet. If the run is to do without them:")
    page.shell("fedray run tones.yaml data.root=emptied data.skip_broken=true --out empty")
    page.left("empty", "broken.tsv")
    cohorts, clients = {row["clients/ok"] for row in rows(page.folder / "empty")}, RunFolder(page.folder / "empty").load(ROUNDS).clients
    assert cohorts == {4} and "s02" not in clients
    page.add(
        "**The run was played by the other four.** A client that a data set of one's own gives without data is a failed client like those\n"
        "above, with the reason `client ... has no data: raise data.clients.min_utterances, or leave it out of the corpus`."
    )


def too_many(page: Page) -> None:
    page.add("In round 2 every client fails; `engine.failures_allowed` is 0.25.")
    page.shell("echo raise all 2 > trouble", "fedray run tones.yaml --out many", status=1)
    page.left("many")
    page.shell("rm trouble", "fedray resume many")
    page.same("The resumed run ended with the bits of the straight run, and nobody is in its failures.jsonl.", "many")
    assert RunFolder(page.folder / "many").rows("failures.jsonl") == []


def full_disk(page: Page) -> None:
    page.add("A disk of 16 MB is full when the checkpoint of round 2 is to be written.")
    with small_disk(page.folder / "disk", "16m"):
        page.shell("echo fill disk 2 > trouble", "fedray run tones.yaml --out disk/full", status=1)
        page.left("disk/full")
        page.shell("rm trouble disk/filler", "fedray resume disk/full")
        page.same("The resumed run ended with the bits of the straight run.", "disk/full")


def second_run(page: Page) -> None:
    page.add("While a run is at work, another is started in its folder, and somebody resumes it.")
    (page.folder / "trouble").write_text("wait s02 2\n")
    first = subprocess.Popen(program("fedray run tones.yaml --out twice"), shell=True, cwd=page.folder, **SILENT)
    try:
        while not RunFolder(page.folder / "twice").rows("metrics.jsonl"):
            assert first.poll() is None, "the first run ended"
            time.sleep(0.1)
        page.shell("fedray run tones.yaml --out twice &", "fedray run tones.yaml --out twice", "fedray resume twice", status=2)
        (page.folder / "trouble").unlink()
        assert first.wait(timeout=120) == 0
    finally:
        first.kill()
    page.left("twice")
    page.same("The first run was not disturbed: it ended with the bits of the straight run.", "twice")


def cut_short(page: Page) -> None:
    page.add("The newest checkpoint of a finished run lost its end, and the run is resumed.")
    page.shell("cp -r straight cut", "truncate -s 1000 cut/checkpoints/round_000003/server.pt", "fedray resume cut", status=2)
    page.left("cut")
    page.shell("rm -r cut/checkpoints/round_000003", "fedray resume cut")
    page.same("Round 3 was played again, to the bits of the straight run.", "cut")


FAULTS: dict[str, tuple[Callable[[Page], None], str, str]] = {
    "A dead actor": (dead_actor, "is replaced, its lane done again", "the same bits"),
    "An actor that cannot start": (no_start, "ends the run at once, with the reason", "`fedray resume`: the same bits"),
    "A lost node": (lost_node, "the others do its work", "the same bits"),
    "A client that kills its actor twice": (killer, "is left out of the round, counted and named", "the run goes on"),
    "Updates with NaN or Inf": (not_finite, "leave before the mean, counted and named", "the run goes on"),
    "An empty client": (empty_client, "is refused, or left out and named", "`data.skip_broken=true`"),
    "More failures than allowed": (too_many, "end the run, all named", "`fedray resume`: the same bits"),
    "A disk that is full": (full_disk, "ends the run; what was committed stays", "make room, `fedray resume`: the same bits"),
    "A second run in the same folder": (second_run, "is refused", "the first is not disturbed: the same bits"),
    "A checkpoint cut short": (cut_short, "is refused by its name", "remove it, `fedray resume`: the same bits"),
}


def prepare(folder: Path) -> None:
    """The corpus and the configuration that all faults share."""
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
    settings["algorithm"] |= {"kind": "faulty", "trouble": str(folder / "trouble"), "pretrain": {"steps": 150, "warmup": 5, "batch": 4}}
    (folder / "tones.yaml").write_text(yaml.safe_dump(settings))


@contextmanager
def address() -> Iterator[None]:
    """Commands play their runs on the Ray of this process: it need not be started for each."""
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    try:
        yield
    finally:
        del os.environ["RAY_ADDRESS"]


@contextmanager
def one_node() -> Iterator[None]:
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with address():
            yield
    finally:
        ray.shutdown()


def introduction(seconds: float) -> str:
    table = "\n".join(f"| [{title}](#{title.lower().replace(' ', '-')}) | {does} | {after} |" for title, (_, does, after) in FAULTS.items())
    versions = f"Python {platform.python_version()}, Ray {ray.__version__}, torch {torch.__version__}"
    return f"""# Faults

What the user reads, what is left on disk and how it goes on, each provoked on real runs through the command line.
`make faults` wrote this page and compared the bits ({time.strftime("%Y-%m-%d")}, {seconds:.0f} s on {os.cpu_count()} cores, {versions}).

| fault | what happens | how it goes on |
|---|---|---|
{table}

The runs are of FedNST: three rounds, five clients, of whom all take part and one may fail ([tests/faults.py](../tests/faults.py)).
While there is a file `trouble`, what it says goes wrong ([tests/faulty.py](../tests/faulty.py)). To a *straight* run nothing happens;
*the same bits* are those of parameters, client states and all rows of metrics.jsonl but for the times. Output is as it came, with
shorter paths and without what is said before the first round.

"""


def main() -> int:
    if os.geteuid() != 0:
        print("make faults: needs root, to mount a disk that can be filled", file=sys.stderr)
        return 2
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="fedray-faults-"))
    os.environ |= {"FEDRAY_CACHE": str(folder / "cache"), "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120"}
    os.environ.pop("RAY_ADDRESS", None)
    prepare(folder)
    pages = {title: Page(folder) for title in FAULTS}

    def provoke(*functions: Callable[[Page], None]) -> None:
        for title, (function, _, _) in FAULTS.items():
            if function in functions:
                print(f"{time.monotonic() - began:5.0f} s  {title}", flush=True)
                pages[title].add(f"## {title}")
                function(pages[title])
                (folder / "trouble").unlink(missing_ok=True)

    with one_node():
        Page(folder).shell("fedray run tones.yaml --out straight")
        provoke(*(function for function, _, _ in FAULTS.values() if function is not lost_node))
    provoke(lost_node)  # in a Ray of its own
    PAGE.parent.mkdir(exist_ok=True)
    text = introduction(time.monotonic() - began) + "".join(page.text for page in pages.values())
    PAGE.write_text(text.rstrip() + "\n", encoding="utf-8")
    shutil.rmtree(folder)
    print(f"{time.monotonic() - began:5.0f} s  all as it should be: {PAGE.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
