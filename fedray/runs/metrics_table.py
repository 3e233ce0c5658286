"""metrics.jsonl: one row a round, all rows with the same keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedray.runs.folder import METRICS, RunFolder


class MetricsTable:
    """The table of a run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._columns: list[str] = []

    def resume(self) -> None:
        """Continue after the existing rows."""
        self._columns = list(next(self.folder.each(METRICS), {}))

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; NaN and infinite values become null. When a key is new, earlier rows get the key as null."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
        }
        keys = list(dict.fromkeys([*self._columns, *finite]))
        if len(keys) > len(self._columns):
            self.folder.rewrite(METRICS, ({key: old.get(key) for key in keys} for old in self.folder.each(METRICS)))
            self._columns = keys
        self.folder.append(METRICS, [{key: finite.get(key) for key in keys}])
