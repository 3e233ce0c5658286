"""The pages of the configuration reference: a table for each section and kind, read from the dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from docs.hooks import settings
from docs.hooks.docstrings import as_markdown
from docs.hooks.settings import Key
from fedray.data.corpora import CORPORA
from fedray.experiment.config import Config
from fedray.experiment.pretraining import PretrainingConfig

FOLDER = "reference/configuration"
PAGES = {  # page -> title, and the top-level keys whose sections stand there
    "run": ("Run", ("cohort", "engine", "evaluation", "tracker")),
    "data": ("Data", ("data", "features")),
    "task": ("Task", ("task",)),
    "model": ("Model", ("model",)),
    "algorithm": ("Algorithm", ("algorithm",)),
    "aggregation": ("Aggregation", ("strategy", "server_optimizer", "attack")),
    "compression": ("Compression", ("upload", "download")),
    "privacy": ("Privacy", ("privacy", "audit")),
    "devices": ("Devices", ("devices", "clock")),
}
INTRODUCTION = """# Configuration

A configuration is a YAML file, or a mapping in Python. Each key is listed here with its default; an unknown key, a
wrong type or a value out of range is an error that names file, line and key. `fedray run CONFIG --dry-run` prints a
configuration with all its defaults.

- `a.b=c` on the command line sets `b` in the section `a`, and takes precedence over every file.
- `extends: base.yaml` starts from another file.
- A section with `kind` takes the keys of that kind only. `strategy: median` is short for `strategy: {kind: median}`.
- `${seed}` is replaced by the value of `seed`.

"""


@dataclass(frozen=True)
class Use:
    """Where a section of a class stands: its own kinds, and the kinds of the section around it; "" for none."""

    kinds: list[str] = field(default_factory=list)
    around: list[str] = field(default_factory=list)


def pages() -> dict[str, str]:
    """Place in the site -> Markdown."""
    top = {key.name: key for key in settings.keys(Config)}
    links = {name: f"{page}.md" for page, (_, names) in PAGES.items() for name in names}
    found = {"index": [INTRODUCTION, *_table([*top.values()], "", links)]}
    for page, (title, names) in PAGES.items():
        found[page] = [f"# {title}\n", *_sections([top[name] for name in names])]
    options = Key("data.options", "section", "", "", "", kinds=CORPORA)
    told = "`data.corpus` names the reader; its settings are the section `data.options`."
    found["corpora"] = [f"# Corpora\n\n{told}\n", *_sections([options])]
    pretraining = settings.keys(PretrainingConfig)
    own = [key for key in pretraining if key.name not in links and any(settings.sections(key))]
    told = "A configuration of `fedray pretrain`. `data`, `features` and `model` are as in a run."
    found["pretraining"] = [f"# Pre-training\n\n{told}\n", *_table(pretraining, "", links), *_sections(own)]
    return {f"{FOLDER}/{page}.md": "\n".join(lines) for page, lines in found.items()}


def navigation() -> list[Any]:
    """The pages in their order."""
    return [f"{FOLDER}/{page}.md" for page in ("index", *list(PAGES)[:2], "corpora", *list(PAGES)[2:], "pretraining")]


def _sections(keys: list[Key]) -> Iterator[str]:
    """The tables of the sections of these keys, and then of the sections in them; equal ones once."""
    found: dict[tuple[str, type], Use] = {}
    for key in keys:
        _gather(found, key.name, key, "")
    for (name, cls), use in found.items():
        yield from _section(cls, name, use)


def _gather(found: dict[tuple[str, type], Use], name: str, key: Key, around: str) -> None:
    """The dotted name and class of each section at and below a key. `around`: the kind of the section around it."""
    choices = list(key.kinds.items()) if key.kinds else [("", section) for section in settings.sections(key)]
    for kind, cls in choices:
        use = found.setdefault((name, cls), Use())
        use.kinds.append(kind)
        use.around.append(around)
    for kind, cls in choices:
        for inner in settings.keys(cls):
            if any(settings.sections(inner)):
                _gather(found, f"{name}.{inner.place}", inner, kind or around)


def _section(cls: type, name: str, use: Use) -> Iterator[str]:
    kinds, around = _listed(use.kinds), _listed(use.around)
    yield f"\n## `{name}`{': ' if kinds else ''}{kinds} {{#{_anchor(name, cls)}}}\n"
    yield f"(Of {around}.)\n" if around else ""
    for described in (cls, *_described_bases(cls)):
        yield f"{as_markdown(inspect.cleandoc(described.__doc__ or ''))}\n"
    links = {
        key.name: f"#{_anchor(f'{name}.{key.place}', next(settings.sections(key)))}"
        for key in settings.keys(cls)
        if any(settings.sections(key))
    }
    yield from _table(settings.keys(cls), f"{name}.", links)


def _described_bases(cls: type) -> list[type]:
    """The base classes that the reader of a section needs: abstract ones, and those that its docstring names."""
    bases = (base for base in cls.__mro__[1:] if is_dataclass(base))
    return [base for base in bases if inspect.isabstract(base) or f"`{base.__name__}`" in (cls.__doc__ or "")]


def _listed(kinds: list[str]) -> str:
    return ", ".join(f"`{kind}`" for kind in dict.fromkeys(kinds) if kind)


def _anchor(name: str, cls: type) -> str:
    return f"{name}-{cls.__name__}".lower()


def _table(keys: list[Key], prefix: str, links: dict[str, str]) -> Iterator[str]:
    if not keys:
        yield "This kind has no keys."
        return
    yield '<div class="settings" markdown>\n\n| key | type | default | unit | meaning |\n|---|---|---|---|---|'
    for key in keys:
        shown = f"`{prefix}{key.name}`"
        shown = f"[{shown}]({links[key.name]})" if key.name in links else shown
        cells = (shown, key.type, key.default, key.unit, key.meaning)
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
    yield "\n</div>"
