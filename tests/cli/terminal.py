"""A terminal for tests: starts commands, waits for what they print, and ends what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

ROUNDS = 3
SECONDS = 150  # the longest wait for anything that a run does, on a busy machine


class Terminal:
    """Starts commands, each in its own process group as in a shell; `close` kills those that are left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self._left: list[psutil.Process] = []

    def start(self, *arguments: str | Path, module: str = "fedray.cli") -> subprocess.Popen[str]:
        environment = {**os.environ, "RAY_ADDRESS": self.address, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._left.append(psutil.Process(process.pid))
        return process

    def run(self, *arguments: str | Path) -> tuple[int, str]:
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=SECONDS)
        return process.returncode, said

    def family(self, process: psutil.Process) -> list[psutil.Process]:
        """Return a process and all its descendants, and remember them for `close`."""
        found = [process, *process.children(recursive=True)]
        self._left += found
        return found

    def close(self) -> None:
        """Kill what is left: after a failed test, that may include a run in the background."""
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            self.family(command_of(self.folder / "run"))
        for process in list(self._left):
            with suppress(psutil.NoSuchProcess):
                self.family(process)
        for process in self._left:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def until(happened: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def second_round(folder: Path) -> None:
    """Wait until the second round has begun and is waiting for the gate."""
    waits = folder / "gate.waits"
    until(waits.exists, "the second round has not begun")
    waits.unlink()


def gone(family: list[psutil.Process]) -> None:
    """Check that all processes of the family end within 30 s: a machine with other work is slow."""
    psutil.wait_procs(family, timeout=30)
    assert not [
        process.cmdline() for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Return what a process prints, up to and including the line that holds `words`."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it never said {words!r}, but:\n{said}")


def write(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(gated(config, folder)))
    return path


def command_of(run: Path) -> psutil.Process:
    """Return the command that started the Ray of a run's driver. Raises NoSuchProcess if they have ended."""
    driver = psutil.Process(json.loads((run / "driver.json").read_text())["pid"])
    raylet, command, *_ = [*driver.parents(), driver, driver]
    if not (
        driver.name().startswith("ray::Driver") and raylet.name() == "raylet" and "fedray.cli" in command.cmdline()
    ):
        raise psutil.NoSuchProcess(
            driver.pid
        )  # another process has this pid now, or another parent: its family is not ours to end
    return command


def gated(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    return config | {"algorithm": config["algorithm"] | {"gate": str(folder / "gate")}}
