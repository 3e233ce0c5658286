"""Values checked and converted by OmegaConf against type hints. Kept: a sweep loads a hundred configurations that differ in two values."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, get_origin, get_type_hints

from omegaconf import OmegaConf

type_hints = functools.lru_cache(get_type_hints)


def converted(hint: Any, value: Any) -> Any:
    """The value as its hint wants it. OmegaConfBaseException: it cannot be that."""
    return _scalar(hint, value) if isinstance(value, str | int | float | None) else _converted(hint, value)


def _converted(hint: Any, value: Any) -> Any:
    checked = OmegaConf.to_container(OmegaConf.merge(_schema(hint), {"value": value}), throw_on_missing=True)
    assert isinstance(checked, dict)
    return tuple(checked["value"]) if get_origin(hint) is tuple else checked["value"]


_scalar = functools.lru_cache(maxsize=10_000, typed=True)(_converted)  # typed: 1 is not True


@functools.lru_cache
def _schema(hint: Any) -> Any:
    return OmegaConf.structured(dataclasses.make_dataclass("Leaf", [("value", hint)]))
