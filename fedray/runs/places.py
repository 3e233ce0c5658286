"""The places of run folders, and the settings that may change on resume."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedray.config.source import ConfigError
from fedray.runs.folder import RunFolder
from fedray.storage.base import below

RESUMABLE = (
    "rounds",
    "data.root",
    "engine.actors",
    "engine.placement",
    "engine.cpus_per_client",
    "engine.gpus_per_client",
    "engine.mixed_nodes",
    "engine.replacements",
    "engine.hang_warning_s",
    "engine.deadline",
    "engine.hold_gb",
    "engine.keep",
    "engine.checkpoint_every",
    "tracker",
)


def place(folder: str | os.PathLike[str]) -> Path | str:
    """The absolute path of a run folder, or its URI on object storage. ValueError: the name is empty."""
    if not os.fspath(folder):
        raise ValueError(
            "the name of the run folder is empty (an unset variable?): name the folder, the current one is `.`"
        )
    root = RunFolder(folder if isinstance(folder, str) else Path(folder)).root
    return os.fspath(folder) if root is None else root.resolve()


def usual_place(name: str) -> Path | str:
    """The default place of a run or sweep: in `$FEDRAY_RUNS` (a folder or a URI), else in `runs`."""
    return place(below(os.environ.get("FEDRAY_RUNS") or "runs", name))


def new_place(name: str, out: str | os.PathLike[str] | None) -> Path | str:
    """The place of a new run, by default `<name>-<time>` at its usual place.

    ValueError: the folder holds other files, or cannot be written to.
    """
    where = place(out) if out is not None else _own_place(f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    folder = RunFolder(where)
    if folder.root is None:  # at once, not after minutes of work on data
        folder.storage.check()
    folder.check_free()
    return where


def _own_place(name: str) -> Path | str:
    """Make a new folder at the usual place: of two runs with one name in the same second, one gets `<name>-2`."""
    where = usual_place(name)
    if not isinstance(where, Path):  # object storage makes no folders
        return usual_place(f"{name}-{secrets.token_hex(2)}")
    RunFolder(where.parent).check_is_folder()
    for number in itertools.count(2):
        try:
            where.mkdir(parents=True)
            break
        except FileExistsError:
            where = usual_place(f"{name}-{number}")
            assert isinstance(where, Path)
    return where


@contextmanager
def unless_begun(where: Path | str, keep: bool = False) -> Iterator[None]:
    """While open, an error removes the run's folder if it is still empty. `keep`: the folder existed before."""
    try:
        yield
    except BaseException:
        if isinstance(where, Path) and not keep:
            with suppress(OSError):
                where.rmdir()
        raise


def check_resumable(overrides: Iterable[str]) -> None:
    """Raise ConfigError for an override that would make a resumed run another run."""
    for override in overrides:
        name = override.split("=", 1)[0]
        if not any(f"{name}.".startswith(f"{free}.") for free in RESUMABLE):  # the key itself, or its section
            raise ConfigError(
                f"command line: {name} cannot be changed on resume (that would be another run); these can: "
                f"{', '.join(RESUMABLE)}"
            )
