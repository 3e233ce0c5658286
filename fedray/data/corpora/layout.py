"""What the readers of official layouts share: where a corpus begins, settings out of a list, files of lines, and what was left out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedray.data.audio import is_lfs_stub
from fedray.data.corpora.tsv import Table, corpus_root


class LeftOut(UserWarning):
    """Recordings that a reader does not hand on, counted and named. `fedray data` lists it among what is to be known."""


def leave_out(where: Path, total: int, reasons: Mapping[str, Collection[str]]) -> None:
    """Warns with `LeftOut` of recordings of which some are left out: `reasons` says why, in words, and names them; silent for none."""
    told = []
    for reason, names in reasons.items():
        if names:
            more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            told.append(f"{len(names):,} {reason} ({', '.join(sorted(names)[:3])}{more})")
    if told:
        count = sum(len(names) for names in reasons.values())
        warnings.warn(f"{where}: {count:,} of {total:,} recordings are left out: {'; '.join(told)}", LeftOut, stacklevel=3)


@contextmanager
def collected() -> Iterator[list[str]]:
    """What readers leave out, in words, within this context: nobody is warned of it. Other warnings take their usual way."""
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", LeftOut)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, LeftOut):
                told.append(str(message))
            else:
                usual(message, category, *where)

        warnings.showwarning = show  # put back by the context
        yield told


def find_home(root: Path | None, holds: str, marker: str, *inside: str) -> Path:
    """The folder that has `marker` in it: the root, or one of those `inside` it. Raises ValueError that says what the root must hold."""
    root = corpus_root(root, holds)
    for folder in (root, *(root / name for name in inside)):
        if (folder / marker).exists():
            return folder
    looked = f" (nor is there one in {', '.join(inside)})" if inside else ""
    raise ValueError(f"{root} holds no {marker}{looked}: data.root must be the folder that holds {holds}")


def check_choice(option: str, value: object, valid: Sequence[object]) -> None:
    """Raises ValueError that names the setting and its valid values."""
    if value not in valid:
        raise ValueError(f"data.options.{option} must be one of {', '.join(map(str, valid))}, not {value}")


def required(table: Table, *names: str) -> list[list[str]]:
    """Columns of an official table. Raises ValueError for one that it does not have."""
    for name in names:
        if name not in table.columns:
            raise ValueError(f"{table.path} has no column {name!r}, only {', '.join(table.columns)}: restore the corpus' own file")
    return [table.columns[name] for name in names]


def lines_of(path: Path, remedy: str) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines that are not blank. Raises ValueError for a file that is missing, a Git LFS stub or no text."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: {remedy}")
    if is_lfs_stub(path):
        raise ValueError(f"{path}: is a Git LFS stub, not the file: fetch it with `git lfs pull`")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path}: is not text ({problem}): {remedy}") from problem
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def split_lines(folder: Path) -> Iterator[tuple[str, Path, int, str]]:
    """(train | test, file, number, text) of the lines of FedSTAR's lists, train_split.txt and test_split.txt.

    They come with Flower's baseline, in data_splits/<corpus>/. Raises ValueError for a list that is missing, empty or no text.
    """
    for split in ("train", "test"):
        path, empty = folder / f"{split}_split.txt", True
        for line, text in lines_of(path, "fetch FedSTAR's list (data_splits/ of Flower's baseline fedstar), or correct data.options"):
            yield split, path, line, text
            empty = False
        if empty:
            raise ValueError(f"{path} lists nothing: fetch FedSTAR's list again")


def names_in(folder: str | Path) -> list[str]:
    """What a folder holds, sorted, without the dot-files that file managers leave."""
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))
