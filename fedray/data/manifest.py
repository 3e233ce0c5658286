"""The manifest: one row for each utterance, in an Arrow table. Millions of rows load, pickle and hash in seconds."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedray.data.features.packed import file_of
from fedray.storage.cache import cache_root

Rows = npt.NDArray[np.int64]  # indices of rows, or one number for each row
Mask = npt.NDArray[np.bool_]  # one truth value for each row

# 64-bit offsets: an Arrow `string` column holds 2 GB, less than the paths of ten million utterances.
SCHEMA = pa.schema(
    [
        pa.field("utterance", pa.large_string(), nullable=False),
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("offset", pa.float64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("speaker", pa.large_string(), nullable=False),
        pa.field("text", pa.large_string()),
        pa.field("label", pa.large_string()),
        pa.field("translation", pa.large_string()),
    ]
)
COLUMNS = tuple(SCHEMA.names)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One row of a manifest.

    `path` is absolute. The utterance starts `offset` seconds into the file and lasts `seconds`.
    """

    utterance: str
    path: str
    offset: float
    seconds: float
    speaker: str
    text: str | None = None
    label: str | None = None
    translation: str | None = None


class Manifest:
    """An immutable list of utterances. Its columns are Arrow arrays, so a pickle is a copy of a few buffers."""

    def __init__(self, table: pa.Table) -> None:
        assert table.schema.equals(SCHEMA), f"not a manifest: {table.schema}"
        self.table = table

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Sequence[Any]], source: str, lines: Sequence[int | str] | None = None
    ) -> Manifest:
        """Make a manifest from columns: lists or arrays of equal length. `offset` defaults to 0, text to null.

        `source` is the file that the rows come from, and `lines[i]` the place of row i in it: a line number or a key. A
        ValueError for unknown, missing or malformed columns names both.
        """
        _known(columns, source)
        missing = [name for name in ("utterance", "path", "seconds", "speaker") if name not in columns]
        if missing:
            raise ValueError(f"{source}: the rows have no {', '.join(missing)}")
        size = len(columns["utterance"])
        arrays = []
        for field in SCHEMA:
            values: Sequence[Any] | None = columns.get(field.name)
            if values is None:
                values = pa.array(np.zeros(size)) if field.name == "offset" else pa.nulls(size, field.type)
            array = _array(values, field, source, lines)
            if len(array) != size:
                raise ValueError(f"{source}: {len(array)} values of {field.name} for {size} utterances")
            if array.null_count and not field.nullable:
                raise ValueError(f"{place(source, lines, _first(array.is_null()))}: has no {field.name}")
            arrays.append(array)
        relative = pc.invert(pc.starts_with(arrays[1], os.sep))
        if pc.any(relative).as_py():
            row = _first(relative)
            raise ValueError(f"{place(source, lines, row)}: the path {arrays[1][row].as_py()!r} is not absolute")
        return cls(pa.Table.from_arrays(arrays, schema=SCHEMA))

    @classmethod
    def from_rows(
        cls, rows: Iterable[Mapping[str, Any]], source: str, lines: Sequence[int | str] | None = None
    ) -> Manifest:
        """Make a manifest from mappings of column names to values.

        `from_columns`, with the same arguments, is faster.
        """
        columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        for row in rows:
            _known(row, source)
            for name, values in columns.items():
                values.append(row.get(name, 0.0 if name == "offset" else None))
        return cls.from_columns(columns, source, lines)

    @staticmethod
    def concat(manifests: Sequence[Manifest]) -> Manifest:
        """The rows of all manifests, in order. An empty sequence gives an empty manifest."""
        tables = [manifest.table for manifest in manifests]
        return Manifest(pa.concat_tables(tables).combine_chunks() if tables else SCHEMA.empty_table())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, index: int) -> Utterance:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"row {index} of {size}")
        row = int(index) % size
        return Utterance(*(column[row].as_py() for column in self.table.columns))

    def __iter__(self) -> Iterator[Utterance]:
        for batch in self.table.to_batches(max_chunksize=65_536):
            yield from map(Utterance, *(column.to_pylist() for column in batch.columns))

    def __repr__(self) -> str:
        speakers = pc.count_distinct(self.table["speaker"]).as_py()
        return f"Manifest({len(self):,} utterances, {speakers:,} speakers, {self.hours:.2f} h)"

    def column(self, name: str) -> list[Any]:
        """One column as Python values; null becomes None."""
        values: list[Any] = self.table[name].to_pylist()
        return values

    def array(self, name: str) -> npt.NDArray[np.float64]:
        """`offset` or `seconds` as float64 [rows]."""
        values: npt.NDArray[np.float64] = self.table[name].to_numpy()
        return values

    def take(self, indices: Sequence[int] | Rows) -> Manifest:
        """The rows at these indices, in the order of the indices."""
        return Manifest(self.table.take(pa.array(np.asarray(indices, dtype=np.int64))).combine_chunks())

    @property
    def hours(self) -> float:
        """Total length of the utterances in hours."""
        return float(self.array("seconds").sum()) / 3600

    @property
    def anonymous(self) -> bool:
        """Whether no speakers are known: each is named after an utterance (`assemble` in `fedray.data.corpora`)."""
        speakers, utterances = (self.table[name].combine_chunks() for name in ("speaker", "utterance"))
        return len(self) > 0 and bool(pc.all(pc.is_in(speakers, value_set=utterances)).as_py())

    def fingerprint(self, copied: bool = False) -> str:
        """Hash all rows, and the size and modification time of all files, to 32 hexadecimal digits.

        A file in fedray's cache has the same digits wherever the cache is. `copied`: without folders and modification
        times, so that a copy of all files elsewhere has the same digits.
        Raises FileNotFoundError for a missing file.
        """
        digest = hashlib.blake2b(digest_size=16)
        for field in SCHEMA:
            column = self.table[field.name]
            if field.name == "path":
                folders = f".*{os.sep}" if copied else re.escape(f"{cache_root().absolute()}{os.sep}")
                column = pc.replace_substring_regex(column, f"^{folders}", "")
            if pa.types.is_floating(field.type):
                digest.update(np.ascontiguousarray(column.to_numpy()).data)
                continue
            # The hash must not depend on how Arrow stores the rows: on the chunks, or on the bytes behind a null.
            digest.update(np.packbits(column.is_null().to_numpy()).data)
            digest.update(pc.binary_length(column).fill_null(0).to_numpy().data)
            for chunk in column.fill_null("").chunks:
                offsets = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
                if len(chunk) and offsets[-1] > offsets[0]:
                    digest.update(memoryview(chunk.buffers()[2])[offsets[0] : offsets[-1]])
        for path in self._files():
            status = os.stat(path)
            digest.update(b"%d %d\n" % (status.st_size, 0 if copied else status.st_mtime_ns))
        return digest.hexdigest()

    def check(self) -> None:
        """Raise ValueError if files are missing, utterance ids repeat, or offsets or lengths are impossible."""
        missing = [path for path in self._files() if not os.path.isfile(path)]
        if missing:
            some = ", ".join(missing[:5])
            raise ValueError(
                f"{len(missing)} audio files are missing, among them {some}: restore them or drop their rows"
            )
        counts = pc.value_counts(self.table["utterance"])
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        if len(repeated):
            examples = ", ".join(repeated[:5].to_pylist())
            raise ValueError(f"{len(repeated)} utterance ids repeat, among them {examples}: ids must be unique")
        offset, seconds = self.array("offset"), self.array("seconds")
        bad = np.flatnonzero(~(np.isfinite(offset) & (offset >= 0) & np.isfinite(seconds) & (seconds > 0)))
        if len(bad):
            row = self[bad[0]]
            raise ValueError(
                f"{len(bad)} utterances have impossible times, the first is {row.utterance}: offset {row.offset} s, "
                f"length {row.seconds} s. Offsets must be at least 0, lengths above 0"
            )

    def _files(self) -> list[str]:
        return list(dict.fromkeys(map(file_of, pc.unique(self.table["path"]).to_pylist())))


def place(source: str, lines: Sequence[int | str] | None, row: int) -> str:
    """The place of a row for error messages: `train.tsv:17`, or `train.tsv, row 16` if its line is unknown."""
    return f"{source}, row {row + 1}" if lines is None else f"{source}:{lines[row]}"


def _known(names: Iterable[str], source: str) -> None:
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            raise ValueError(
                f"{source}: a manifest has no column {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else f", only {', '.join(COLUMNS)}")
            )


def _array(values: Sequence[Any], field: pa.Field, source: str, lines: Sequence[int | str] | None) -> pa.Array:
    def convert(part: Sequence[Any]) -> pa.Array | pa.ChunkedArray:
        return pa.array(part, type=field.type)

    try:
        array = convert(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        for row, value in enumerate(values):
            try:
                convert([value])
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                where = place(source, lines, row)
                raise ValueError(f"{where}: {field.name} must be {_words(field)}, not {value!r}") from problem
        raise
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _words(field: pa.Field) -> str:
    return "a number of seconds" if pa.types.is_floating(field.type) else "text"


def _first(mask: pa.BooleanArray) -> int:
    return int(pc.index(mask, True).as_py())
