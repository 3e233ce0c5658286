"""Numbered damaged files, read in processes that may die."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.fuzz.damage import damaged
from tests.fuzz.targets import targets

SECONDS = 20.0
GIGABYTES = 12  # of address space; torch alone takes a few


def case(seed: int, number: int) -> tuple[str, bytes]:
    """The kind and the damaged content of the file with this number."""
    dice = random.Random(f"{seed} {number}")
    kind = dice.choice(sorted(targets()))
    return kind, damaged(targets()[kind].content, dice)


def played(kind: str, content: bytes, folder: Path) -> str | None:
    """Read the damaged file in an empty folder. Return what went wrong, in words, or None."""
    target = targets()[kind]
    target.prepare(folder)
    (folder / target.name).write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(folder)
    except ValueError as error:
        if str(folder) not in str(error) and Path(target.name).name not in str(error):
            return f"no file is named: {error}\n{traceback.format_exc()}"
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        return traceback.format_exc()
    return None


@dataclass
class Worker:
    """A process that reads every n-th file, if n processes share the files."""

    process: BaseProcess
    words: Connection
    number: int  # the file being read
    since: float = field(default_factory=time.monotonic)


def fuzz(seed: int, seconds: float, processes: int, keep: Path, most: int = 100) -> tuple[int, list[str]]:
    """Read damaged files for `seconds`, or until there are `most` findings.

    Return the number of files and the findings. The files of findings stay in `keep`.
    """
    targets()  # built before the fork, so that processes inherit them
    context, findings, done, end = multiprocessing.get_context("fork"), [], 0, time.monotonic() + seconds
    scratch = tempfile.TemporaryDirectory(prefix="fedray-fuzz-", ignore_cleanup_errors=True)

    def start(number: int) -> Worker:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(seed, number, processes, theirs, Path(scratch.name)), daemon=True)
        process.start()
        theirs.close()
        return Worker(process, mine, number)

    workers = [start(number) for number in range(processes)]
    while time.monotonic() < end and len(findings) < most:
        for place, worker in enumerate(workers):
            words: str | None = None
            try:
                while len(findings) < most and worker.words.poll(0.02) and time.monotonic() < end:
                    worker.number, words = worker.words.recv()
                    worker.since, done = time.monotonic(), done + (words is None)
                    if words is not None:
                        findings.append(_keep(seed, worker.number, words, keep))
            except EOFError:
                worker.process.join()
                words = f"the process died (status {worker.process.exitcode})"
            if worker.process.is_alive() and time.monotonic() - worker.since > SECONDS:
                worker.process.kill()
                worker.process.join()
                words = f"more than {SECONDS:.0f} s"
            if words is not None and not worker.process.is_alive():
                findings.append(_keep(seed, worker.number, words, keep))
                workers[place] = start(worker.number + processes)
    for worker in workers:
        worker.process.kill()
        worker.process.join()
    scratch.cleanup()
    return done, findings


def _work(seed: int, number: int, step: int, words: Connection, scratch: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.devnull, "w") as silence:
        os.dup2(silence.fileno(), 2)  # decoders print there
    while True:
        words.send((number, None))
        folder = scratch / str(number)
        folder.mkdir()
        wrong = played(*case(seed, number), folder)
        shutil.rmtree(folder)
        if wrong is not None:
            words.send((number, wrong))
        number += step


def _keep(seed: int, number: int, words: str, keep: Path) -> str:
    kind, content = case(seed, number)
    (keep / f"{number}.bin").write_bytes(content)
    (keep / f"{number}.txt").write_text(f"{kind}\n{words}\n")
    return f"{number}, {kind}: {words.strip().splitlines()[-1][:200]}"
