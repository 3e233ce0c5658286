"""A configuration as files hold it. Texts from the environment may be secrets: files hold their interpolations."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from fedray.config.merging import Values, dotted
from fedray.config.source import Source

INTERPOLATION = re.compile(r"(?<!\\)(\\\\)*\$\{")
SHOWN = re.compile(r"name|imports|data\.corpus|.*\bkind")  # keys whose texts name things of fedray, or files


def as_yaml(values: Mapping[str, Any], source: Source) -> str:
    """A configuration as YAML text that reads back with the same values, which `recorded` replaces.

    OmegaConf reads more words as numbers than YAML does, such as 1e3, and `${` as the beginning of an interpolation.
    """
    return OmegaConf.to_yaml(OmegaConf.create(recorded(_escaped(values), source)))


def recorded(values: Values, source: Source) -> Values:
    """The values of a configuration, with the interpolation in place of each text that the environment may have given.

    A resumed run resolves it again. Numbers, kinds and the run's name stay, so that its bits do not change.
    """
    values = copy.deepcopy(values)
    given = {key: value for key, value in dotted(source.given).items() if _interpolates(value)}
    if not any("oc.env" in str(value) for value in given.values()):  # `${data.root}` may name one that has it
        return values
    for key, text in given.items():
        *sections, last = key.split(".")
        inner: Any = values
        for name in sections:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and _is_text(inner.get(last)) and not SHOWN.fullmatch(key):
            inner[last] = text
    return values


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def _interpolates(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_interpolates, value))
    return isinstance(value, str) and INTERPOLATION.search(value) is not None


def _escaped(value: Any) -> Any:
    """The value with `${` escaped in each text, so that OmegaConf reads it literally."""
    if isinstance(value, Mapping):
        return {key: _escaped(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(one) for one in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
