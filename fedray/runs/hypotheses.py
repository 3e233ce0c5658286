"""hypotheses.json: what the model answers to a few utterances of dev, for whoever watches a run.

{"initial": {"round", "scores", "rows"}, "newest": {...}}: of the model before the first round, and of the newest round
that was scored. `rows` have the columns of predictions.tsv.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fedray.core.drawing import spread
from fedray.core.texts import json_text
from fedray.core.types import Evaluation
from fedray.runs.folder import RunFolder

NAME = "hypotheses.json"
KEPT = 12  # rows


class Hypotheses:
    """The file of a run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._initial: dict[str, Any] | None = None

    def resume(self) -> None:
        """Keep what the file says about the model before the first round."""
        with suppress(FileNotFoundError, ValueError):  # no result depends on the file
            self._initial = self.folder.read_json(NAME).get("initial")

    def write(self, scored: Evaluation, round: int) -> None:
        """Write the newest rows. A power loss may lose the file."""
        rows = [scored.predictions[position] for position in spread(len(scored.predictions), KEPT)]
        newest = {"round": round, "scores": dict(scored.metrics), "rows": rows}
        if not round:
            self._initial = newest
        text = json_text({"initial": self._initial, "newest": newest})
        self.folder.storage.write_soon(NAME, text.encode())
