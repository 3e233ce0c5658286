"""The pages of the API reference: one for each public module. mkdocstrings fills them from the docstrings."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("experiment", "report", "sweep", "core", "algorithms", "data", "models", "training")
FRONT = ("fedray.run", "fedray.resume", "fedray.Result")  # what a user calls first; imported when first asked for


@functools.cache
def modules() -> dict[str, griffe.Module]:
    """Dotted name -> module, of all modules that are public: no part of the name begins with an underscore."""
    fedray = griffe.load("fedray", search_paths=[str(ROOT)])
    return {module.path: module for package in PACKAGES for module in _below(fedray[package])}


def _below(module: Any) -> Iterator[griffe.Module]:
    yield module
    for name, inner in sorted(module.modules.items()):
        if not inner.is_alias and not name.startswith("_"):
            yield from _below(inner)


def undocumented() -> list[str]:
    """The public modules, classes, functions and methods without a docstring.

    A method that overrides one with a docstring needs none.
    """
    found = []
    for module in modules().values():
        members = [member for name, member in module.members.items() if not name.startswith("_")]
        own = [member for member in members if not member.is_alias and member.kind.value in ("class", "function")]
        found += [item.path for item in (module, *own) if item.docstring is None]
        for cls in own:
            found += [method.path for method in _methods(cls) if not _documented(cls, method)]
    return found


def _methods(cls: Any) -> list[Any]:
    return [
        member
        for name, member in (cls.members.items() if cls.is_class else ())
        if not name.startswith("_") and not member.is_alias and member.is_function
    ]


def _documented(cls: Any, method: Any) -> bool:
    above = [base.members[method.name] for base in cls.mro() if method.name in base.members]
    return any(one.docstring is not None for one in (method, *above))


def pages() -> dict[str, str]:
    """Place in the site -> Markdown. ValueError names the public names without a docstring."""
    if missing := undocumented():
        raise ValueError(f"public names without a docstring: {', '.join(missing)}: write one for each")
    front = "# fedray\n\n" + "\n".join(f"::: {name}\n    options:\n      heading_level: 2\n" for name in FRONT)
    return {"reference/api/index.md": front} | {_page(name): f"::: {name}\n" for name in modules()}


def navigation() -> list[Any]:
    """The pages by package."""
    nav: list[Any] = ["reference/api/index.md"]
    for package in PACKAGES:
        inner = [{name.removeprefix(f"fedray.{package}."): _page(name)} for name in modules() if _inside(name, package)]
        nav.append({f"fedray.{package}": [_page(f"fedray.{package}"), *inner]})
    return nav


def _inside(name: str, package: str) -> bool:
    return name.startswith(f"fedray.{package}.")


def page_of(place: str) -> str | None:
    """The page of the API reference of a source file; None if it is not public."""
    name = place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return _page(name) if name in modules() and place != name else None


def _page(name: str) -> str:
    package = name.removeprefix("fedray.") in PACKAGES
    return f"reference/api/{name}/index.md" if package else f"reference/api/{name}.md"
