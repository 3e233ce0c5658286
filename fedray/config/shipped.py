"""The configurations and sweeps that come with fedray, found by name.

A wheel holds them in the package; in a clone they are next to the package. A name is the path in `configs/` or
`sweeps/` without its ending: `fednst/embedded`, `fednst_lambda`.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ENDINGS = {"configs": ".yaml", "sweeps": ".py"}


def folder(kind: str) -> Path:
    """The folder of the shipped `configs` or `sweeps`."""
    inside = PACKAGE / "shipped" / kind
    return inside if inside.is_dir() else PACKAGE.parent / kind


def files(kind: str) -> dict[str, Path]:
    """Name -> file of all shipped `configs` or `sweeps`, sorted by folder."""
    home = folder(kind)
    found = {path.relative_to(home).with_suffix("").as_posix(): path for path in home.rglob(f"*{ENDINGS[kind]}")}
    return dict(sorted(found.items(), key=lambda item: (item[0].split("/")[0], item[0].count("/"), item[0])))


def find(kind: str, name: str | os.PathLike[str]) -> Path | None:
    """The shipped file of a name, or None. `configs/fednst/embedded.yaml`, its path in a clone, is a name too."""
    short = Path(name).as_posix().removeprefix(f"{kind}/").removesuffix(ENDINGS[kind])
    return files(kind).get(short)


def locate(kind: str, given: str | os.PathLike[str]) -> Path:
    """The file at a path, or else the shipped file of that name. ValueError: there is neither."""
    path = Path(given).expanduser()
    found = path if path.is_file() else find(kind, given)
    if found is None:
        raise ValueError(unknown(kind, given))
    return found


def unknown(kind: str, given: str | os.PathLike[str]) -> str:
    """The message for a name that no file and nothing shipped has, with the nearest names."""
    if not os.fspath(given):
        return f"the name is empty: `fedray {kind}` lists all names"
    short = Path(given).as_posix().removeprefix(f"{kind}/").removesuffix(ENDINGS[kind])
    names = list(files(kind))
    nearest = difflib.get_close_matches(short, names, n=3, cutoff=0.5)
    nearest += [name for name in names if short in name.split("/") and name not in nearest][: 3 - len(nearest)]
    hint = f"the nearest names are {', '.join(nearest)}; " if nearest else ""
    if Path(given).parts[:1] == ("docs",):
        hint = "the tutorials' files are in docs/ of a clone of fedray: work in its folder; "
    what = {"configs": "configuration", "sweeps": "sweep"}[kind]
    there = f"{given} is a folder" if Path(given).is_dir() else f"there is no file {given}"
    return f"{there}, and no {what} has this name: {hint}`fedray {kind}` lists all names"


def summary(path: Path) -> str:
    """What a configuration or a sweep is for: the first sentence of its first comment, or of its docstring."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        comment = ast.get_docstring(ast.parse(text)) or ""
    else:
        above = re.match(r"(?:#.*\n)*", text)
        comment = " ".join(line.removeprefix("#").strip() for line in (above[0] if above else "").splitlines())
    first = re.split(r"(?<=\.)\s+(?=[A-Z`])|\n\n", comment, maxsplit=1)[0]
    return " ".join(first.split()).removesuffix(".")
