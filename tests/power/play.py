"""Runs of the toy on a Ray whose processes are under the shim: `python -m tests.power.play` plays the runs it is given.

Each line of its input is a folder and a kind of run; each line of its output says in JSON how that run ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedray.core.types import RunError
from tests.engine import toys
from tests.power.shim import Shim

ROUNDS = 3
ROOT = Path(__file__).parents[2]


KINDS: dict[str, dict[str, Any]] = {
    "two actors": {"actors": 2, "lanes": 2, "cohort": 4, "data": toys.ToyData(6)},
    "one actor": {"lanes": 1, "cohort": 2, "data": toys.ToyData(3)},
}


class Player:
    """The other process: `player(folder, kind)` starts or resumes a run, and returns how it ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, folder: Path, kind: str) -> dict[str, str]:
        """Return {} if the run is done; else `error` is the message, `kind` its class, `traceback` the whole text."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{folder}\t{kind}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{folder}: the process that plays has died"
        return dict(json.loads(line))


@contextmanager
def player(shim: Shim) -> Iterator[Player]:
    # Ray must not end an actor of this run because other tests take memory.
    environment = {**os.environ, **shim.environment, "PYTHONPATH": str(ROOT), "RAY_memory_monitor_refresh_ms": "0"}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "tests.power.play"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Player(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def main() -> None:
    import ray

    from fedray.engine.driver import session

    session.ship(toys)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # anything else that is printed must not be taken for an answer
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    for line in sys.stdin:
        try:
            folder, _, kind = line.strip().partition("\t")
            toys.run(Path(folder), rounds=ROUNDS, cpus=0.4, **KINDS[kind])
            said = {}
        except Exception as error:  # noqa: BLE001 - the test that reads the answer judges the error
            name = "RunError" if isinstance(error, RunError) else type(error).__name__
            said = {"error": str(error), "kind": name, "traceback": traceback.format_exc()}
        print(json.dumps(said), file=answers, flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
