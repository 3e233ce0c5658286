"""Delimited text files with a header, read by columns."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.core.texts import opened
from fedray.data.corpora.assembly import Told, tell_skipped
from fedray.data.corpora.skipping import skips


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

        A file that is written in the other way, without doubt, is read so, and a `Told` says it.
        Raises ValueError for a folder, a Git LFS stub, an empty file, text that is not UTF-8, an unclosed
        quotation mark, fields of more than 131,072 characters, and rows with more or fewer fields than the header.
        """
        with opened(path, newline="") as file:
            text = file.read()
            if '"' in text and is_quoted(text, delimiter, quoted, skipinitialspace) != quoted:
                quoted = not quoted
                how = "as in CSV" if quoted else "and not as in CSV, so they are part of the text"
                warnings.warn(f"{path}: quotation marks are read {how}", Told, stacklevel=3)
            reader = csv.reader(
                io.StringIO(text, newline=""),
                delimiter=delimiter,
                quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
                skipinitialspace=skipinitialspace,
            )
            numbered = _rows(path, reader)
            _, header = next(numbered, (0, None))
            if not header:
                raise ValueError(f"{path} is empty: its first line must name the columns")
            lines: list[int] = []
            rows: list[list[str]] = []
            wrong: dict[int, str] = {}  # line -> why `data.skip_broken` leaves it out
            for line, row in numbered:
                if not row:
                    continue
                if len(row) != len(header) and skips():
                    wrong[line] = f"{len(row)} fields in place of {len(header)}"
                    continue
                if len(row) != len(header):
                    names = f"the header names {len(header)} ({', '.join(header)})"
                    where = f"{path}:{line}"
                    is_open = not quoted and sum(field.count('"') for field in row) % 2
                    more = " (a quotation mark is not closed on this line: write each row on one line)" * is_open
                    raise ValueError(
                        f"{where}: the row has {len(row)} fields, but {names}{more}: correct the row or drop it"
                    )
                lines.append(line)
                rows.append(row)
        tell_skipped(path, {line: line for line in wrong}, wrong)
        columns = zip(*rows, strict=True) if rows else ([] for _ in header)
        repeated = frozenset(name for name in header if header.count(name) > 1)
        return cls(path, lines, {name: list(values) for name, values in zip(header, columns, strict=True)}, repeated)

    def column(self, name: str, option: str | None) -> list[str]:
        """The values of a column.

        Raises ValueError if the column is missing. `option`: the setting that names the column; None: the format does.
        """
        if name not in self.columns:
            known = ", ".join(repr(name) if name != name.strip() else name for name in self.columns)
            if len(self.columns) == 1 and (other := next((mark for mark in "\t,;|" if mark in known), None)):
                raise ValueError(
                    f"{self.path} has one column, {known!r}: its names are divided by {other!r}: set delimiter in "
                    "data.options to it, or write the table anew"
                )
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


def is_quoted(text: str, delimiter: str, usual: bool, skipinitialspace: bool = False) -> bool:
    """Whether the fields of a table are quoted as in CSV: `usual`, unless the text leaves no doubt that it is wrong.

    A table without quoting is taken for one with it if all its quotation marks are written as CSV writes them, and some
    of them are there for CSV alone: around a delimiter or a doubled mark, or around every text of a column. A table
    with quoting is taken for one without it if marks around a part of a field make no sense in CSV, and are closed.
    """
    comma, spaces = re.escape(delimiter), " *" if skipinitialspace else ""
    field = f'{spaces}(?:"(?:[^"]|"")*"|[^"{comma}][^{comma}]*|)'
    whole = re.compile(f"{field}(?:{comma}{field})*")
    lines = [line for line in text.splitlines() if line]
    marked = [line for line in lines if '"' in line]
    if not marked:
        return usual
    odd = [line for line in marked if whole.fullmatch(line) is None]
    if usual:
        columns = lines[0].count(delimiter)
        closed = all(line.count('"') % 2 == 0 for line in odd)
        return not (odd and closed and all(line.count(delimiter) == columns for line in lines))
    if odd or any(line.count('"') % 2 for line in marked):
        return False
    inside = re.compile(f'(?:^|{comma}){spaces}"(?=[^"]*(?:""|{comma}))(?:[^"]|"")*"(?={comma}|$)')
    if marked[0] == lines[0] or any(inside.search(line) for line in marked):  # no name of a column has marks
        return True
    columns_of = zip(*(line.split(delimiter) for line in lines[1:]), strict=False)
    return len(lines) > 2 and any(
        all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in column) for column in columns_of
    )


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
