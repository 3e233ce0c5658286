"""Faults, provoked on real runs through the command line: the messages, the files left, and how to resume.

`make faults` writes docs/operations/faults.md and fails when a run does not continue as promised. It needs root, to
mount a small disk.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import ray

from fedray.runs.folder import RunFolder
from tests.engine.cluster_run import cluster
from tests.engine.runs import rows
from tests.fault_page import POWER, REPOSITORY, ROUNDS, Page, introduction, prepare, program
from tests.stores import small_disk

PAGE = REPOSITORY / "docs" / "operations" / "faults.md"
SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def dead_actor(page: Page) -> None:
    page.add(
        "In round 2 the process that trains client s02 is killed (SIGKILL, as the kernel does when memory is short)."
    )
    page.shell("echo die-once s02 2 > trouble", "fedray run tones.yaml --out dead")
    page.left("dead")
    page.same("The run ended with the same bits as the straight run.", "dead")


def hung_actor(page: Page) -> None:
    page.add(
        "In round 3 the process that trains client s02 stops (SIGSTOP) and does not resume. Time limits are short here."
    )
    short = "engine.hang_warning_s=1 engine.deadline.factor=5 engine.deadline.floor_s=5"
    page.shell("echo hang-once s02 3 > trouble", f"fedray run tones.yaml {short} --out hung")
    page.left("hung")
    page.same("The run ended with the same bits as the straight run.", "hung")


def no_memory(page: Page) -> None:
    page.add("In round 2 client s02 runs out of memory once (`MemoryError`; torch's and CUDA's errors count as well).")
    page.shell("echo memory-once s02 2 > trouble", "fedray run tones.yaml --out memory")
    page.left("memory")
    page.same("The run ended with the same bits as the straight run.", "memory")


def no_start(page: Page) -> None:
    page.add("A file that every actor opens when it starts is missing.")
    page.shell("echo start actor 0 > trouble", "fedray run tones.yaml --out no-start", status=1)
    page.left("no-start")
    page.shell("rm trouble", "fedray resume no-start")
    page.same("The resumed run ended with the same bits as the straight run.", "no-start")


def lost_node(page: Page) -> None:
    page.add(
        "Ray has two nodes with one actor each; the second node dies in the middle of round 2 and does not return."
    )
    with (
        redirect_stdout(io.StringIO()),
        cluster(2, 1, 0, page.folder / "node"),
        address(),
    ):  # Ray prints pages about a lost node
        page.shell("echo slow all 0 > trouble", "fedray run tones.yaml --out node")
        assert sum(node["Alive"] for node in ray.nodes()) == 1, "no node was lost"
    page.left("node")
    page.same("One actor trained the rest, with the same bits as the straight run.", "node")


def killer(page: Page) -> None:
    page.add("Client s02 kills its actor in round 2 at each attempt. After the second it is left out of the round.")
    page.shell("echo die s02 2 > trouble", "fedray run tones.yaml --out killer")
    page.left("killer")


def not_finite(page: Page) -> None:
    page.add("Client s02 sends a NaN in round 2, client s04 an infinite number in round 3.")
    page.shell("printf 'nan s02 2\\ninf s04 3\\n' > trouble", "fedray run tones.yaml --out numbers")
    page.left("numbers")
    page.same(
        "After round 2 the bits are those of the run above, in which s02 was left out of round 2.",
        "numbers",
        "killer",
        2,
    )


def empty_client(page: Page) -> None:
    page.add("All recordings of client s02 are empty files.")
    page.shell(
        "cp -r tones emptied",
        "truncate -s 0 emptied/wav/s02-*.wav",
        "fedray run tones.yaml data.root=emptied --out empty",
        status=2,
    )
    page.add("Nothing has been written yet. To run without the client:")
    page.shell("fedray run tones.yaml data.root=emptied data.skip_broken=true --out empty")
    page.left("empty", "broken.tsv")
    cohorts, clients = (
        {row["clients/ok"] for row in rows(page.folder / "empty")},
        RunFolder(page.folder / "empty").load(ROUNDS).clients,
    )
    assert cohorts == {4} and "s02" not in clients
    page.add(
        "**The other four clients trained.** A client without data in a custom data set is a failed client\n"
        "like those above, with the reason\n"
        "`client ... has no data: raise data.clients.min_utterances, or leave it out of the corpus`."
    )


def too_many(page: Page) -> None:
    page.add("In round 2 every client fails; `engine.failures_allowed` is 0.25.")
    page.shell("echo raise all 2 > trouble", "fedray run tones.yaml --out many", status=1)
    page.left("many")
    page.shell("rm trouble", "fedray resume many")
    page.same("The resumed run ended with the same bits as the straight run, and its failures.jsonl is empty.", "many")
    assert RunFolder(page.folder / "many").rows("failures.jsonl") == []


def full_disk(page: Page) -> None:
    page.add("A disk of 16 MB is full when the checkpoint of round 2 is written.")
    with small_disk(page.folder / "disk", "16m"):
        page.shell("echo fill disk 2 > trouble", "fedray run tones.yaml --out disk/full", status=1)
        page.left("disk/full")
        page.shell("rm trouble disk/filler", "fedray resume disk/full")
        page.same("The resumed run ended with the same bits as the straight run.", "disk/full")


@contextmanager
def waiting(page: Page, command: str) -> Iterator[subprocess.Popen[str]]:
    """A run in the background that waits in its second round while the file `trouble` exists."""
    (page.folder / "trouble").write_text("wait s02 2\n")
    run = subprocess.Popen(program(command), shell=True, cwd=page.folder, text=True, stderr=subprocess.PIPE)
    try:
        while not RunFolder(page.folder / command.split()[-1]).rows("metrics.jsonl"):
            assert run.poll() is None, "the run has ended"
            time.sleep(0.1)
        yield run
    finally:
        run.kill()


def second_run(page: Page) -> None:
    page.add("While a run is active, a second run starts in its folder, and a resume is tried.")
    command = "fedray run tones.yaml --out twice"
    with waiting(page, command) as first:
        page.shell(f"{command} &", command, "fedray resume twice", status=2)
        (page.folder / "trouble").unlink()
        first.communicate(timeout=120)
        assert first.returncode == 0
    page.left("twice")
    page.same("The first run ended with the same bits as the straight run.", "twice")


def terminated(page: Page) -> None:
    page.add(
        "In round 2 the command gets SIGTERM, which cluster managers send before they kill a job. Ctrl-C twice\n"
        "does the same (status 130); once, it ends the run after its round. A closed terminal and `kill -9`\n"
        "leave no message, and the same checkpoint."
    )
    with waiting(page, command := "fedray run tones.yaml --out terminated") as run:
        run.terminate()
        _, said = run.communicate(timeout=120)
        assert run.returncode == 143
        page.add(f"```console\n$ {command} &\n$ kill $!\n{page.shorten(said)}\n(status 143)\n```")
    page.left("terminated")
    page.shell("rm trouble", "fedray resume terminated")
    page.same("The resumed run ended with the same bits as the straight run.", "terminated")


def damaged_cache(page: Page) -> None:
    page.add("Two bytes of the cached features are changed. A run checks the hashes of features up to 1 GB.")
    change = "for file in cache/features/*/frames.f16; do printf xx | dd of=$file conv=notrunc status=none; done"
    page.shell(change, "fedray run tones.yaml --out damaged", status=2)
    page.shell("rm -r cache/features", "fedray run tones.yaml --out damaged")
    page.same("The features were computed again, with the same bits as the straight run.", "damaged")


def cut_short(page: Page) -> None:
    page.add("A run was killed in its final evaluation, and its newest checkpoint is truncated.")
    cut = "truncate -s 1000 cut/checkpoints/round_000003/server.pt"
    page.shell("cp -r straight cut", "rm cut/results.json", cut, "fedray resume cut", status=2)
    page.left("cut")
    page.shell("rm -r cut/checkpoints/round_000003", "fedray resume cut")
    page.same("Round 3 ran again, with the same bits as the straight run.", "cut")
    page.add("Without any checkpoint the run would begin again, and overwrite its rounds:")
    page.shell("cp -r straight without", "rm -r without/checkpoints without/results.json")
    page.shell("fedray resume without", status=2)
    page.left("without")


FAULTS: dict[str, tuple[Callable[[Page], None], str, str]] = {
    "A dead actor": (dead_actor, "is replaced; its lane is trained again", "the same bits"),
    "A hung actor": (hung_actor, "is named, then killed and replaced; its lane is trained again", "the same bits"),
    "No memory": (no_memory, "costs the actor; its lane is trained again", "the same bits"),
    "An actor that cannot start": (
        no_start,
        "ends the run at once and states the reason",
        "`fedray resume`: the same bits",
    ),
    "A lost node": (lost_node, "other nodes take over its lanes", "the same bits"),
    "A client that kills its actor twice": (killer, "is left out of the round, counted and named", "the run continues"),
    "Updates with NaN or Inf": (not_finite, "never reach the mean; counted and named", "the run continues"),
    "An empty client": (empty_client, "is refused, or left out and named", "`data.skip_broken=true`"),
    "More failures than allowed": (too_many, "end the run; all are named", "`fedray resume`: the same bits"),
    "A disk that is full": (
        full_disk,
        "ends the run; committed rounds stay",
        "make room, `fedray resume`: the same bits",
    ),
    "A second run in the same folder": (second_run, "is refused", "the first run is not disturbed: the same bits"),
    "A job that is terminated": (terminated, "ends at once; committed rounds stay", "`fedray resume`: the same bits"),
    "A damaged cache": (damaged_cache, "is refused and named", "remove it: the same bits"),
    "A checkpoint cut short": (cut_short, "is refused and named", "remove it, `fedray resume`: the same bits"),
}


@contextmanager
def address() -> Iterator[None]:
    """Commands use the Ray of this process instead of starting one each."""
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
    provoke(lost_node)  # in another Ray
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    text = introduction(FAULTS, time.monotonic() - began) + "".join(page.text for page in pages.values())
    PAGE.write_text(text + POWER, encoding="utf-8")
    shutil.rmtree(folder)
    print(f"{time.monotonic() - began:5.0f} s  all as it should be: {PAGE.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
