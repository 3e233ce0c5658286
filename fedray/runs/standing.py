"""How a run stands, as its folder tells: who is using the folder, or how the run ended."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any

from fedray.runs.folder import RunFolder
from fedray.runs.scores import TOTALS, check_results

ATTACH = "driver.json"  # in a run folder: the address of the driver that is using it
READ = ("results.json", "error.txt", ATTACH)  # what tells how a run stands


@dataclass(frozen=True)
class Standing:
    """How a run ended. No driver is using its folder."""

    state: str  # finished | stopped | killed | failed
    round: int  # of the newest checkpoint
    results: dict[str, Any] = field(default_factory=dict)  # finished: the content of results.json
    error: str = ""  # failed: the last line of the error


def standing(folder: RunFolder) -> Standing:
    """Read from a folder how its run ended. ValueError: there is no run in it."""
    folder.check_is_run()
    round = max(folder.saved_rounds(), default=0)
    if folder.exists("error.txt"):
        words = folder.read_text("error.txt").strip().splitlines()
        return Standing("failed", round, error=words[-1] if words else "")
    if folder.exists(ATTACH):  # a driver that ends by itself removes it
        return Standing("killed", round)
    if folder.exists("results.json"):
        results = folder.read_json("results.json")
        check_results(results, folder.storage.shown("results.json"), TOTALS)
        if results["rounds"] >= round:  # else they are from before the run was resumed
            return Standing("finished", round, results)
    return Standing("stopped", round)


def active(folder: RunFolder) -> str | None:
    """`running` if the process of the run's driver exists, `on HOST` if it is another machine's; None: it has ended."""
    if not folder.exists(ATTACH):
        return None
    told = folder.read_json(ATTACH)
    if told.get("host") != socket.gethostname():
        return f"on {told.get('host', '?')}"
    try:
        os.kill(int(told["pid"]), 0)
    except (KeyError, ValueError, TypeError, OSError, OverflowError):
        return None
    return "running"
