"""Every key of a configuration, read from the frozen dataclasses: dotted name, type, default, unit, meaning.

The meaning of a key is the comment beside its field in the source, or else the comment above the field. A section
without a comment has the first sentence of its class' docstring.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass
from typing import Any

from fedray.config.typed import named_sections, type_hints
from fedray.core.ranges import ranges
from fedray.core.settings import settings_class

SUFFIXES = {"_ms": "ms", "_s": "s", "_gb": "GB", "_db": "dB", "_seconds": "s"}
# A meaning may begin with its unit: "rounds; the last round is always scored", "seconds of silence".
UNIT = re.compile(
    r"(rounds|steps|epochs|frames|seconds|s|hours|utterances|clients|speakers|words|bytes|dB|Hz|bins|clips|tokens"
    r"|strings|pairs|layers|digits|hypotheses|masks|neighbours)"
    r"(?= (of|that|between|without|in|a|at|along|from)\b|[;,.:]|$)",
    re.IGNORECASE,
)
SHORT = {"seconds": "s", "hours": "h"}


@dataclass(frozen=True)
class Key:
    """One key of a section."""

    name: str
    type: str
    default: str
    unit: str
    meaning: str
    section: type | None = None  # the dataclass of a section without kinds
    kinds: Mapping[str, type] | None = None  # kind -> dataclass of a section with kinds
    named: bool = False  # the user gives names, each of which has such a section

    @property
    def place(self) -> str:
        """The dotted name of the section, below the section around it."""
        return f"{self.name}.NAME" if self.named else self.name


def keys(cls: type) -> list[Key]:
    """The keys of a section that is checked against the dataclass."""
    return [_key(cls, f) for f in dataclasses.fields(cls) if f.init]


def reachable(cls: type, options: Mapping[str, type]) -> set[type]:
    """The dataclass, those of its sections and of all their kinds, and those of the readers in `options`."""
    found: set[type] = set()
    waiting = [cls, *options.values()]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += [section for key in keys(here) for section in sections(key)]
    return found


def sections(key: Key) -> Iterator[type]:
    """The dataclasses that the section of a key may have."""
    if key.section is not None:
        yield key.section
    yield from (key.kinds or {}).values()


def _key(cls: type, f: Field[Any]) -> Key:
    hint = type_hints(cls)[f.name]
    meaning = meanings(cls).get(f.name, "")
    if "kinds" in f.metadata:
        kinds = {kind: settings_class(registered) for kind, registered in f.metadata["kinds"].items()}
        default = f.metadata["default"]
        return Key(f.name, "section", f"`kind: {default}`" if default else "required", "", meaning, None, kinds)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Key(f.name, "section", _section_default(f, hint), "", meaning or summary(hint), hint)
    if (inner := named_sections(hint)) is not None:
        return Key(f.name, "sections by name", _default(f), "", meaning, inner, named=True)
    limits = ranges(cls)[f.name]
    words = f"{_type(hint)}, {limits}" if limits is not None else _type(hint)
    return Key(f.name, words, _default(f), _unit(f.name, _type(hint), meaning), meaning)


def summary(cls: type) -> str:
    """The first sentence of a class' own docstring."""
    return re.split(r"(?<=\.)\s", inspect.cleandoc(cls.__dict__.get("__doc__") or ""))[0].replace("\n", " ")


def _type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    text = re.sub(r"Optional\[(\w+)\]", r"\1 | null", text)
    text = re.sub(r"Union\[(\w+), (\w+)\]", r"\1 | \2", text)
    return text.replace("NoneType", "null").replace("None", "null").replace("typing.", "")


def _default(f: Field[Any]) -> str:
    if f.default is MISSING and f.default_factory is MISSING:
        return "required"
    return f"`{written(_plain(f))}`"


def _section_default(f: Field[Any], cls: type) -> str:
    """What the default of a section has other than the defaults of its class."""
    if f.default is MISSING and f.default_factory is MISSING:
        return "required"
    here = _plain(f)
    plain = {one.name: _plain(one) for one in dataclasses.fields(cls)}
    changed = {name: value for name, value in vars(here).items() if value != plain[name]}
    return ", ".join(f"`{name}: {written(value)}`" for name, value in changed.items())


def _plain(f: Field[Any]) -> object:
    return f.default_factory() if f.default_factory is not MISSING else f.default


def written(value: object) -> str:
    """A value as YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(written(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {written(item)}' for key, item in value.items())}}}"
    return value if isinstance(value, str) and value else repr(value)


def _unit(name: str, type: str, meaning: str) -> str:
    suffix = next((unit for end, unit in SUFFIXES.items() if name.endswith(end)), "")
    first = UNIT.match(meaning) if "|" not in meaning and re.search("int|float", type) else None
    unit = first.group(1) if first else ""
    return suffix or SHORT.get(unit.lower(), unit)


@functools.cache
def meanings(cls: type) -> dict[str, str]:
    """Field -> meaning, of the fields that the class or a base class declares."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _declared(base)
    return found


def _declared(cls: type) -> dict[str, str]:
    """Field -> meaning, of the fields that the class itself declares."""
    source = inspect.cleandoc("\n" + inspect.getsource(cls))
    comments: dict[int, tuple[bool, str]] = {}  # line -> whether it stands alone, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            comments[token.start[0]] = alone, token.string.removeprefix("#").strip()
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            beside = [comments[line][1] for line in lines if line in comments]
            found[statement.target.id] = " ".join(beside or _above(comments, statement.lineno))
    return found


def _above(comments: Mapping[int, tuple[bool, str]], line: int) -> list[str]:
    """The comment lines that end directly above a line."""
    text: list[str] = []
    while (line := line - 1) in comments and comments[line][0]:
        text.insert(0, comments[line][1])
    return text
