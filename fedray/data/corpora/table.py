"""Delimited text files with a header, read by columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedray.data.corpora.assembly import check_fetched


@dataclass(frozen=True)
class Table:
    """A delimited text file by columns. `lines[i]` is the line of row i, or its key in files that have keys."""

    path: Path
    lines: Sequence[int | str]
    columns: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path, delimiter: str = ",", quoted: bool = True, skipinitialspace: bool = False) -> Table:
        """Read a table whose first line names the columns. With `quoted` false, a quotation mark is part of the text.

        Raises ValueError for a Git LFS stub, an empty file, text that is not UTF-8, and rows with more or fewer fields
        than the header.
        """
        check_fetched(path)
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(
                    file,
                    delimiter=delimiter,
                    quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
                    skipinitialspace=skipinitialspace,
                )
                header = next(reader, None)
                if header is None:
                    raise ValueError(f"{path} is empty: its first line must name the columns")
                lines, rows = [], []
                for row in reader:
                    if not row:
                        continue
                    if len(row) != len(header):
                        names = f"the header names {len(header)} ({', '.join(header)})"
                        where = f"{path}:{reader.line_num}"
                        raise ValueError(f"{where}: the row has {len(row)} fields, {names}: correct the row or drop it")
                    lines.append(reader.line_num)
                    rows.append(row)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start}): convert it") from error
        columns = zip(*rows, strict=True) if rows else ([] for _ in header)
        return cls(path, lines, {name: list(values) for name, values in zip(header, columns, strict=True)})

    def column(self, name: str, option: str) -> list[str]:
        """The values of a column. Raises ValueError with the setting `option`, which names the column."""
        if name not in self.columns:
            known = ", ".join(self.columns)
            raise ValueError(f"{self.path} has no column {name!r}: set {option} in data.options to one of {known}")
        return self.columns[name]

    def optional(self, name: str | None, option: str, without: str = "") -> list[str] | None:
        """The values of a column, or None if `name` is None.

        The error of `column` also names null; `without` says what null means.
        """
        if name is None:
            return None
        try:
            return self.column(name, option)
        except ValueError as problem:
            raise ValueError(f"{problem}, or to null if there is none. {without}".rstrip(". ")) from None
