"""Runs that a study steps through in its own process, and whose results it keeps in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedray.storage.files import write_atomically


def kept(place: Path, play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The results of `play` from the file run.json in `place`; plays, and writes the file, if there is none."""
    file = place / "run.json"
    if file.exists():
        return dict(json.loads(file.read_text(encoding="utf-8")))
    found = play()
    place.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda path: path.write_text(json.dumps(found), encoding="utf-8"))
    return found
