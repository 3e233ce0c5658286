"""`fedray run --debug`: the rounds of a run in this process, up to the first error."""

from __future__ import annotations

import pdb
import sys
import traceback
from bdb import BdbQuit
from collections.abc import Iterable, Mapping
from typing import Any


def debug(config: str, overrides: Iterable[str]) -> int:
    """Run the rounds of a configuration, and stop at an error with its traceback and, on a terminal, in pdb.

    Returns the exit status. Bad input is an error as in any run.
    """
    from fedray import experiment

    bench = experiment.open(config, overrides)
    try:
        state = bench.start()
        for _ in range(bench.config.rounds):
            state, row = bench.step(state)
            print(_words(row, bench.config.rounds), flush=True)
    except BdbQuit:  # the user left a breakpoint
        return 1
    except Exception as error:  # noqa: BLE001 - any error is what the command is for
        traceback.print_exception(error)
        if sys.stdin.isatty() and sys.stdout.isatty():
            pdb.post_mortem(error.__traceback__)
        return 1
    print("No client failed. Nothing was saved: run it without --debug for a run folder.")
    return 0


def _words(row: Mapping[str, Any], rounds: int) -> str:
    shown = ("train/loss", *(key for key in row if key.startswith("dev/")))
    scores = [f"{key} {row[key]:.2f}" for key in shown if row.get(key) is not None]
    return "  ".join([f"round {row['round']}/{rounds}", *scores, f"{row['clients/ok']} clients"])
