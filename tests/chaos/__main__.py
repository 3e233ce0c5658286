"""Play runs under random faults for some minutes, or as a soak of hours that can be resumed and writes a page.

    python -m tests.chaos --minutes 10 --seed 3
    python -m tests.chaos --minutes 120 --keep runs/soak --page

A fault strikes a client actor (killed, stopped for good or for a second, out of memory), the driver, the whole run with
its Ray, one node of two, Ray's control service, the disk (one call fails, or every call from some point on), the clock,
or the line to the bucket. The seed and the number of a run seed its random choices; the moments of the faults, and so
the choices after the first, also depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos import page
from tests.chaos.faults import FAULTS
from tests.chaos.stage import stage
from tests.chaos.trial import WORKLOADS, trial

LOG = "soak.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="with --keep, of all sittings together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for what was done; the same command continues from it")
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/soak.md at the end")
    options = parser.parse_args()
    scratch = options.keep or Path(tempfile.mkdtemp(prefix="fedray-chaos-"))
    scratch.mkdir(parents=True, exist_ok=True)
    done = soak(scratch.absolute(), options.minutes, options.seed)
    print(f"{summary(done)}: all ended with the bits of the undisturbed run")
    if options.page:
        page.write(
            done, f"python -m tests.chaos --minutes {options.minutes:g} --seed {options.seed} --page", options.seed
        )
    if options.keep is None:
        shutil.rmtree(scratch)
    return 0


def soak(scratch: Path, minutes: float, seed: int) -> list[dict[str, Any]]:
    """Play runs until they have taken `minutes`, earlier sittings included. AssertionError if one goes wrong."""
    log = scratch / LOG
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    print(f"chaos for {minutes:g} minutes, seed {seed}, in {scratch}; {len(done)} runs are done", flush=True)
    with stage(scratch) as found:
        while sum(row["seconds"] for row in done) < 60 * minutes:
            number, began = len(done), time.monotonic()
            dice = random.Random(f"{seed} {number}")
            shutil.rmtree(scratch / f"run-{number}", ignore_errors=True)  # left by a sitting that was cut off
            kind = dice.randrange(len(WORKLOADS))
            became = trial(f"run-{number}", kind, found, dice)
            done.append({"run": number, "kind": kind, "seconds": time.monotonic() - began, **vars(became)})
            with log.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            struck = sum(became.strikes.values())
            print(f"run {number}: same bits after {struck} faults and {became.starts} starts", flush=True)
    return done


def summary(done: list[dict[str, Any]]) -> str:
    total = sum((Counter(row["strikes"]) for row in done), Counter[str]())
    kinds = ", ".join(f"{total[name]} x {name}" for name in FAULTS)
    return f"{len(done)} runs, {sum(row['starts'] for row in done)} starts, {total.total()} faults ({kinds})"


if __name__ == "__main__":
    sys.exit(main())
