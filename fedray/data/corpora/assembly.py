"""Make a manifest from the columns of a corpus' lists, with the checks of ids, files and times that readers share."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.core.texts import is_lfs_stub, no_file, unusable
from fedray.data.corpora.problems import gathered, refuse
from fedray.data.corpora.skipping import SKIP, skips
from fedray.data.features.audio import UNMEASURED, AudioError, Shape, duration, shape
from fedray.data.features.packed import file_of
from fedray.data.manifest import Manifest, place


class Told(UserWarning):
    """What a reader has to tell about a corpus that it reads. `fedray data` shows it as a note."""


Column = Sequence[str | float]
Header = TypeVar("Header", float, Shape)
Value = TypeVar("Value")
MEASURED = 500  # files in a work item
MISSING = "missing"  # what `measure` says of a path without a file
LEAST_SECONDS = math.ulp(0.0)  # an utterance lasts longer than 0 s
MOST_SECONDS = 1e9  # thirty years
# What errors say about a missing column of speakers.
WITHOUT_SPEAKERS = (
    "With null, each recording counts as a speaker of its own: then set data.clients to {by: iid, count: N} (or to "
    "uneven or dirichlet), which deals the recordings to N clients"
)


def corpus_root(root: Path | None, holds: str) -> Path:
    """Make the root absolute. Raises ValueError if it is not set or not a folder; `holds` names its contents."""
    if root is None:
        raise ValueError(f"this corpus needs data.root: set it to the folder that holds {holds}")
    path = Path(os.path.abspath(root))
    if not path.is_dir():
        raise ValueError(f"data.root: the folder {path} does not exist: set data.root to the folder that holds {holds}")
    return path


def check_fetched(path: Path) -> None:
    """Raise ValueError if the file is a Git LFS stub."""
    if is_lfs_stub(path):
        raise ValueError(f"{path} is a Git LFS stub: fetch the file with `git lfs pull`")


def by_id(ids: Sequence[str], values: Sequence[Value]) -> dict[str, Value]:
    """Utterance -> its value in a table; of a repeated id the first, which is the row that `data.skip_broken` keeps."""
    return dict(zip(reversed(ids), reversed(values), strict=True))


def assemble(
    source: Path,
    lines: Sequence[int | str],
    columns: Mapping[str, Column | None],
    folder: Path,
    parallel: Parallel,
    listed: bool = True,
) -> Manifest:
    """Make a manifest from the columns of the file `source`, whose row i is on line `lines[i]`.

    Without `listed`, no file lists the audio: `source` is the folder that holds it, and `lines` are names of its files.

    Paths are relative to `folder`. `offset` and `seconds` are numbers or text; missing `seconds` are measured. Without
    `speaker`, each recording counts as a speaker, named after its first utterance. A division by speakers then keeps
    the pieces of a recording together, and `Manifest.anonymous` is true.
    Raises ValueError with the lines of the rows that repeat an id, lack a value, name audio that is missing or
    unreadable, or have an impossible time: all of them at once. With `data.skip_broken`, such rows are left out and
    told, but not those whose audio is missing.
    """
    given = {name: values for name, values in columns.items() if values is not None}
    if skips():
        lines, given = _usable(source, lines, given)
    if not given["utterance"]:
        raise ValueError(f"{source} lists no utterances: add some, or remove the file from data.options")
    found: list[str] = []
    for name in ("utterance", "path", "speaker", "text", "label", "translation"):
        with gathered(found):
            _check_texts(given.get(name, ()), name, source, lines)
    with gathered(found):
        _check_ids(given["utterance"], source, lines)
    paths = [os.path.normpath(os.path.join(folder, str(path))) for path in given["path"]]
    if "speaker" not in given:
        first: dict[str, str] = {}
        given["speaker"] = [
            first.setdefault(path, str(utterance)) for path, utterance in zip(paths, given["utterance"], strict=True)
        ]
    measured, problems = ({}, find_missing(paths, parallel)) if "seconds" in given else measure(paths, parallel)
    if skips():
        problems = {path: problem for path, problem in problems.items() if problem == MISSING}
    # A path that is empty, or holds a zero byte, is named above.
    if wrong := [row for row, path in enumerate(paths) if path in problems and given["path"][row] and "\0" not in path]:
        path = paths[wrong[0]]
        where = f"{place(str(source), lines, wrong[0])}: {path}" if listed else path
        remedy = "drop the row, or correct data.root (paths are relative to it)" if listed else "or remove it"
        alike = [row for row in wrong if problems[paths[row]] == problems[path]]
        more = _more(lines, alike, len(wrong) - len(alike))
        skip = "" if problems[path] == MISSING else f", or {SKIP}"
        found.append(f"{where}: {problems[path]}. Restore the file, {remedy}{skip}{more}")
    times: dict[str, list[float]] = {}
    for name, least in (("offset", 0.0), ("seconds", LEAST_SECONDS)):
        if name in given:
            with gathered(found):
                times[name] = _numbers(given[name], name, least, source, lines)
    refuse(found)
    offset = times.get("offset")
    if "seconds" in times:
        seconds = times["seconds"]
    else:
        starts = offset or [0.0] * len(paths)
        seconds = [
            measured[path] - start if path in measured else UNMEASURED
            for path, start in zip(paths, starts, strict=True)
        ]
        _numbers(seconds, "seconds", LEAST_SECONDS, source, lines)
    ready = given | {"path": paths, "seconds": seconds} | ({} if offset is None else {"offset": offset})
    return Manifest.from_columns(ready, str(source), lines)


def _usable(
    source: Path, lines: Sequence[int | str], columns: Mapping[str, Column]
) -> tuple[Sequence[int | str], dict[str, Column]]:
    """The lines and columns without rows that lack a value, hold an impossible one, or repeat an id. Tells which."""
    reasons: dict[int, str] = {}
    for name, values in columns.items():
        least = {"seconds": LEAST_SECONDS, "offset": 0.0}.get(name)
        for row, value in enumerate(values):
            if least is not None:
                if not least <= _number(value) < MOST_SECONDS:
                    reasons.setdefault(row, f"{name} is {value!r}")
            elif not value and name != "translation":
                reasons.setdefault(row, f"the {name} is empty")
            elif (problem := unusable(str(value))) is not None:
                reasons.setdefault(row, f"the {name} holds {problem}")
    seen: set[str] = set()
    for row, utterance in enumerate(map(str, columns["utterance"])):
        if row not in reasons and utterance in seen:
            reasons[row] = f"the id {utterance!r} is in an earlier row"
        seen.add(utterance)
    tell_skipped(source, lines, reasons)
    kept = [row for row in range(len(lines)) if row not in reasons]
    return [lines[row] for row in kept], {name: [values[row] for row in kept] for name, values in columns.items()}


def tell_skipped(source: Path, lines: Sequence[int | str] | Mapping[int, int], reasons: Mapping[int, str]) -> None:
    """Tell which rows `data.skip_broken` leaves out. `reasons`: row -> why; if there are none, nothing is told."""
    if reasons:
        some = "; ".join(f"{source}:{lines[row]}: {why}" for row, why in [*reasons.items()][:3])
        more = f"; and {len(reasons) - 3:,} more" if len(reasons) > 3 else ""
        warnings.warn(f"data.skip_broken leaves out {len(reasons):,} rows: {some}{more}", Told, stacklevel=3)


def measure(paths: Sequence[str], parallel: Parallel) -> tuple[dict[str, float], dict[str, str]]:
    """Measure files: path -> length in seconds, and path -> what is wrong with a file that cannot be used."""
    return _headers(_length, paths, parallel)


def shapes(paths: Sequence[str], parallel: Parallel) -> tuple[dict[str, Shape], dict[str, str]]:
    """Read headers: path -> contents, and path -> what is wrong with a file that cannot be read."""
    return _headers(shape, paths, parallel)


def find_missing(paths: Sequence[str], parallel: Parallel) -> dict[str, str]:
    """Find paths that are not files: path -> what is there instead ("missing", "a folder", ...)."""
    return {
        path: problem for found in parallel(_missing, _shards(paths), "Looking for audio") for path, problem in found
    }


def repeated_ids(splits: Mapping[str, Manifest]) -> list[str]:
    """The utterance ids that two rows have, in one split or in two."""
    counts = pc.value_counts(Manifest.concat(list(splits.values())).table["utterance"])
    found: list[str] = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    return found


def unique_ids(splits: Mapping[str, Manifest]) -> None:
    """Raise ValueError if two rows, in one split or in two, have the same utterance id."""
    if repeated := repeated_ids(splits):
        some, names = ", ".join(repeated[:5]), ", ".join(splits)
        raise ValueError(
            f"{len(repeated)} utterances are in more than one row of {names}, among them {some}: list each once"
        )


def _shards(paths: Sequence[str]) -> list[list[str]]:
    distinct = list(dict.fromkeys(paths))
    return [distinct[start : start + MEASURED] for start in range(0, len(distinct), MEASURED)]


def _headers(
    read: Callable[[str], Header], paths: Sequence[str], parallel: Parallel
) -> tuple[dict[str, Header], dict[str, str]]:
    found: dict[str, Header] = {}
    problems: dict[str, str] = {}
    for results in parallel(partial(_tried, read), _shards(paths), "Measuring audio"):
        for path, result in results:
            if isinstance(result, str):
                problems[path] = result
            else:
                found[path] = result
    return found, problems


def length_or_reason(path: str) -> float | str:
    """The length of a file in seconds, or what is wrong with it: for `settled`."""
    try:
        return _length(path)
    except AudioError as problem:
        return problem.reason


def _tried(read: Callable[[str], Header], paths: list[str]) -> list[tuple[str, Header | str]]:
    results: list[tuple[str, Header | str]] = []
    for path in paths:
        try:
            results.append((path, read(path)))
        except AudioError as problem:  # returned as text: the caller knows the line that names the file
            results.append((path, problem.reason))
    return results


def _length(path: str) -> float:
    if seconds := duration(path):
        return seconds
    raise AudioError(path, "holds no samples")


def _missing(paths: list[str]) -> list[tuple[str, str]]:
    found = [(path, no_file(file_of(path))) for path in paths]
    return [(path, problem) for path, problem in found if problem is not None]


def _more(lines: Sequence[int | str], rows: Sequence[int], others: int = 0) -> str:
    """The lines of the rows after the first that share a problem: ` (2 more: 19, 40; 3 with other problems)`."""
    some = ", ".join(str(lines[row]) for row in rows[1:6]) + (", ..." if len(rows) > 6 else "")
    parts = [f"{len(rows) - 1:,} more: {some}"] * (len(rows) > 1) + [f"{others:,} with other problems"] * (others > 0)
    return f" ({'; '.join(parts)})" if parts else ""


def _check_ids(values: Column, source: Path, lines: Sequence[int | str]) -> None:
    """Raise ValueError if an id is repeated."""
    seen: dict[str, int] = {}
    wrong = [row for row, value in enumerate(map(str, values)) if value and seen.setdefault(value, row) != row]
    if wrong:
        where, before = (place(str(source), lines, each) for each in (wrong[0], seen[str(values[wrong[0]])]))
        more = _more(lines, wrong)
        raise ValueError(
            f"{where}: the id {values[wrong[0]]!r} is already in {before}: give each utterance one row{more}"
        )


def _check_texts(values: Column, name: str, source: Path, lines: Sequence[int | str]) -> None:
    """Raise ValueError if a value is empty, or holds what no file or path can hold. All at once is fast."""
    if name != "translation" and (wrong := [row for row, value in enumerate(values) if not value]):
        where = place(str(source), lines, wrong[0])
        raise ValueError(f"{where}: the {name} is empty: complete the row or drop it{_more(lines, wrong)}")
    if unusable("".join(map(str, values))) is not None:
        row, problem = next((row, found) for row, value in enumerate(values) if (found := unusable(str(value))))
        raise ValueError(
            f"{place(str(source), lines, row)}: the {name} holds {problem}: {str(values[row])!r}: correct the row"
        )


def scalar(value: object, where: str, key: str) -> str:
    """Return a text or number of a JSON file as text. Raises ValueError for other values."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{where}: {key} must be text or a number, not {value!r}: correct it")
    return str(value)


def _numbers(values: Column, name: str, least: float, source: Path, lines: Sequence[int | str]) -> list[float]:
    numbers = list(map(_number, values))
    if wrong := [row for row, number in enumerate(numbers) if not least <= number < MOST_SECONDS]:
        value, more = values[wrong[0]], _more(lines, wrong)
        rule = "below 1e9" if numbers[wrong[0]] >= MOST_SECONDS else "that is 0 or more" if least == 0 else "above 0"
        where = place(str(source), lines, wrong[0])
        raise ValueError(f"{where}: {name} must be a number {rule}, not {value!r}: correct the row or drop it{more}")
    return numbers


def _number(value: str | float) -> float:
    """The number that a cell holds; NaN if it holds none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # the last: an integer of hundreds of digits
        return math.nan
