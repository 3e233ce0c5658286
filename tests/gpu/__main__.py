"""Checks fedray on a GPU, without Ray: `python -m tests.gpu [--out DIR] [--minutes 8] [--only models,speed]`.

Each check runs in its own process, so one that crashes or hangs does not stop the others. gpu.json and gpu.md in the
folder hold every row as soon as it is known; log.txt holds what the checks print. The status is 1 if a row failed.

`--device cpu --tiny` runs the whole program on any machine. `tests.gpu.wheels` installs what a machine without a
network lacks.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import torch

from fedray.engine.actors import gpu
from tests.gpu.checks import CHECKS
from tests.gpu.machine import described
from tests.gpu.page import Book
from tests.gpu.record import Row, Where, play

GRACE_SECONDS = 45.0  # for the last item of a check; then the check is killed
LEAST_SECONDS = 10.0  # a check does not start with less time left


def main(given: Sequence[str]) -> int:
    arguments = parse(given)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if arguments.child is not None:
        return child(arguments)
    return parent(arguments, shlex.join(["python", "-m", "tests.gpu", *given]))


def parse(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "runs/gpu")), help="folder of the page")
    parser.add_argument("--minutes", type=float, default=8.0, help="in all; what would begin later is left out")
    parser.add_argument("--only", default=",".join(CHECKS), help=f"of {','.join(CHECKS)}")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="everything as small as possible, to try the program")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    unknown = set(arguments.only.split(",")) - set(CHECKS)
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))} is no check: choose from {', '.join(CHECKS)}")
    return arguments


def child(arguments: argparse.Namespace) -> int:
    """Run one check in this process."""
    where = Where(arguments.device, arguments.tiny)
    check = importlib.import_module(f"tests.gpu.checks.{arguments.child}")
    gpu.set_up(float(where.gpu))
    if where.gpu and check.OPENS_DEVICE:
        gpu.take(1.0)
        torch.zeros(1, device="cuda")
    play(check, where, arguments.until)
    return 0


def parent(arguments: argparse.Namespace, command: str) -> int:
    """Run the checks one after the other, each in its own process."""
    end = time.time() + 60 * arguments.minutes
    book = Book(arguments.out, described(), command)
    book.write()
    with (arguments.out / "log.txt").open("w", encoding="utf-8") as log:
        for name in arguments.only.split(","):
            _play(name, arguments, book, end, log)
    print(f"{len(book.failures)} rows failed; {arguments.out / 'gpu.md'} has all")
    return int(bool(book.failures))


def _play(name: str, arguments: argparse.Namespace, book: Book, end: float, log: TextIO) -> None:
    title, about, seconds = _words(name)
    book.begin(name, title, about)
    since = time.time()
    if since > end - LEAST_SECONDS:
        book.add(name, Row("all", {"left out": "no time was left"}))
        return
    print(f"{name} ...", flush=True)
    print(f"--- {name}", file=log, flush=True)
    until = min(end, since + seconds)
    command = [sys.executable, "-m", "tests.gpu", "--child", name, "--until", str(until), "--device", arguments.device]
    playing = subprocess.Popen(
        [*command, *["--tiny"] * arguments.tiny], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
    )
    watch = threading.Timer(until + GRACE_SECONDS - since, os.killpg, [playing.pid, signal.SIGKILL])
    watch.start()
    assert playing.stdout is not None
    for line in playing.stdout:
        if (row := Row.parse(line)) is not None:
            book.add(name, row)
            print(f"  {row.name}: {row.failed or 'ok'} ({row.seconds:.1f} s)", flush=True)
    status = playing.wait()
    watch.cancel()
    book.seconds[name] = time.time() - since
    if status:
        book.add(name, Row("process", {}, f"the check's process ended with status {status}: see log.txt"))
    book.write()


def _words(name: str) -> tuple[str, str, float]:
    """The title, explanation and seconds of a check; if its import fails, the explanation is the error."""
    try:
        check = importlib.import_module(f"tests.gpu.checks.{name}")
    except Exception as error:  # noqa: BLE001 - the child's traceback is in log.txt
        return name, f"The check cannot be imported: {error}", LEAST_SECONDS
    return check.TITLE, check.ABOUT, check.SECONDS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
