"""sweep.json: the definition of a sweep and the choices of its command, which all its trials share."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any

from fedray.report.sweep_description import NAME as DESCRIPTION
from fedray.runs.folder import RunFolder
from fedray.runs.strangers import check_own
from fedray.sweep import tuning
from fedray.sweep.space import described, grid_values, is_conditional, shown
from fedray.sweep.study import Sweep, check_space, read_bases

DRAWS, SMOKE_DRAWS = 8, 2  # trials of a random or optuna search by default; those of Optuna with --smoke
DEFINITION = ("metric", "mode", "space", "names", "settings", "small", "bases")  # trials depend on these


@dataclass(frozen=True)
class Choices:
    """sweep.json: the sweep, and the command-line choices that its trials depend on."""

    name: str
    question: str
    keys: list[str]
    metric: str
    mode: str
    reference: str | None
    figures: list[dict[str, Any]]
    space: dict[str, str]  # key -> its domain in words
    names: Mapping[str, Mapping[str, str]]
    settings: list[str]
    small: list[str]
    bases: dict[str, dict[str, Any]]
    search: str
    scheduler: str
    samples: int
    smoke: bool
    overrides: list[str]
    folder: str


def new(sweep: Sweep, folder: RunFolder, options: argparse.Namespace) -> Choices:
    """The choices of a new sweep. Raises ValueError if the folder is not free, or the space cannot be swept."""
    if folder.exists(DESCRIPTION):
        resume = f"continue it with --resume --out {quote(folder.place)}"
        raise ValueError(f"{folder.place} holds a sweep already: {resume}, or choose another folder with --out")
    folder.check_free()
    check_space(sweep, options.overrides)
    found = _present(sweep, options)
    tuning.check_search(found.search)
    return found


def resumed(sweep: Sweep, folder: RunFolder, options: argparse.Namespace) -> Choices:
    """The choices of the sweep that the folder holds, with the present question and figures.

    Raises ValueError if it holds none, or another one, if what trials depend on has changed in the sweep's file or in a
    base configuration, or if the command line asks for other choices.
    """
    check_own(folder, *(name for name in folder.storage.names() if name.endswith((".json", ".pkl"))))  # Tune unpickles
    if not folder.exists(DESCRIPTION):
        raise ValueError(f"{folder.place} holds no sweep to continue: leave out --resume")
    values = folder.read_json(DESCRIPTION)
    if missing := [field.name for field in fields(Choices) if field.name not in values]:
        raise ValueError(
            f"{folder.storage.shown(DESCRIPTION)}: has no {missing[0]!r}: it is damaged, or of an older fedray; "
            "restore it, or begin a new sweep with another --out"
        )
    before = Choices(**{field.name: values[field.name] for field in fields(Choices)})
    by_1_0 = {key: described(domain) for key, domain in sweep.space.items() if before.space.get(key) == shown(domain)}
    before = replace(before, space=before.space | by_1_0)  # fedray 1.0 wrote less about a domain
    if (before.name, before.keys) != (sweep.name, list(sweep.space)):
        raise ValueError(
            f"{folder.place} holds the sweep {before.name} of {', '.join(before.keys)}: choose another --out"
        )
    given = {"search": options.search, "scheduler": options.scheduler, "overrides": options.overrides or None}
    given |= {"smoke": options.smoke or None, "samples": None if before.smoke else options.num_samples}
    for name, value in given.items():
        if value is not None and value != (was := getattr(before, name)):
            raise ValueError(
                f"{folder.place} holds a sweep with {name}={was!r}, not {value!r}: --resume continues with the "
                "sweep's own choices; leave this one out, or begin a new sweep with another --out"
            )
    tuning.check_search(before.search)
    now = _present(sweep, options)
    if changed := _changes(before, now):
        raise ValueError(
            f"{folder.place}: the sweep has changed since it began:"
            + "".join(f"\n  {line}" for line in changed)
            + "\nrestore this, or begin a new sweep with another --out"
        )
    return replace(before, question=now.question, figures=now.figures, reference=now.reference)


def _present(sweep: Sweep, options: argparse.Namespace) -> Choices:
    """The choices of the sweep's file and of the command line."""
    lists = all(grid_values(domain) is not None or is_conditional(domain) for domain in sweep.space.values())
    grid = lists and options.scheduler != "pbt"
    search = options.search or ("grid" if grid else "random")
    samples = options.num_samples or (sweep.samples if search == "grid" else max(sweep.samples, DRAWS))
    if options.smoke:
        samples = SMOKE_DRAWS if search == "optuna" else 1  # of a grid of two trials
    return Choices(
        name=sweep.name,
        question=sweep.question,
        keys=list(sweep.space),
        metric=sweep.metric,
        mode=sweep.direction,
        reference=sweep.reference,
        figures=[figure.described() for figure in sweep.figures],
        space={key: described(domain) for key, domain in sweep.space.items()},
        names={name: dict(texts) for name, texts in sweep.names.items()},
        settings=list(sweep.settings),
        small=list(sweep.small),
        bases=read_bases(sweep, Path(sys.argv[0])),
        search=search,
        scheduler=options.scheduler or "fifo",
        samples=samples,
        smoke=options.smoke,
        overrides=options.overrides,
        folder=os.getcwd(),
    )


def _changes(before: Choices, now: Choices) -> list[str]:
    """What has changed in the sweep's definition, a line each."""

    def lines(name: str, was: object, is_now: object) -> list[str]:
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            keys = dict.fromkeys([*was, *is_now])
            return [line for key in keys for line in lines(f"{name}: {key}", was.get(key), is_now.get(key))]
        return [] if was == is_now else [f"{name}: {was} -> {is_now}"]

    present = json.loads(json.dumps({name: getattr(now, name) for name in DEFINITION}))  # as the file has it
    return [line for name in DEFINITION for line in lines(name, getattr(before, name), present[name])]
