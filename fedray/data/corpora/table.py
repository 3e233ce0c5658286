"""Delimited text files with a header, read by columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.core.texts import opened
from fedray.data.corpora.assembly import check_fetched


@dataclass(frozen=True)
class Table:
    """A delimited text file by columns. `lines[i]` is the line of row i, or its key in files that have keys."""

    path: Path
    lines: Sequence[int | str]
    columns: dict[str, list[str]]
    repeated: frozenset[str] = frozenset()  # names shared by several columns

    @classmethod
    def read(cls, path: Path, delimiter: str = ",", quoted: bool = True, skipinitialspace: bool = False) -> Table:
        """Read a table whose first line names the columns. With `quoted` false, a quotation mark is part of the text.

        Raises ValueError for a folder, a Git LFS stub, an empty file, text that is not UTF-8, an unclosed
        quotation mark, fields of more than 131,072 characters, and rows with more or fewer fields than the header.
        """
        with opened(path, newline="") as file:
            check_fetched(path)
            reader = csv.reader(
                file,
                delimiter=delimiter,
                quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
                skipinitialspace=skipinitialspace,
            )
            numbered = _rows(path, reader)
            _, header = next(numbered, (0, None))
            if not header:
                raise ValueError(f"{path} is empty: its first line must name the columns")
            lines, rows = [], []
            for line, row in numbered:
                if not row:
                    continue
                if len(row) != len(header):
                    names = f"the header names {len(header)} ({', '.join(header)})"
                    where = f"{path}:{line}"
                    raise ValueError(f"{where}: the row has {len(row)} fields, but {names}: correct the row or drop it")
                lines.append(line)
                rows.append(row)
        columns = zip(*rows, strict=True) if rows else ([] for _ in header)
        repeated = frozenset(name for name in header if header.count(name) > 1)
        return cls(path, lines, {name: list(values) for name, values in zip(header, columns, strict=True)}, repeated)

    def column(self, name: str, option: str | None) -> list[str]:
        """The values of a column.

        Raises ValueError if the column is missing. `option`: the setting that names the column; None: the format does.
        """
        if name not in self.columns:
            known = ", ".join(self.columns)
            remedy = f"set {option} in data.options to one of {known}" if option else f"add it; it has {known}"
            raise ValueError(f"{self.path} has no column {name!r}: {remedy}")
        if name in self.repeated:
            raise ValueError(f"{self.path}:1: two columns have the name {name!r}: rename one of them")
        return self.columns[name]

    def optional(self, name: str | None, option: str, without: str = "") -> list[str] | None:
        """The values of a column, or None if `name` is None.

        Raises ValueError as `column` does, and also suggests null; `without` says what null means.
        """
        if name is None:
            return None
        try:
            return self.column(name, option)
        except ValueError as problem:
            if name in self.columns:
                raise
            raise ValueError(f"{problem}, or to null if there is none. {without}".rstrip(". ")) from None


def _rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a csv reader with its line. Raises ValueError if a row spans several lines or is unreadable."""
    before = 0
    try:
        for row in reader:
            if reader.line_num > before + 1:
                raise ValueError(
                    f"{path}:{before + 1}: a quotation mark is not closed on its line: close it, or double it where "
                    "it is part of the text"
                )
            before = reader.line_num
            yield before, row
    except csv.Error as error:  # such as a field of more than 131,072 characters
        raise ValueError(f"{path}:{before + 1}: {error}: correct the row or drop it") from error
