"""Functions that readers of official layouts share: home folders, settings, files of lines, recordings left out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fedray.data.corpora.assembly import Told, check_fetched, corpus_root
from fedray.data.corpora.table import Table

FETCH_LIST = "fetch FedSTAR's list (data_splits/ of Flower's baseline fedstar)"


class LeftOut(Told):
    """Recordings that a reader leaves out, counted and named."""


def leave_out(where: Path, total: int, reasons: Mapping[str, Collection[str]]) -> None:
    """Warn with `LeftOut` that some of `total` recordings are left out; `reasons` maps a reason to their names.

    There is no warning if `reasons` names no recordings.
    """
    told = []
    for reason, names in reasons.items():
        if names:
            more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            told.append(f"{len(names):,} {reason} ({', '.join(sorted(names)[:3])}{more})")
    if told:
        count = sum(len(names) for names in reasons.values())
        text = f"{where}: {count:,} of {total:,} recordings are left out: {'; '.join(told)}"
        warnings.warn(text, LeftOut, stacklevel=3)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the texts of `Told` warnings within the context instead of showing them. Other warnings are shown."""
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", Told)
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, Told):
                told.append(str(message))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show  # catch_warnings restores the usual function
        yield told


def find_home(root: Path | None, holds: str, marker: str, *inside: str) -> Path:
    """Find the folder that contains `marker`: the root, or one of its folders `inside`.

    Raises ValueError if there is none; `holds` says what the root must contain.
    """
    root = corpus_root(root, holds)
    for folder in (root, *(root / name for name in inside)):
        if (folder / marker).exists():
            return folder
    looked = f" (also looked in {', '.join(inside)})" if inside else ""
    raise ValueError(f"{root} holds no {marker}{looked}: set data.root to the folder that holds {holds}")


def check_choice(option: str, value: object, valid: Sequence[object]) -> None:
    """Raise ValueError, with the setting and its valid values, for any other value."""
    if value not in valid:
        raise ValueError(f"data.options.{option} must be one of {', '.join(map(str, valid))}, not {value}")


def required(table: Table, *names: str) -> list[list[str]]:
    """Columns of an official table. Raises ValueError if one is missing."""
    for name in names:
        if name not in table.columns:
            known = ", ".join(table.columns)
            raise ValueError(f"{table.path} has no column {name!r}, only {known}: restore the corpus' file")
    return [table.columns[name] for name in names]


def lines_of(path: Path, remedy: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line that is not blank.

    Raises ValueError for a file that is missing, a Git LFS stub or not UTF-8 text; `remedy` says what to do about it.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing: {remedy}")
    check_fetched(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path} is not UTF-8 text ({problem}): {remedy}") from problem
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def split_lines(folder: Path) -> Iterator[tuple[str, Path, int, str]]:
    """Yield ("train" or "test", file, number, text) of each line in FedSTAR's train_split.txt and test_split.txt.

    Flower's baseline has these lists in data_splits/<corpus>/. Raises ValueError for a list that is missing, empty or
    not UTF-8 text.
    """
    for split in ("train", "test"):
        path, empty = folder / f"{split}_split.txt", True
        for line, text in lines_of(path, f"{FETCH_LIST}, or correct data.options"):
            yield split, path, line, text
            empty = False
        if empty:
            raise ValueError(f"{path} lists nothing: fetch FedSTAR's list again")


def names_in(folder: str | Path) -> list[str]:
    """The names in a folder, sorted, without hidden ones."""
    return sorted(name for name in os.listdir(folder) if not is_hidden(name))


def is_hidden(name: str) -> bool:
    """Whether a file or folder is hidden: .cache, ._clip.wav, and the folder of such names in archives from a Mac."""
    return name.startswith(".") or name == "__MACOSX"


def shown_folders(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder from `root` down, with the names of its files, sorted, without hidden folders and files.

    Links to folders are followed, but not to a folder that they lie in. ValueError: a folder cannot be read.
    """

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise ValueError(f"{error.filename} cannot be read ({error.strerror}): permit it, or remove it") from error

    for folder, inside, names in os.walk(root, onerror=unreadable, followlinks=True):
        shown = (name for name in inside if not is_hidden(name))
        inside[:] = sorted(name for name in shown if not _is_above(os.path.join(folder, name), folder))
        yield folder, sorted(name for name in names if not is_hidden(name))


def _is_above(path: str, folder: str) -> bool:
    """Whether a path is a link to the folder that it lies in, or to one above it."""
    return os.path.islink(path) and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path))
