"""Convert values and check them against type hints, with OmegaConf.

Results are cached: a sweep loads a hundred similar configurations.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf

from fedray.core.ranges import Range, range_of

type_hints = functools.lru_cache(get_type_hints)


@functools.lru_cache
def ranges(cls: type) -> dict[str, Range | None]:
    """Field -> the range of its numbers."""
    return {name: range_of(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}


def named_sections(hint: Any) -> type | None:
    """The dataclass in a type `dict[str, SomeDataclass]`; None for other types."""
    inner = get_args(hint)[1] if get_origin(hint) is dict else None
    return inner if isinstance(inner, type) and dataclasses.is_dataclass(inner) else None


def converted(hint: Any, value: object) -> object:
    """The value converted to the type of the hint. OmegaConfBaseException: it cannot be converted."""
    return _scalar(hint, value) if isinstance(value, str | int | float | None) else _converted(hint, value)


def _converted(hint: Any, value: object) -> object:
    checked = OmegaConf.to_container(OmegaConf.merge(_schema(hint), {"value": value}), throw_on_missing=True)
    assert isinstance(checked, dict)
    return tuple(checked["value"]) if get_origin(hint) is tuple else checked["value"]


_scalar = functools.lru_cache(maxsize=10_000, typed=True)(_converted)  # typed: 1 is not True


@functools.lru_cache
def _schema(hint: Any) -> DictConfig:
    schema = OmegaConf.structured(dataclasses.make_dataclass("Leaf", [("value", hint)]))
    assert isinstance(schema, DictConfig)
    return schema
