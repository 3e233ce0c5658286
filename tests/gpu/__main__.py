"""Checks fedray on a GPU, without Ray: `python -m tests.gpu [--out DIR] [--minutes 8] [--only models,speed]`.

Each check is a process of its own: one that crashes or hangs costs no other. gpu.json and gpu.md in the folder hold
every row as soon as it is known, log.txt holds what the checks print. The status is 1 if a row failed.

`--device cpu --tiny` plays the whole program on any machine. On a machine without network:
`python -m tests.gpu --wheels DIR` here downloads what it lacks, `python -m tests.gpu --install DIR` there installs it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.gpu import wheels
from tests.gpu.checks import CHECKS

START_SECONDS = 90.0  # beyond the end, for a child that is in its last item
LEAST_SECONDS = 10.0  # a check is not begun with less


def main(given: Sequence[str]) -> int:
    arguments = parse(given)
    if arguments.wheels is not None:
        return wheels.download(arguments.wheels, arguments.python, arguments.also)
    if arguments.install is not None:
        return wheels.install(arguments.install)
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
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="download what a machine with torch alone lacks")
    parser.add_argument("--python", default="3.12", help="the Python of the other machine, for --wheels")
    parser.add_argument("--also", nargs="*", default=[], help="further packages for --wheels, such as scipy")
    parser.add_argument("--install", type=Path, metavar="DIR", help="install from there what this Python lacks")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    unknown = set(arguments.only.split(",")) - set(CHECKS)
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))} is no check: choose from {', '.join(CHECKS)}")
    return arguments


def child(arguments: argparse.Namespace) -> int:
    """Play one check in this process."""
    import torch

    from fedray.engine import devices
    from tests.gpu.record import Where, play

    where = Where(arguments.device, arguments.tiny)
    check = importlib.import_module(f"tests.gpu.checks.{arguments.child}")
    devices.set_up(float(where.gpu))
    if where.gpu and check.OPENS_DEVICE:
        devices.take(1.0)
        torch.zeros(1, device="cuda")
    play(check, where, arguments.until)
    return 0


def parent(arguments: argparse.Namespace, command: str) -> int:
    """Play the checks one after the other, each in a process of its own."""
    from tests.gpu.machine import described
    from tests.gpu.page import Book

    end = time.time() + 60 * arguments.minutes
    book = Book(arguments.out, described(), command)
    book.write()
    with (arguments.out / "log.txt").open("w", encoding="utf-8") as log:
        for name in arguments.only.split(","):
            _play(name, arguments, book, end, log)
    print(f"{len(book.failures)} rows failed; {arguments.out / 'gpu.md'} has all")
    return int(bool(book.failures))


def _play(name: str, arguments: argparse.Namespace, book: object, end: float, log: object) -> None:
    from tests.gpu.page import Book
    from tests.gpu.record import Row

    assert isinstance(book, Book)
    check = _words(name)
    book.begin(name, *check)
    if time.time() > end - LEAST_SECONDS:
        book.add(name, Row("all", {"left out": "no time was left"}))
        return
    print(f"{name} ...", flush=True)
    since = time.time()
    command = [sys.executable, "-m", "tests.gpu", "--child", name, "--until", str(end), "--device", arguments.device]
    playing = subprocess.Popen(
        [*command, *["--tiny"] * arguments.tiny], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
    )
    watch = threading.Timer(max(1.0, end + START_SECONDS - time.time()), _kill, [playing])
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


def _kill(playing: subprocess.Popen[str]) -> None:
    """End a child that hangs, with the processes that it started."""
    import signal

    os.killpg(playing.pid, signal.SIGKILL)


def _words(name: str) -> tuple[str, str]:
    """Title and explanation of a check; its import may fail here as it does in the child."""
    try:
        check = importlib.import_module(f"tests.gpu.checks.{name}")
    except Exception as error:  # noqa: BLE001 - the child keeps the traceback
        return name, f"The check cannot be imported: {error}"
    return check.TITLE, check.ABOUT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
