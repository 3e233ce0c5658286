"""sweep.json: what a sweep asks, and what its report is to draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedray.core import config as configuration
from fedray.core.config import Source
from fedray.engine.folder import RunFolder
from fedray.report.figures import Figure, from_description

NAME = "sweep.json"
MODES = ("min", "max")


@dataclass(frozen=True)
class Asked:
    """What a report needs of it. `keys` are what is swept, `metric` and `mode` what Tune chose by."""

    name: str = ""
    question: str = ""
    keys: tuple[str, ...] = ()
    metric: str | None = None
    mode: str = "min"
    reference: str | None = None  # a group's label: how much of its gain over the seed model do the others reach?

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode: choose from {', '.join(MODES)}, not {self.mode!r}")


def read(folder: RunFolder) -> tuple[Asked, Sequence[Figure]]:
    """Empty where there is no sweep.json. ValueError: it is damaged, or asks for a figure that there is not."""
    if not folder.exists(NAME):
        return Asked(), ()
    shown = folder.storage.shown(NAME)
    try:
        values: dict[str, Any] = json.loads(folder.read_text(NAME))
        if not isinstance(values, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise ValueError(f"{shown}: is not a JSON object ({error}): correct or remove it") from error
    descriptions = values.pop("figures", [])
    wanted = {field.name: values[field.name] for field in fields(Asked) if field.name in values}
    asked = configuration.build(Asked, Source(wanted, {"": shown}))
    return asked, tuple(from_description(description, f"{shown}, figure {n}") for n, description in enumerate(descriptions, 1))
