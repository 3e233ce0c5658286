"""The page of a GPU check: machine and versions, then the rows that failed, then a table for each check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedray.core.texts import json_text
from fedray.storage.files import write_atomically
from tests.gpu.record import Row

TRACES = 20  # most tracebacks on the page; all are in gpu.json


class Book:
    """All rows so far. Each new row is written at once, to gpu.json and gpu.md in the folder."""

    def __init__(self, folder: Path, machine: Mapping[str, str], command: str) -> None:
        self.folder, self.machine, self.command = folder, machine, command
        self.rows: dict[str, list[Row]] = {}
        self.words: dict[str, tuple[str, str]] = {}  # title and explanation of each check
        self.seconds: dict[str, float] = {}

    def begin(self, check: str, title: str, about: str) -> None:
        self.rows[check], self.words[check] = [], (title, about)
        self.write()

    def add(self, check: str, row: Row) -> None:
        self.rows[check].append(row)
        self.write()

    @property
    def failures(self) -> list[tuple[str, Row]]:
        return [(check, row) for check, rows in self.rows.items() for row in rows if row.failed]

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        checks = {
            check: {"seconds": self.seconds.get(check), "rows": [asdict(row) for row in rows]}
            for check, rows in self.rows.items()
        }
        data = {"machine": dict(self.machine), "command": self.command, "checks": checks}
        for name, text in {"gpu.json": json_text(data, indent=1) + "\n", "gpu.md": self.page()}.items():
            write_atomically(self.folder / name, lambda path, text=text: path.write_text(text, encoding="utf-8"))

    def page(self) -> str:
        lines = ["# GPU check", "", f"`{self.command}`", ""]
        lines += table(["machine", ""], [[name, text] for name, text in self.machine.items()])
        failures = self.failures
        count = sum(map(len, self.rows.values()))
        lines += ["", f"{count} rows, {len(failures)} failed.", ""]
        lines += [f"- **{check}, {row.name}**: {row.failed}" for check, row in failures]
        for check, rows in self.rows.items():
            title, about = self.words[check]
            took = f" ({self.seconds[check]:.0f} s)" if check in self.seconds else ""
            lines += ["", f"## {title}{took}", "", about, ""]
            columns = list(dict.fromkeys(name for row in rows for name in row.values))
            cells = [
                [row.name, *(cell(row.values.get(name)) for name in columns), row.failed and "**failed**"]
                for row in rows
            ]
            lines += table(["", *columns, ""], cells)
        traces = [(check, row) for check, row in failures if row.trace][:TRACES]
        for check, row in traces:
            lines += ["", f"### {check}, {row.name}", "", "```", row.trace.rstrip(), "```"]
        return "\n".join(lines) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    text = [[str(value).replace("|", "\\|").replace("\n", " ") for value in row] for row in [header, *rows]]
    lines = ["| " + " | ".join(row) + " |" for row in text]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, float):
        return "0" if value == 0 else f"{value:.3g}" if abs(value) < 1e-2 or abs(value) >= 1e5 else f"{value:,.4g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
