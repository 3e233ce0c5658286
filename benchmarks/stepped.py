"""Runs that a study steps through in its own process, and whose results it keeps in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedray.storage.files import write_atomically


def kept(place: Path, given: Mapping[str, Any], play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The results of `play` from the file run.json in `place`; plays, and writes the file, if there is none.

    `given`: all on which the results depend. ValueError: the file is of something else.
    """
    file, given = place / "run.json", json.loads(json.dumps(given))
    if file.exists():
        found = dict(json.loads(file.read_text(encoding="utf-8")))
        if found.pop("given", given) != given:  # files of earlier versions do not say
            raise ValueError(f"{place} holds a run with other settings than {given}: move it away")
        return found
    found = play()
    place.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda path: path.write_text(json.dumps(found | {"given": given}), encoding="utf-8"))
    return found
