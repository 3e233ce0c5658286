"""failures.jsonl: a row for each client that failed. A traceback that many clients share is written once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedray.runs.folder import FAILURES, RunFolder

TRACEBACKS = 1000  # distinct ones in a table; rows with further ones have null
CHARACTERS = 20_000  # of a traceback, and of a reason: messages may hold whole tables


class FailuresTable:
    """The table of a run folder.

    If a client failed where an earlier one did, its row has the traceback null, and `same_as`, {round, client}, names
    the row with the traceback. Every row has its reason, which names what differs between clients.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._first: dict[str, dict[str, Any]] = {}  # frames of a traceback -> the row that has it

    def resume(self) -> None:
        """Continue after the existing rows."""
        self._first = {}
        for row in self.folder.each(FAILURES):
            if row.get("traceback"):
                self._note(row)

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows of round, client, reason and traceback."""
        self.folder.append(FAILURES, [self._short(row) for row in rows])

    def _short(self, row: dict[str, Any]) -> dict[str, Any]:
        row = row | {name: _cut(row[name]) for name in ("reason", "traceback")}
        if not row["traceback"]:
            return row
        first = self._first.get(_frames(row["traceback"]))
        if first is not None:
            return row | {"traceback": None, "same_as": first}
        if len(self._first) >= TRACEBACKS:
            return row | {"traceback": None}
        self._note(row)
        return row

    def _note(self, row: dict[str, Any]) -> None:
        self._first.setdefault(_frames(row["traceback"]), {"round": row["round"], "client": row["client"]})


def _frames(traceback: str) -> str:
    """The lines of a traceback without its messages, which may name a client."""
    return "\n".join(line for line in traceback.splitlines() if line.startswith("  "))


def _cut(text: str) -> str:
    half = CHARACTERS // 2
    return (
        text
        if len(text) <= CHARACTERS
        else f"{text[:half]}\n... ({len(text) - CHARACTERS:,} characters)\n{text[-half:]}"
    )
