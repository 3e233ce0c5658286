"""An extension of griffe: docstrings as Markdown. Aligned columns become lists, and `<name>` stays text."""

from __future__ import annotations

import re
from typing import Any

import griffe

ALIGNED = re.compile(r"(\S.*?) {2,}(\S.*)")  # a name, and what it means in the next column
CONTINUED = re.compile(r" {2,}(\S.*)")


class PlainDocstrings(griffe.Extension):
    """Applies to every docstring that mkdocstrings shows."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The docstring with its aligned lines as a list; indented lines elsewhere stay code."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if found := ALIGNED.fullmatch(line):
            lines += [] if inside else [""]
            lines.append(f"- **{escaped(found[1])}**: {escaped(found[2])}")
            inside = True
        elif inside and (found := CONTINUED.fullmatch(line)):
            lines.append(f"  {escaped(found[1])}")
        else:
            lines += [""] if inside else []
            lines.append(line if line.startswith("    ") else escaped(line))
            inside = False
    return "\n".join(lines)


def escaped(line: str) -> str:
    """A line in which `<` outside of code is no HTML."""
    parts = line.split("`")
    return "`".join(part.replace("<", "&lt;") if position % 2 == 0 else part for position, part in enumerate(parts))
