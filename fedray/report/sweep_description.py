"""sweep.json: the question of a sweep, the keys it sweeps, and the figures of its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from fedray.config.schema import build
from fedray.config.source import Source
from fedray.core.ranges import Ranged, one_of
from fedray.report.figures import Figure, from_description
from fedray.runs.folder import RunFolder
from fedray.runs.strangers import check_files

NAME = "sweep.json"
MODES = ("min", "max")


@dataclass(frozen=True)
class SweepDescription(Ranged):
    """The part of sweep.json that a report needs. Tune ranks trials by `metric` and `mode`."""

    name: str = ""
    question: str = ""
    keys: tuple[str, ...] = ()  # the swept ones
    metric: str | None = None
    mode: str = one_of(MODES)
    reference: str | None = None  # the label of a group: the table shows the share of its gain that the others reach


def read(folder: RunFolder) -> tuple[SweepDescription, Sequence[Figure]]:
    """The description and its figures; empty ones if the folder has no sweep.json.

    Raises ValueError if the file is damaged, or names an unknown kind of figure.
    """
    if not folder.exists(NAME):
        return SweepDescription(), ()
    check_files(folder, [NAME])
    shown = folder.storage.shown(NAME)
    try:
        values = json.loads(folder.read_text(NAME))
        if not isinstance(values, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise ValueError(f"{shown}: is not a JSON object ({error}): correct or remove it") from error
    descriptions = values.pop("figures", [])
    if not isinstance(descriptions, list) or not all(isinstance(one, dict) for one in descriptions):
        raise ValueError(f"{shown}: figures must be a list of objects: correct or remove it")
    wanted = {field.name: values[field.name] for field in fields(SweepDescription) if field.name in values}
    description = build(SweepDescription, Source(wanted, {"": shown}))
    return description, tuple(from_description(one, f"{shown}, figure {n}") for n, one in enumerate(descriptions, 1))
