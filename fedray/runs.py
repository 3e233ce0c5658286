"""Where runs are, and what of a run may be changed when it goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from fedray.core.config import ConfigError
from fedray.core.storage import below
from fedray.engine.folder import RunFolder

RESUMABLE = (
    "rounds",
    "engine.actors",
    "engine.placement",
    "engine.cpus_per_client",
    "engine.gpus_per_client",
    "engine.replacements",
    "engine.hold_gb",
    "engine.keep",
    "engine.checkpoint_every",
)


def place(folder: str | os.PathLike[str]) -> Path | str:
    """The absolute path of a run folder, or the URI of one on object storage."""
    root = RunFolder(folder if isinstance(folder, str) else Path(folder)).root
    return os.fspath(folder) if root is None else root.resolve()


def usual_place(name: str) -> Path | str:
    """Where a run or a sweep is that nobody gives a place: in `$FEDRAY_RUNS`, a folder or a URI, else in the working folder's runs."""
    return place(below(os.environ.get("FEDRAY_RUNS") or "runs", name))


def new_place(name: str, out: str | os.PathLike[str] | None) -> Path | str:
    """Where a new run is to be (default: <name>-<time> at its usual place); ValueError: one is there, or nothing can be written."""
    where = place(out) if out is not None else usual_place(f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    folder = RunFolder(where)
    if folder.exists("config.yaml"):
        shown = folder.place
        raise ValueError(f"{shown} holds a run already: go on with `fedray resume {quote(shown)}`, or choose another folder with --out")
    if folder.root is None:  # before minutes are spent on data
        folder.storage.check()
    return where


def check_resumable(overrides: Iterable[str]) -> None:
    for override in overrides:
        name = override.split("=", 1)[0]
        if name not in RESUMABLE:
            raise ConfigError(
                f"command line: {name} cannot be changed on resume, it would be another run; what can: {', '.join(RESUMABLE)}"
            )
