"""What users may rely on within 1.x: names in Python, keys of configurations, options of commands, with signatures.

`python -m tests.public_api` writes `public_api.txt`, at a release.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fedray
from docs.hooks import settings
from fedray.cli import arguments
from fedray.data.corpora import CORPORA
from fedray.experiment.config import Config
from fedray.experiment.pretraining import PretrainingConfig

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_suffix(".txt")
# The documentation shows these without importing them: base classes, and what their methods take and give.
SHOWN = (
    *(f"fedray.algorithms.base.{name}" for name in ("MixedSGD", "TaskAlgorithm")),
    *(f"fedray.core.types.{name}" for name in ("Broadcast", "Change", "Client", "Evaluation", "Received")),
    *(f"fedray.core.types.{name}" for name in ("ServerState", "Update")),
    *(f"fedray.training.local.{name}" for name in ("LocalModel", "Teacher")),
    "fedray.data.corpora.CORPORA",
    "fedray.models.MODELS",
)


def listed() -> dict[str, str]:
    """Name -> signature, of all that is public, with all methods."""
    return dict(sorted([*_names(), *_keys(), *_options()]))


def recorded() -> tuple[str, dict[str, str]]:
    """The version of the file, and name -> signature as they were in it."""
    version, *lines = FILE.read_text(encoding="utf-8").splitlines()
    return version, dict(line.partition(" = ")[::2] for line in lines)


def imported() -> set[str]:
    """The dotted names that code in the documentation imports from fedray."""
    found = {f"fedray.{name}" for name in fedray.__all__}
    for text in _code():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedray":
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _pages() -> list[str]:
    return [page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]]


def _code() -> Iterator[str]:
    for page in _pages():
        yield from re.findall(r"^```python[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for notebook in sorted((ROOT / "docs").rglob("*.ipynb")):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                yield "".join(line for line in cell["source"] if not line.startswith(("%", "!")))


def _names() -> Iterator[tuple[str, str]]:
    for name in sorted({*imported(), *SHOWN}):
        yield from _described(name, pkgutil.resolve_name(name))


def _described(name: str, found: Any) -> Iterator[tuple[str, str]]:
    if inspect.ismodule(found):
        for inner in found.__all__ if found.__name__.startswith("fedray") else ():
            yield from _described(f"{name}.{inner}", getattr(found, inner))
    elif isinstance(found, dict):
        yield name, ", ".join(kind for kind, value in found.items() if _ours(value))
    elif inspect.isclass(found):
        yield name, _signature(found)
        for base in reversed(found.__mro__):
            for method in vars(base) if _ours(base) else ():
                if not method.startswith("_"):
                    yield from _member(f"{name}.{method}", inspect.getattr_static(found, method))
    else:
        yield name, _signature(found) if inspect.isfunction(found) else str(found)


def _member(name: str, value: object) -> Iterator[tuple[str, str]]:
    function = getattr(value, "__func__", value)
    if inspect.isfunction(function):
        yield name, _signature(function)
    elif isinstance(value, property):
        yield name, "property"


@functools.cache
def _words() -> frozenset[str]:
    """The words of all code in the documentation."""
    inline = [text for page in _pages() for text in re.findall(r"`([^`]+)`", page)]
    return frozenset(re.findall(r"\w+", "\n".join([*inline, *_code()])))


def _signature(found: Callable[..., object]) -> str:
    """The parameters and their defaults, without types."""
    plain = inspect.Signature.empty
    shown = inspect.signature(found)
    text = str(shown.replace(parameters=[one.replace(annotation=plain) for one in shown.parameters.values()]))
    return re.sub(r"<[^>]*>", "...", text.partition(" -> ")[0])


def _ours(found: object) -> bool:
    """Whether it is fedray's: tests and tutorials register kinds of their own."""
    return str(getattr(found, "__module__", "")).partition(".")[0] == "fedray"


def _keys() -> Iterator[tuple[str, str]]:
    """The keys of the sections, by their class."""
    for cls in filter(_ours, settings.reachable(Config, CORPORA) | settings.reachable(PretrainingConfig, {})):
        for key in settings.keys(cls):
            kinds = [kind for kind, section in (key.kinds or {}).items() if _ours(section)]
            default = key.default.replace("`", "").replace("\t", "tab")
            yield f"{cls.__name__}.{key.name}", ", ".join(filter(None, [key.type, default, " | ".join(kinds)]))


def _options() -> Iterator[tuple[str, str]]:
    (commands,) = (one for one in arguments.command_line()._actions if isinstance(one, argparse._SubParsersAction))
    for name, parser in commands.choices.items():
        taken = [one for one in parser._actions if not isinstance(one, argparse._HelpAction)]
        yield f"fedray {name}", " ".join(one.option_strings[-1] if one.option_strings else one.dest for one in taken)


def promised(names: dict[str, str]) -> dict[str, str]:
    """Without the methods that the documentation does not show: these may change."""
    inner = {name for name in names if name.rpartition(".")[0] in names}
    return {name: text for name, text in names.items() if name not in inner or name.rpartition(".")[2] in _words()}


if __name__ == "__main__":
    lines = [fedray.__version__, *(f"{name} = {text}" for name, text in promised(listed()).items())]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
