"""The manifest: one row an utterance, held as an Arrow table, so that millions of rows load, pickle and hash in seconds."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# 64-bit offsets: the paths of ten million utterances pass the 2 GB that an Arrow `string` column can hold.
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
    """One row. `path` is absolute; `offset` and `seconds` say which part of the file it is, in seconds."""

    utterance: str
    path: str
    offset: float
    seconds: float
    speaker: str
    text: str | None = None
    label: str | None = None
    translation: str | None = None


class Manifest:
    """An immutable list of utterances. Columns are Arrow's, so a pickle is a copy of a few buffers."""

    def __init__(self, table: pa.Table) -> None:
        assert table.schema.equals(SCHEMA), f"not a manifest: {table.schema}"
        self.table = table

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence], source: str, lines: Sequence[int | str] | None = None) -> Manifest:
        """A manifest from whole columns (lists or arrays of equal length); `offset` defaults to 0, optional ones to null.

        `source` is the file that the rows come from and `lines[i]` where row i stands in it (a line number, or a key): errors name both.
        """
        _known(columns, source)
        missing = [name for name in ("utterance", "path", "seconds", "speaker") if name not in columns]
        if missing:
            raise ValueError(f"{source}: the rows have no {', '.join(missing)}")
        size = len(columns["utterance"])
        arrays = []
        for field in SCHEMA:
            values = columns.get(field.name)
            if values is None:
                values = np.zeros(size) if field.name == "offset" else pa.nulls(size, field.type)
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
    def from_rows(cls, rows: Iterable[Mapping], source: str, lines: Sequence[int | str] | None = None) -> Manifest:
        """A manifest from mappings of column names to values; see `from_columns`, which is faster."""
        columns: dict[str, list] = {name: [] for name in COLUMNS}
        for row in rows:
            _known(row, source)
            for name, values in columns.items():
                values.append(row.get(name, 0.0 if name == "offset" else None))
        return cls.from_columns(columns, source, lines)

    @staticmethod
    def concat(manifests: Sequence[Manifest]) -> Manifest:
        """All rows, in order. No manifests give an empty one."""
        tables = [manifest.table for manifest in manifests]
        return Manifest(pa.concat_tables(tables).combine_chunks() if tables else SCHEMA.empty_table())

    def __len__(self) -> int:
        return self.table.num_rows

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

    def column(self, name: str) -> list:
        """One column as Python values; null becomes None."""
        return self.table[name].to_pylist()

    def array(self, name: str) -> np.ndarray:
        """`offset` or `seconds` as float64 [len(self)]."""
        return self.table[name].to_numpy()

    def take(self, indices: Sequence[int] | np.ndarray) -> Manifest:
        """The rows at these indices, in their order."""
        return Manifest(self.table.take(pa.array(np.asarray(indices, dtype=np.int64))).combine_chunks())

    @property
    def hours(self) -> float:
        return float(self.array("seconds").sum()) / 3600

    def fingerprint(self) -> str:
        """32 hexadecimal digits over every row, and over size and time of change of every file: equal only if nothing changed."""
        digest = hashlib.blake2b(digest_size=16)
        for field in SCHEMA:
            column = self.table[field.name]
            if pa.types.is_floating(field.type):
                digest.update(np.ascontiguousarray(column.to_numpy()))
                continue
            # Hashed in one canonical form: the same rows may lie in other chunks, or with other bytes behind a null.
            digest.update(np.packbits(column.is_null().to_numpy()))
            digest.update(pc.binary_length(column).fill_null(0).to_numpy())
            for chunk in column.fill_null("").chunks:
                offsets = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
                if len(chunk) and offsets[-1] > offsets[0]:
                    digest.update(memoryview(chunk.buffers()[2])[offsets[0] : offsets[-1]])
        for path in self._files():
            status = os.stat(path)
            digest.update(b"%d %d\n" % (status.st_size, status.st_mtime_ns))
        return digest.hexdigest()

    def check(self) -> None:
        """Raises ValueError when files are missing, utterance ids repeat, or times cannot be."""
        missing = [path for path in self._files() if not os.path.isfile(path)]
        if missing:
            raise ValueError(
                f"{len(missing)} audio files are missing, among them {', '.join(missing[:5])}: restore them or drop their rows"
            )
        counts = pc.value_counts(self.table["utterance"])
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        if len(repeated):
            raise ValueError(f"{len(repeated)} utterance ids repeat, among them {', '.join(repeated[:5].to_pylist())}: ids must be unique")
        offset, seconds = self.array("offset"), self.array("seconds")
        bad = np.flatnonzero(~(np.isfinite(offset) & (offset >= 0) & np.isfinite(seconds) & (seconds > 0)))
        if len(bad):
            row = self[bad[0]]
            raise ValueError(
                f"{len(bad)} utterances have impossible times, first {row.utterance}: offset {row.offset} s, length {row.seconds} s; "
                "an offset is at least 0 and a length above 0"
            )

    def _files(self) -> list[str]:
        return pc.unique(self.table["path"]).to_pylist()


def place(source: str, lines: Sequence[int | str] | None, row: int) -> str:
    """Where a row stands, for error messages: `train.tsv:17`, or `train.tsv, row 16` when its line is not known."""
    return f"{source}, row {row + 1}" if lines is None else f"{source}:{lines[row]}"


def _known(names: Iterable[str], source: str) -> None:
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            raise ValueError(
                f"{source}: a manifest has no column {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else f", only {', '.join(COLUMNS)}")
            )


def _array(values: Sequence, field: pa.Field, source: str, lines: Sequence[int | str] | None) -> pa.Array:
    convert: Callable[[Sequence], pa.Array | pa.ChunkedArray] = lambda part: pa.array(part, type=field.type)  # noqa: E731
    try:
        array = convert(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        for row, value in enumerate(values):
            try:
                convert([value])
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                raise ValueError(f"{place(source, lines, row)}: {field.name} must be {_words(field)}, not {value!r}") from problem
        raise
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _words(field: pa.Field) -> str:
    return "a number of seconds" if pa.types.is_floating(field.type) else "text"


def _first(mask: pa.BooleanArray) -> int:
    return pc.index(mask, True).as_py()
