"""How the values of two configurations, nested mappings, are merged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Values = dict[str, Any]  # nested plain data, as YAML holds it


def merged(base: Values, top: Values) -> Values:
    """Merge `top` over `base`, section by section.

    A section of another kind replaces the whole section in `base`, including keys that both kinds know. Another
    `corpus` likewise drops the `options` and the `root` of the corpus in `base`. A word where the other side has a
    section (`strategy: by_loss` and `strategy.temperature=2`) stands for that section's kind.
    """
    base = dict(base)
    for key, here in top.items():
        there = base.get(key)
        if isinstance(here, dict):
            there = section_of(there)
        elif isinstance(there, dict) and "kind" in there:
            here = section_of(here)
        if isinstance(here, dict) and isinstance(there, dict):
            if differ(here, there, "corpus"):
                there = {name: value for name, value in there.items() if name not in ("options", "root")}
            base[key] = here if differ(here, there, "kind") else merged(there, here)
        else:
            base[key] = here
    return base


def dotted(values: Mapping[str, Any], prefix: str = "") -> Values:
    """The values of nested sections by dotted keys."""
    found: Values = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping) and value
        found |= dotted(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


def differ(here: Values, there: Values, name: str) -> bool:
    """Whether two sections give a key different values."""
    return name in here and name in there and here[name] != there[name]


def section_of(value: object) -> object:
    """A word as the section of that kind; any other value unchanged."""
    return {"kind": value} if isinstance(value, str) else value


def without_empty(values: Values, below: Values, empty: Collection[str], prefix: str = "") -> Values:
    """`values` without the dotted keys left `empty` (`data:`) where `below` has a section, which stays as it is."""
    found: Values = {}
    for key, value in values.items():
        name, there = f"{prefix}{key}", below.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            value = without_empty(value, there, empty, f"{name}.")
        if not (isinstance(there, dict) and value is None and name in empty):
            found[key] = value
    return found
