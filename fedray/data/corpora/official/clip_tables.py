"""Common Voice's folders, tables and clips, for the readers of Common Voice and CoVoST 2."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import check_fetched, measure
from fedray.data.corpora.official.layout import names_in
from fedray.data.manifest import Manifest
from fedray.data.text.languages import is_code
from fedray.data.text.normalisation import Normaliser

SPEAKER = 16  # of the 128 hexadecimal digits of client_id
NO_AUDIO = "without audio in clips/"

Reasons = dict[str, Collection[str]]


def find_language(root: Path, language: str | None, option: str = "language") -> Path:
    """The folder of a language, which contains clips/.

    Raises ValueError with the languages to choose from; `option` is the setting that names the language.
    """
    releases = [root, *sorted(folder for folder in root.glob("cv-corpus-*") if folder.is_dir())]
    inside = [
        folder
        for release in releases
        for folder in (release, *sorted(release.iterdir()))
        if (folder / "clips").is_dir()
    ]
    known = {folder.name: folder for folder in inside}
    if len(known) < len(set(inside)):
        names = ", ".join(release.name for release in releases[1:])
        raise ValueError(f"{root} holds several releases of a language: set data.root to one of {names}")
    if language in known:
        return known[language]
    if language is None and len(known) == 1:
        return next(iter(known.values()))
    if not known:
        raise ValueError(f"{root} holds no folder with clips/: unpack the archive of a language there")
    wanted = "several languages" if language is None else f"no language {language!r}"
    raise ValueError(f"{root} holds {wanted} (found: {', '.join(sorted(known))}): set data.options.{option}")


def header(path: Path) -> list[str]:
    """The names of a table's columns."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return next(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), [])


def read_table(
    path: Path,
    columns: Collection[str],
    types: Mapping[str, pa.DataType] | None = None,
    invalid: pacsv.InvalidRowHandler | None = None,
    escapes: bool = False,
) -> pa.Table:
    r"""Read these columns of a table without quoting, as text unless `types` says otherwise.

    `invalid` decides on a line with missing or extra fields; None: it is an error. With `escapes`, a character after
    `\` stands for itself.
    Raises ValueError for a Git LFS stub, a missing column, and lines that Arrow cannot read.
    """
    check_fetched(path)
    there = header(path)
    for name in columns:
        if name not in there:
            raise ValueError(f"{path} has no column {name!r}, only {', '.join(there)}: restore the corpus' file")
    try:
        return pacsv.read_csv(
            path,
            pacsv.ReadOptions(use_threads=False),  # rows have line numbers only without threads
            pacsv.ParseOptions(
                delimiter="\t",
                quote_char=False,
                double_quote=False,
                escape_char="\\" if escapes else False,
                invalid_row_handler=invalid,
            ),
            pacsv.ConvertOptions(
                include_columns=list(columns),
                column_types={name: pa.large_string() for name in columns} | dict(types or {}),
            ),
        )
    except pa.ArrowInvalid as problem:
        raise ValueError(f"{path}: {problem}: restore the corpus' file") from problem


def read_rows(path: Path, columns: Collection[str], accents: bool, escapes: bool = False) -> tuple[pa.Table, Reasons]:
    """Read these columns of a table, with `accents` also "accent", and its lines with missing or extra fields.

    Raises ValueError as `read_table` does.
    """
    wrong: list[str] = []

    def told(row: pacsv.InvalidRow) -> str:
        wrong.append(f"line {row.number}")
        return "skip"

    column = "accents" if "accents" in header(path) else "accent"  # "accent" before version 7
    table = read_table(path, (*columns, column) if accents else columns, invalid=told, escapes=escapes)
    if accents:
        table = table.rename_columns({column: "accent"})
    return table, {f"with fields missing in {path.name}": wrong}


def with_suffix(table: pa.Table) -> pa.Table:
    """The table with file names as `path`: some versions of Common Voice leave out .mp3."""
    names = pc.replace_substring_regex(table["path"], r"^([^.]+)$", r"\1.mp3")
    return table.set_column(table.column_names.index("path"), "path", names)


def spoken(home: Path, language: str | None) -> str:
    """The code of the language: that of data.options, of the clips' names, or of the folder; "" if none is one."""
    named = re.match(r"common_voice_([^_]+)_", next(iter(names_in(home / "clips")), ""))
    codes = (language, named[1] if named else None, home.name)
    return next((code for code in codes if code is not None and is_code(code)), "")


def cleaned(sentences: pa.ChunkedArray, lower_case: bool, punctuation: bool, language: str = "") -> pa.ChunkedArray:
    """Sentences as `Normaliser` leaves them. `language`: a code such as uz or zh-CN; "": not known."""
    return Normaliser(language, lower_case, punctuation).column(sentences)


def begins(values: pa.ChunkedArray, beginnings: Collection[str]) -> pa.ChunkedArray:
    """For each value, the first of `beginnings` that it starts with, ignoring case; null for none."""
    lowered = pc.utf8_lower(values)
    cases = [pc.starts_with(lowered, beginning.lower()) for beginning in beginnings]
    labels = (pa.scalar(beginning, pa.large_string()) for beginning in beginnings)
    return pc.case_when(pc.make_struct(*cases, field_names=list(beginnings)), *labels)


def without(table: pa.Table, mask: pa.ChunkedArray, reason: str, reasons: Reasons) -> pa.Table:
    """The table without the rows of a mask. Adds their clips (or sentences, for rows without a clip) to `reasons`."""
    mask = pc.fill_null(mask, False)
    if not pc.any(mask).as_py():
        return table
    bad = table.filter(mask)
    names = zip(bad["path"].to_pylist(), bad["sentence"].to_pylist(), strict=True)
    reasons[reason] = [path or sentence for path, sentence in names]
    return table.filter(pc.invert(mask))


def with_accents(table: pa.Table, accents: Collection[str], reasons: Reasons) -> pa.Table:
    """Keep the rows whose accent begins with one of `accents`; that beginning becomes the label."""
    table = table.append_column("label", begins(table["accent"], accents))
    return without(table, pc.is_null(table["label"]), f"of no accent that begins with {', '.join(accents)}", reasons)


def with_seconds(
    table: pa.Table, home: Path, least: float, most: float | None, parallel: Parallel, reasons: Reasons
) -> pa.Table:
    """Keep the rows whose clips can be read and last from `least` to `most` seconds; add their lengths."""
    seconds, unreadable = _seconds(home, table["path"], parallel)
    table = table.append_column("seconds", pa.array(seconds))
    for why in dict.fromkeys(unreadable.values()):
        bad = pa.array([name for name, reason in unreadable.items() if reason == why], pa.large_string())
        table = without(table, pc.is_in(table["path"], value_set=bad), why, reasons)
    table = without(table, pc.less(table["seconds"], least), f"shorter than {least} s", reasons)
    if most is not None:
        table = without(table, pc.greater(table["seconds"], most), f"longer than {most} s", reasons)
    return table


def manifest(table: pa.Table, home: Path, path: Path) -> Manifest:
    """The manifest of a table with client_id, path, seconds, text, and possibly label and translation."""
    speakers = pc.utf8_slice_codeunits(table["client_id"], 0, SPEAKER)
    if pc.count_distinct(speakers).as_py() < pc.count_distinct(table["client_id"]).as_py():
        raise ValueError(f"{path}: two client_ids begin with the same {SPEAKER} digits: restore the corpus' file")
    folder, slash = (pa.scalar(text, pa.large_string()) for text in (str(home / "clips"), "/"))
    named = {
        "utterance": pc.replace_substring_regex(table["path"], r"\.[^.]*$", ""),
        "path": pc.binary_join_element_wise(folder, table["path"], slash),
        "speaker": speakers,
    }
    named |= {name: table[name] for name in ("seconds", "text", "label", "translation") if name in table.column_names}
    return Manifest.from_columns({name: values.combine_chunks() for name, values in named.items()}, str(path))


def _durations(path: Path) -> pa.Table | None:
    """The columns clip and duration[ms] of clip_durations.tsv, or None without the file."""
    return read_table(path, ("clip", "duration[ms]"), {"duration[ms]": pa.float64()}) if path.is_file() else None


def _seconds(home: Path, names: pa.ChunkedArray, parallel: Parallel) -> tuple[np.ndarray, dict[str, str]]:
    """Seconds [clips], NaN for unreadable clips; and unreadable clip -> reason."""
    seconds = np.full(len(names), np.nan)
    durations = _durations(home / "clip_durations.tsv")
    if durations is not None:
        found = pc.index_in(names, value_set=durations["clip"].combine_chunks())
        milliseconds = pc.take(durations["duration[ms]"], found)
        seconds = pc.divide(milliseconds, 1000.0).to_numpy(zero_copy_only=False).astype(np.float64)
    unknown = np.flatnonzero(~(seconds > 0))
    asked = pc.take(names, pa.array(unknown)).to_pylist()
    lengths, problems = measure([str(home / "clips" / name) for name in asked], parallel)
    unreadable: dict[str, str] = {}
    for row, name in zip(unknown.tolist(), asked, strict=True):
        path = str(home / "clips" / name)
        if path in problems:
            unreadable[name] = problems[path]
        else:
            seconds[row] = lengths[path]
    return seconds, unreadable
