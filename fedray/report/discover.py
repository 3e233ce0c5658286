"""Finds run folders below a path, on disk or on object storage, including the folders that Ray Tune makes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedray.report.recorded import Run
from fedray.runs.folder import RunFolder
from fedray.storage.base import below

BESIDE = ("run.json", "metrics.jsonl")  # a run has one of them next to its config.yaml, a project has none


def find(paths: Sequence[str | Path]) -> list[Run]:
    """The runs at or below the paths, including unfinished runs.

    Raises ValueError if a path holds no run, or a file is damaged.
    """
    return [Run.read(folder, name, trial) for folder, name, trial in located(paths)]


def located(paths: Sequence[str | Path]) -> list[tuple[RunFolder, str, RunFolder | None]]:
    """The run folders at or below the paths: each with the name of its run, and the folder of its Tune trial, if any.

    Raises ValueError if a path holds no run.
    """
    if not paths:
        raise ValueError("name at least one run folder, or a folder of runs")
    folders: dict[str, tuple[RunFolder, RunFolder | None]] = {}
    for path in paths:
        found = folders_below(path)
        if not found:
            raise ValueError(f"{RunFolder(path).place}: holds no run: a run folder has a config.yaml and a run.json")
        for folder, trial in found:  # a link to a run is no second run
            folders.setdefault(_resolved(folder), (folder, trial))
    named = [trial or folder for folder, trial in folders.values()]
    names = _short([_resolved(folder) for folder in named])
    return [(folder, name, trial) for (folder, trial), name in zip(folders.values(), names, strict=True)]


def trials_without_a_run(paths: Sequence[str | Path]) -> list[str]:
    """The names of Tune's trials that failed or were stopped before their run began."""
    trials = [params.parent for path in paths if "://" not in str(path) for params in Path(path).glob("*/params.json")]
    return sorted(trial.name for trial in trials if not any(trial.glob("run*/config.yaml")))


def folders_below(path: str | Path) -> list[tuple[RunFolder, RunFolder | None]]:
    """The run folder at the path, or all run folders below it, each with the folder of its Tune trial, if any.

    A trial may hold several attempts: run, run-01, run-02, ... Only the last counts: it continues an earlier one.
    ValueError: there is no such folder.
    """
    folder, place = RunFolder(path), os.fspath(path)
    if folder.exists("config.yaml") and any(map(folder.exists, BESIDE)):
        return [(folder, _trial(RunFolder(folder.root.resolve().parent)) if folder.root is not None else None)]
    if folder.root is not None and not folder.root.is_dir():
        raise ValueError(f"{folder.root}: no such folder: name a run folder, or a folder of runs, such as runs")
    inside: dict[str, list[str]] = {}
    for name in _walk(folder.root, "") if folder.root is not None else _listed(folder):
        outer, _, inner = name.rpartition("/")
        inside.setdefault(outer, []).append(inner)
    found = []
    for outer, names in inside.items():
        trial = _trial(RunFolder(below(place, outer) if outer else place))
        if trial is not None:
            names = names[-1:]
        found += [(RunFolder(below(place, "/".join(filter(None, (outer, name))))), trial) for name in names]
    return found


def _resolved(folder: RunFolder) -> str:
    """A folder's place, without links."""
    return str(folder.root.resolve()) if folder.root is not None else folder.place


def _trial(folder: RunFolder) -> RunFolder | None:
    """The folder if it is that of a Tune trial, else None."""
    return folder if folder.exists("params.json") else None


def _walk(root: Path, name: str) -> Iterator[str]:
    """Relative names of run folders; skips folders inside run folders and copies in Tune's checkpoints."""
    for entry in sorted(root.iterdir()):
        if entry.is_dir() and not entry.name.startswith((".", "checkpoint")) and _may_follow(entry):
            if (entry / "config.yaml").is_file() and any((entry / name).is_file() for name in BESIDE):
                yield f"{name}{entry.name}"
            else:
                yield from _walk(entry, f"{name}{entry.name}/")


def _may_follow(entry: Path) -> bool:
    """Whether an entry is a folder itself, or this user's link to one: a stranger's may lead to what is not his."""
    return not entry.is_symlink() or entry.lstat().st_uid == os.getuid()


def _listed(folder: RunFolder) -> list[str]:
    """The names that `_walk` yields, for object storage."""
    files = set(folder.storage.files())
    names = sorted(name.removesuffix("/config.yaml") for name in files if name.endswith("/config.yaml"))
    names = [name for name in names if any(f"{name}/{other}" in files for other in BESIDE)]
    outermost = [name for name in names if not any(name.startswith(f"{other}/") for other in names)]
    return [name for name in outermost if "/checkpoint" not in f"/{name}"]


def _short(places: Sequence[str]) -> list[str]:
    """The places without the leading folders that all of them share."""
    parts = [re.split(r"[/\\]", place.partition("?")[0].rstrip("/")) for place in places]
    common = 0
    while all(len(part) > common + 1 and part[common] == parts[0][common] for part in parts):
        common += 1
    return ["/".join(part[common:]) for part in parts]
